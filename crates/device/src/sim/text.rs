//! Kernel text as C++: argument lists, threadgroup arrays, and a function that a fibre can call.

use crate::DeviceError;
use crate::source::{ArgKind, Found, kernels, threadgroup_arrays};
use std::fmt::Write as _;

const API: &str = include_str!("../../../../kernels/shim/sim_api.h");
const RUNTIME: &str = include_str!("../../../../kernels/shim/sim_runtime.h");
const CHECK: &str = include_str!("../../../../kernels/shim/sim_check.h");
const VOCABULARY: &str = include_str!("../../../../kernels/shim/sim.h");
const MATRIX: &str = include_str!("../../../../kernels/shim/sim_simdgroup_matrix.h");
const TENSOR: &str = include_str!("../../../../kernels/shim/sim_tensor.h");

/// The kernels of a text, and the text for the C++ compiler.
pub(super) struct Translated {
    pub(super) kernels: Vec<Found>,
    pub(super) text: String,
}

/// The run-time alone, with its checks, for checked modules.
pub(super) fn checking_runtime() -> String {
    let mut text = "#define SIM_CHECKED 1\n".to_owned();
    for (name, part) in [("sim_api.h", API), ("sim_runtime.h", RUNTIME), ("sim_check.h", CHECK)] {
        push_file(&mut text, name, part);
    }
    text
}

/// The kernels of `source`; checked modules leave the run-time out.
pub(super) fn translate(
    file: &str,
    source: &str,
    checked: bool,
) -> Result<Translated, DeviceError> {
    let kernels = kernels(&format!("{file}.metal"), source)?;
    let mut text = String::new();
    if checked {
        text.push_str("#define SIM_CHECKED 1\n");
    }
    push_file(&mut text, "sim_api.h", API);
    if !checked {
        push_file(&mut text, "sim_runtime.h", RUNTIME);
    }
    push_file(&mut text, "sim.h", VOCABULARY);
    let _ = writeln!(text, "#line 1 \"{file}.metal\"");
    push_rewritten(&mut text, source, &kernels);
    text.push_str("\n#line 1 \"entries\"\n");
    for kernel in &kernels {
        push_entry(&mut text, kernel);
    }
    Ok(Translated { kernels, text })
}

/// A file of the shim, its includes replaced by what it cannot find otherwise.
fn push_file(text: &mut String, name: &str, part: &str) {
    let _ = writeln!(text, "#line 1 \"{name}\"");
    for line in part.lines() {
        match line {
            "#pragma once" | "#include \"sim_api.h\"" | "#include \"sim_runtime.h\"" => {}
            "#include \"sim_simdgroup_matrix.h\"" => {
                push_file(text, "sim_simdgroup_matrix.h", MATRIX);
                continue;
            }
            "#include \"sim_tensor.h\"" => {
                push_file(text, "sim_tensor.h", TENSOR);
                continue;
            }
            line => text.push_str(line),
        }
        text.push('\n');
    }
}

/// The text with argument lists and threadgroup arrays as C++ has them, line for line.
fn push_rewritten(text: &mut String, source: &str, kernels: &[Found]) {
    let mut edits: Vec<(std::ops::Range<usize>, String)> = Vec::new();
    for kernel in kernels {
        edits.push((kernel.header.clone(), header(kernel)));
    }
    for array in threadgroup_arrays(source) {
        let (ty, name, dims) = (&array.ty, &array.name, &array.dims);
        edits.push((
            array.range.clone(),
            format!(
                "{ty} (&{name}){dims} = *({ty} (*){dims})\
                 sim_threadgroup_array(sizeof({ty} {dims}), alignof({ty}), \"{name}\");"
            ),
        ));
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut at = 0;
    for (range, replacement) in edits {
        text.push_str(&source[at..range.start]);
        text.push_str(&replacement);
        // The lines after it keep their numbers.
        text.extend(source[range.clone()].chars().filter(|c| *c == '\n'));
        at = range.end;
    }
    text.push_str(&source[at..]);
}

fn header(kernel: &Found) -> String {
    let mut list = Vec::new();
    for arg in &kernel.signature.args {
        let by_reference = matches!(arg.kind, ArgKind::Params { .. });
        let (open, close) = if by_reference { ("const ", "&") } else { ("", "") };
        list.push(format!("{open}{}{close} {}", arg.ty, arg.name));
    }
    format!("static void {}({})", kernel.name, list.join(", "))
}

/// The symbol of a kernel's entry.
pub(super) fn entry_symbol(kernel: &str) -> String {
    format!("sim_kernel_{kernel}")
}

/// Binds the arguments. Params are copied to the fibre's stack, where accesses cost nothing.
fn push_entry(text: &mut String, kernel: &Found) {
    let mut list = Vec::new();
    let mut params = String::new();
    for arg in &kernel.signature.args {
        list.push(match &arg.kind {
            ArgKind::Buffer { index, .. } => format!("({})sim_d->buffers[{index}]", arg.ty),
            ArgKind::Params { .. } => {
                params = format!("const {0} sim_p = *(const {0}*)sim_d->params; ", arg.ty);
                "sim_p".to_owned()
            }
            ArgKind::ThreadgroupPosition => "uint3{sim_at[0], sim_at[1], sim_at[2]}".to_owned(),
            ArgKind::ThreadIndex => "sim_t".to_owned(),
            ArgKind::SimdgroupIndex => "sim_t / 32u".to_owned(),
            ArgKind::Lane => "sim_t % 32u".to_owned(),
            ArgKind::Unknown => unreachable!("the parser refuses unknown attributes"),
        });
    }
    let _ = writeln!(
        text,
        "extern \"C\" __attribute__((visibility(\"default\"), no_sanitize(\"thread\"))) \
         void {}(const SimDispatch* sim_d, const uint* sim_at, uint sim_t) {{ {params}{}({}); }}",
        entry_symbol(&kernel.name),
        kernel.name,
        list.join(", ")
    );
}
