//! The kernel files: embedded text, constants put before it, and what their signatures say.
//!
//! A kernel file is Metal as a Mac accepts it, in the subset that `docs/kernels.md` describes.
//! Metal compiles the expanded text as it is. CUDA and the simulator rewrite the two things that
//! C++ cannot express by a macro: the kernel's argument list, and `threadgroup` arrays. This
//! module finds both; the rewriting itself belongs to the device.

use crate::{DeviceError, KernelSource};
use std::collections::BTreeSet;
use std::ops::Range;

/// Every file of `kernels/`, by name.
const FILES: &[(&str, &str)] = &[
    ("attention_decode.metal", include_str!("../../../kernels/attention_decode.metal")),
    ("attention_prefill.metal", include_str!("../../../kernels/attention_prefill.metal")),
    ("conv.h", include_str!("../../../kernels/conv.h")),
    ("delta_prefill.metal", include_str!("../../../kernels/delta_prefill.metal")),
    ("delta_step.metal", include_str!("../../../kernels/delta_step.metal")),
    ("embed.metal", include_str!("../../../kernels/embed.metal")),
    ("gemm.metal", include_str!("../../../kernels/gemm.metal")),
    ("gemv.h", include_str!("../../../kernels/gemv.h")),
    ("gemv.metal", include_str!("../../../kernels/gemv.metal")),
    ("lily.h", include_str!("../../../kernels/lily.h")),
    ("moe_decode.metal", include_str!("../../../kernels/moe_decode.metal")),
    ("moe_prefill.metal", include_str!("../../../kernels/moe_prefill.metal")),
    ("next_token.metal", include_str!("../../../kernels/next_token.metal")),
    ("norm.metal", include_str!("../../../kernels/norm.metal")),
    ("panel.h", include_str!("../../../kernels/panel.h")),
    ("quant.h", include_str!("../../../kernels/quant.h")),
    ("route.h", include_str!("../../../kernels/route.h")),
    ("sample.metal", include_str!("../../../kernels/sample.metal")),
    ("tile.h", include_str!("../../../kernels/tile.h")),
];

/// The text of a file below `kernels/`.
///
/// # Errors
/// [`DeviceError::Dialect`] if there is none.
pub fn file(name: &str) -> Result<&'static str, DeviceError> {
    FILES
        .iter()
        .find(|(file, _)| *file == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| dialect(name, "there is no such file"))
}

/// Names of all `.metal` files, without the extension.
pub fn kernel_files() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(name, _)| name.strip_suffix(".metal"))
}

fn dialect(file: &str, problem: impl Into<String>) -> DeviceError {
    DeviceError::Dialect { file: file.to_owned(), problem: problem.into() }
}

/// The file of `source` with its constants in front and every `#include "…"` replaced by the text.
/// `#include <…>` lines are kept for Metal and dropped elsewhere.
///
/// # Errors
/// [`DeviceError::Dialect`] for an include that does not exist.
pub fn expand(source: &KernelSource, keep_system_includes: bool) -> Result<String, DeviceError> {
    let mut text = String::new();
    for (name, value) in &source.defines {
        text.push_str("#define ");
        text.push_str(name);
        text.push(' ');
        text.push_str(value);
        text.push('\n');
    }
    let name = format!("{}.metal", source.file);
    inline(&name, keep_system_includes, &mut BTreeSet::new(), &mut text)?;
    Ok(text)
}

fn inline(
    name: &str,
    keep_system_includes: bool,
    seen: &mut BTreeSet<String>,
    text: &mut String,
) -> Result<(), DeviceError> {
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    // So that compilers report the lines of the files.
    text.push_str("#line 1 \"");
    text.push_str(name);
    text.push_str("\"\n");
    for (idx, line) in file(name)?.lines().enumerate() {
        let Some(include) = line.trim_start().strip_prefix("#include") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let include = include.trim();
        if let Some(file) = include.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            inline(file, keep_system_includes, seen, text)?;
            let next_line = idx + 2;
            text.push_str("#line ");
            text.push_str(&next_line.to_string());
            text.push_str(" \"");
            text.push_str(name);
            text.push_str("\"\n");
        } else if keep_system_includes {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(())
}

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `device const T*`.
    Read,
    /// `device T*`.
    ReadWrite,
}

/// The arguments of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// In the order written.
    pub args: Vec<Arg>,
    /// Members of the params struct, all of 4 bytes; empty if there is none.
    pub params: Vec<String>,
}

impl Signature {
    /// Accesses of the buffers, in binding order, the params excluded.
    pub fn buffers(&self) -> impl Iterator<Item = Access> {
        self.args.iter().filter_map(|arg| match arg.kind {
            ArgKind::Buffer { access, .. } => Some(access),
            _ => None,
        })
    }
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Its name.
    pub name: String,
    /// The type without address space: `const uint*`, `GemvParams`, `uint3`.
    pub ty: String,
    /// What it is bound to.
    pub kind: ArgKind,
}

/// What an argument is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// `device [const] T* name [[buffer(index)]]`; indices count from 0 in the order written.
    Buffer {
        /// Binding index.
        index: usize,
        /// Read only, or not.
        access: Access,
    },
    /// `constant T& name [[buffer(index)]]`; its index follows the last buffer's.
    Params {
        /// Binding index.
        index: usize,
    },
    /// `uint3 name [[threadgroup_position_in_grid]]`
    ThreadgroupPosition,
    /// `uint name [[thread_index_in_threadgroup]]`
    ThreadIndex,
    /// `uint name [[simdgroup_index_in_threadgroup]]`
    SimdgroupIndex,
    /// `uint name [[thread_index_in_simdgroup]]`
    Lane,
    /// An attribute that the dialect does not have.
    Unknown,
}

/// A kernel function found in an expanded text.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// From `kernel` to the closing parenthesis.
    pub header: Range<usize>,
    /// Arguments.
    pub signature: Signature,
}

/// The kernel functions of an expanded text.
///
/// # Errors
/// [`DeviceError::Dialect`] if a header breaks a rule of the dialect.
pub fn kernels(file: &str, text: &str) -> Result<Vec<Found>, DeviceError> {
    let clean = blank_comments(text);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = find_word(&clean, "kernel", at) {
        let rest = &clean[start..];
        let Some(open) = rest.find('(') else {
            return Err(dialect(file, "a kernel without an argument list"));
        };
        let head: Vec<&str> = rest[..open].split_whitespace().collect();
        let ["kernel", "void", name] = head[..] else {
            return Err(dialect(
                file,
                format!("expected `kernel void NAME(`, found `{}`", &rest[..open]),
            ));
        };
        let close = matching(rest, open)
            .ok_or_else(|| dialect(file, format!("kernel {name}: unbalanced parentheses")))?;
        let signature = signature(&clean, &rest[open + 1..close])
            .map_err(|problem| dialect(file, format!("kernel {name}: {problem}")))?;
        let header = start..start + close + 1;
        at = header.end;
        found.push(Found { name: name.to_owned(), header, signature });
    }
    Ok(found)
}

/// The text with comments replaced by spaces, so that offsets stay.
pub fn blank_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(slash) = rest.find('/') {
        out.push_str(&rest[..slash]);
        rest = &rest[slash..];
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else {
            out.push('/');
            rest = &rest[1..];
            continue;
        };
        // Byte for byte: offsets into the result are offsets into the text.
        out.extend(rest[..len].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        rest = &rest[len..];
    }
    out.push_str(rest);
    out
}

/// Where `word` occurs as a whole word, from `at` on.
pub fn find_word(text: &str, word: &str, at: usize) -> Option<usize> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut from = at;
    while let Some(found) = text[from..].find(word) {
        let start = from + found;
        let end = start + word.len();
        let before = text[..start].chars().next_back().is_some_and(is_word);
        let after = text[end..].chars().next().is_some_and(is_word);
        if !before && !after {
            return Some(start);
        }
        from = end;
    }
    None
}

/// The parenthesis that closes the one at `open`.
fn matching(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (idx, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(idx);
                }
            }
            _ => {}
        }
    }
    None
}

fn signature(text: &str, list: &str) -> Result<Signature, String> {
    let mut args = Vec::new();
    let mut params = Vec::new();
    let mut next_buffer = 0;
    for written in list.split(',') {
        let written = written.split_whitespace().collect::<Vec<_>>().join(" ");
        let (declaration, attribute) = written
            .strip_suffix("]]")
            .and_then(|rest| rest.rsplit_once("[["))
            .ok_or_else(|| format!("argument `{written}` has no attribute"))?;
        let declaration = declaration.trim();
        let attribute: String = attribute.split_whitespace().collect();
        let cut = declaration
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .map_or(0, |idx| idx + 1);
        let (ty, name) = declaration.split_at(cut);
        let (ty, name) = (ty.trim(), name.to_owned());
        let index = attribute.strip_prefix("buffer(").and_then(|rest| rest.strip_suffix(')'));
        let (ty, kind) = if let Some(index) = index {
            if index.parse() != Ok(next_buffer) {
                return Err(format!("`{name}` is buffer({index}), but the next is {next_buffer}"));
            }
            let index = next_buffer;
            next_buffer += 1;
            buffer(text, ty, &name, index, &mut params)?
        } else {
            let (kind, expected) = match &*attribute {
                "threadgroup_position_in_grid" => (ArgKind::ThreadgroupPosition, "uint3"),
                "thread_index_in_threadgroup" => (ArgKind::ThreadIndex, "uint"),
                "simdgroup_index_in_threadgroup" => (ArgKind::SimdgroupIndex, "uint"),
                "thread_index_in_simdgroup" => (ArgKind::Lane, "uint"),
                other => return Err(format!("the dialect has no attribute `{other}`")),
            };
            if ty != expected {
                return Err(format!("`{name}` is {ty}, but `{attribute}` is {expected}"));
            }
            (ty.to_owned(), kind)
        };
        let after_params = args.iter().any(|arg: &Arg| matches!(arg.kind, ArgKind::Params { .. }));
        if after_params && matches!(kind, ArgKind::Buffer { .. } | ArgKind::Params { .. }) {
            return Err(format!("`{name}` comes after the params, which are bound last"));
        }
        args.push(Arg { name, ty, kind });
    }
    Ok(Signature { args, params })
}

fn buffer(
    text: &str,
    ty: &str,
    name: &str,
    index: usize,
    params: &mut Vec<String>,
) -> Result<(String, ArgKind), String> {
    if let Some(pointee) = ty.strip_prefix("device ") {
        let access = if pointee.starts_with("const ") { Access::Read } else { Access::ReadWrite };
        if !pointee.ends_with('*') {
            return Err(format!("`{name}` is no pointer"));
        }
        return Ok((pointee.to_owned(), ArgKind::Buffer { index, access }));
    }
    let Some(ty) = ty.strip_prefix("constant ").and_then(|ty| ty.strip_suffix('&')) else {
        return Err(format!("`{name}` is neither `device T*` nor `constant T&`"));
    };
    let ty = ty.trim().to_owned();
    *params = members(text, &ty)?;
    Ok((ty, ArgKind::Params { index }))
}

/// Members of `struct NAME { … }`: uint, int or float, so that host and device agree on offsets.
fn members(text: &str, name: &str) -> Result<Vec<String>, String> {
    let mut at = 0;
    while let Some(start) = find_word(text, "struct", at) {
        at = start + "struct".len();
        let Some(rest) = text[at..].trim_start().strip_prefix(name) else { continue };
        let Some(body) = rest.trim_start().strip_prefix('{') else { continue };
        let body = &body[..body.find('}').ok_or("a struct without an end")?];
        let mut members = Vec::new();
        for member in body.split(';').map(str::trim).filter(|member| !member.is_empty()) {
            match member.split_whitespace().collect::<Vec<_>>()[..] {
                ["uint" | "int" | "float", member] => members.push(member.to_owned()),
                _ => return Err(format!("member `{member}` of {name} is no uint, int or float")),
            }
        }
        return Ok(members);
    }
    Err(format!("there is no `struct {name}` before the kernel"))
}

/// A declaration `threadgroup T name[n][m];` in a kernel body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadgroupArray {
    /// From `threadgroup` to the semicolon, inclusive.
    pub range: Range<usize>,
    /// `T`.
    pub ty: String,
    /// `name`.
    pub name: String,
    /// `[n][m]`.
    pub dims: String,
}

/// The threadgroup arrays of an expanded text. `threadgroup T*` parameters are none.
pub fn threadgroup_arrays(text: &str) -> Vec<ThreadgroupArray> {
    let clean = blank_comments(text);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = find_word(&clean, "threadgroup", at) {
        at = start + "threadgroup".len();
        // `threadgroup T*` parameters and casts meet one of these before a bracket.
        let Some(stop) = clean[at..].find(['[', ';', '(', ')', '*', '{', '=', '&', ',']) else {
            break;
        };
        let bracket = at + stop;
        if !clean[bracket..].starts_with('[') {
            continue;
        }
        let Some(len) = clean[bracket..].find(';') else { break };
        let end = bracket + len;
        let declaration = &clean[at..end];
        let bracket = stop;
        let head: Vec<&str> = declaration[..bracket].split_whitespace().collect();
        if let [ty @ .., name] = &head[..] {
            found.push(ThreadgroupArray {
                range: start..end + 1,
                ty: ty.join(" "),
                name: (*name).to_owned(),
                dims: declaration[bracket..].trim().to_owned(),
            });
        }
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "struct P { uint n; float eps; };\n\
        // kernel void not_this(\n\
        kernel void scale(device const float* x [[buffer(0)]], /* in, out */\n\
            device float* y [[buffer(1)]], constant P& p [[buffer(2)]],\n\
            uint3 tg [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]])\n\
        { threadgroup float t[32][LEN(N) + 1]; f((threadgroup float*)t); }\n";

    #[test]
    fn a_signature_is_read() {
        let found = kernels("x.metal", TEXT).expect("a good kernel");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "scale");
        let signature = &found[0].signature;
        assert_eq!(signature.params, ["n", "eps"]);
        let kinds: Vec<_> = signature.args.iter().map(|arg| (&*arg.ty, arg.kind.clone())).collect();
        assert_eq!(
            kinds,
            [
                ("const float*", ArgKind::Buffer { index: 0, access: Access::Read }),
                ("float*", ArgKind::Buffer { index: 1, access: Access::ReadWrite }),
                ("P", ArgKind::Params { index: 2 }),
                ("uint3", ArgKind::ThreadgroupPosition),
                ("uint", ArgKind::Lane),
            ]
        );
        assert!(TEXT[found[0].header.clone()].ends_with("simdgroup]])"));
    }

    #[test]
    fn threadgroup_arrays_are_found() {
        let arrays = threadgroup_arrays(TEXT);
        assert_eq!(arrays.len(), 1);
        assert_eq!(
            (&*arrays[0].ty, &*arrays[0].name, &*arrays[0].dims),
            ("float", "t", "[32][LEN(N) + 1]")
        );
        assert_eq!(&TEXT[arrays[0].range.clone()], "threadgroup float t[32][LEN(N) + 1];");
    }

    #[test]
    fn broken_signatures_are_refused() {
        for (from, to, expected) in [
            ("buffer(1)", "buffer(3)", "the next is 1"),
            ("uint3 tg", "uint tg", "is uint3"),
            ("[[threadgroup_position_in_grid]]", "[[grid]]", "no attribute `grid`"),
            ("device float* y", "float* y", "neither"),
            ("uint n;", "half n;", "no uint, int or float"),
            ("constant P&", "constant Q&", "no `struct Q`"),
        ] {
            let error = kernels("x.metal", &TEXT.replace(from, to)).expect_err(to);
            assert!(error.to_string().contains(expected), "{to}: {error}");
        }
    }
}
