//! The kernels under a C++ compiler in which address spaces are real, and under the rules of Metal
//! that no C++ compiler knows.

mod rules;

use crate::{lint, zig};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

/// Threadgroup memory of every Apple GPU.
const THREADGROUP_BYTES_MAX: usize = 32 << 10;
/// How `lily-model`'s example `kernels` writes `threadgroup` before an array.
const ARRAY: &str = "LILY_THREADGROUP_ARRAY";

/// Metal has no double.
const LANGUAGE: &[&str] = &["-cc1", "-x", "c++", "-triple", "arm64-apple-macosx14.0"];
/// Metal is C++14 until version 4.
const BEFORE_4: &[&str] = &["-std=c++14"];
/// What Metal 4 adds to C++17 for its tensors, constants of any class as arguments of templates, is in C++20.
const SINCE_4: &[&str] = &["-std=c++20", "-DTYPECHECK_METAL_4"];
const CHECKS: &[&str] = &[
    "-ffreestanding",
    "-fsyntax-only",
    "-ast-dump",
    "-pedantic-errors",
    "-Wno-unknown-attributes",
    "-Werror=double-promotion",
    "-Werror=undef",
];

/// Mistakes that a Mac would refuse and that no other check here sees: a text of a kernel file,
/// what to put in its place, and words of the error.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    // Another space than the pointer's.
    ("gemv", "device float* y = y0;", "thread float* y = y0;", "cannot initialize"),
    ("gemv", FLAT, "device float* flat = xs;", "cannot initialize"),
    (
        "gemv",
        "threadgroup const float4* x, uint cols",
        "device const float4* x, uint cols",
        "dot_r",
    ),
    ("gemv", FLAT, "threadgroup float* flat = (threadgroup float*)x;", "changes the address space"),
    // No space at all.
    ("gemv", "uint lane, thread float* acc)", "uint lane, float* acc)", "has no address space"),
    (
        "gemv",
        "    float scale = 1.0f;",
        "    float scale = 1.0f; float& same = scale;",
        "no address sp",
    ),
    ("gemv", "constant constexpr uint UNIT", "constexpr uint UNIT", "is not `constant`"),
    // Writes to what is const.
    ("gemv", "    float scale = 1.0f;", "    float scale = 1.0f; gain[0] = scale;", "read-only"),
    ("next_token", "seq[0] += p.n_tokens;", "p.n_tokens += 1;", "const"),
    // Conversions and arithmetic of bfloat.
    ("norm", ROUNDED, "out[row + i] = x[row + i] * scale", "assigning to 'act'"),
    ("norm", ROUNDED, "const float sum2 = out[row]; out[row + i] = act(0.0f)", "cannot initialize"),
    ("norm", ROUNDED, "out[row + i] = out[row] * out[row]", "invalid operands"),
    ("norm", ROUNDED, "out[row + i] = 0", "assigning to 'act'"),
    ("norm", ROUNDED, "const bfloat one = half(1.0f); out[row + i] = one", "cannot initialize"),
    // Numbers.
    ("norm", "= rsqrt(total", "= 1.0 * rsqrt(total", "double"),
    ("norm", "rsqrt(total / float(HIDDEN) + RMS_EPS)", "rsqrt(tid)", "ambiguous"),
    ("norm", "    float total = 0.0f;", "    float total = min(row, tid);", "ambiguous"),
    // What a Mac before version 4 of the language has not.
    (
        "norm",
        "    float total = 0.0f;",
        "    float total = 0.0f; if constexpr (HIDDEN > 4) {}",
        "C++17",
    ),
    ("norm", "threadgroup float partial[8];", "threadgroup float partial[8193];", "32 KiB"),
    (
        "norm",
        "    float total = 0.0f;",
        "\n#if HIDEN == 4\n#endif\n    float total = 0.0f;",
        "HIDEN",
    ),
];
const FLAT: &str = "threadgroup float* flat = (threadgroup float*)xs;";
const ROUNDED: &str = "out[row + i] = act(x[row + i] * scale * gain[i])";

/// Checks every kernel in every variant, and that the check finds mistakes.
pub(crate) fn run() -> Result<()> {
    let clang = Clang {
        python: zig::bin()
            .context(
                "zig's clang checks the kernels' address spaces; install ziglang and \
                 cargo-zigbuild from PyPI into target/zig-venv",
            )?
            .join("python"),
        shim: lint::workspace_root().join("kernels/shim/typecheck.h"),
    };
    let texts = texts()?;
    let faults = clang.faults_of_all(&texts)?;
    ensure!(faults.is_empty(), "{} kernel texts are wrong:\n{}", faults.len(), faults.join("\n"));
    for (file, from, to, expected) in MISTAKES {
        clang.mistake(&texts, file, from, to, expected)?;
    }
    println!("{} kernel texts checked, {} deliberate mistakes found", texts.len(), MISTAKES.len());
    Ok(())
}

/// Every kernel file with every set of constants that the product uses, as files.
fn texts() -> Result<Vec<PathBuf>> {
    let dir = lint::workspace_root().join("target/kernel-texts");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).context("target/kernel-texts could not be made")?;
    let status = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "lily-model", "--example", "kernels", "--", "texts"])
        .arg(&dir)
        .current_dir(lint::workspace_root())
        .stdin(Stdio::null())
        .status()
        .context("cargo could not be started")?;
    ensure!(status.success(), "the kernels could not be listed");
    let mut texts: Vec<PathBuf> = std::fs::read_dir(&dir)?.flatten().map(|e| e.path()).collect();
    texts.sort();
    ensure!(!texts.is_empty(), "there are no kernels");
    Ok(texts)
}

/// Zig's clang, and what stands in for Metal's header.
struct Clang {
    python: PathBuf,
    shim: PathBuf,
}

impl Clang {
    /// One entry a faulty text.
    fn faults_of_all(&self, texts: &[PathBuf]) -> Result<Vec<String>> {
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        let parts: Vec<Result<Vec<String>>> = thread::scope(|scope| {
            let running: Vec<_> = texts
                .chunks(texts.len().div_ceil(n_threads))
                .map(|part| scope.spawn(|| self.faults_of_part(part)))
                .collect();
            let join = |handle: thread::ScopedJoinHandle<'_, _>| handle.join();
            running.into_iter().map(|handle| join(handle).expect("a check panicked")).collect()
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    fn faults_of_part(&self, texts: &[PathBuf]) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        for path in texts {
            let text = std::fs::read_to_string(path)?;
            let found = self.faults(path, &text)?;
            if !found.is_empty() {
                faults.push(format!("{}:\n{found}", path.display()));
            }
        }
        Ok(faults)
    }

    /// What is wrong with a text, or nothing. It is written to a file beside `path`.
    fn faults(&self, path: &Path, text: &str) -> Result<String> {
        let file = path.with_extension("checked");
        std::fs::write(&file, with_memory_limit(text))?;
        let output = self.run(CHECKS, &file, true)?;
        let mut found = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            let tree = String::from_utf8_lossy(&output.stdout);
            let preprocessed = self.run(&["-E"], &file, false)?;
            ensure!(preprocessed.status.success(), "{} has no text", file.display());
            let preprocessed = String::from_utf8_lossy(&preprocessed.stdout);
            for fault in casts(&tree).into_iter().chain(rules::faults(&preprocessed)) {
                found.push_str(&fault);
                found.push('\n');
            }
        } else if found.is_empty() {
            found = format!("clang failed: {}", output.status);
        }
        std::fs::remove_file(&file)?;
        Ok(found)
    }

    fn run(&self, args: &[&str], file: &Path, with_shim: bool) -> Result<Output> {
        let mut command = Command::new(&self.python);
        let is_metal_4 = std::fs::read_to_string(file)?.contains("#define LILY_TILE 2");
        let standard = if is_metal_4 { SINCE_4 } else { BEFORE_4 };
        command.args(["-m", "ziglang", "clang"]).args(LANGUAGE).args(standard).args(args);
        if with_shim {
            command.arg("-include").arg(&self.shim);
        }
        command.arg(file).stdin(Stdio::null()).output().context("zig's clang could not be started")
    }

    /// Makes the mistake in the last variant of a file (the one with bf16 activations) and expects
    /// to hear of it.
    fn mistake(
        &self,
        texts: &[PathBuf],
        file: &str,
        from: &str,
        to: &str,
        expected: &str,
    ) -> Result<()> {
        let name = format!("-{file}.metal");
        let good = texts
            .iter()
            .rfind(|path| path.to_string_lossy().ends_with(&name))
            .with_context(|| format!("{file}.metal is not among the kernels"))?;
        let text = std::fs::read_to_string(good)?;
        let written = |text: &str| match text.strip_prefix("threadgroup float partial") {
            Some(rest) => format!("{ARRAY} float partial{rest}"),
            None => text.to_owned(),
        };
        let (from, to) = (written(from), written(to));
        ensure!(text.contains(&from), "{file}.metal no longer has `{from}`: adjust the mistake");
        let found = self.faults(good, &text.replacen(&from, &to, 1))?;
        ensure!(
            found.contains(expected),
            "`{to}` instead of `{from}` in {file}.metal was not refused as expected:\n{found}"
        );
        Ok(())
    }
}

/// Casts that carry a pointer to another address space, which Metal refuses and C++ does not.
fn casts(tree: &str) -> Vec<String> {
    let mut line = "?";
    let mut faults = Vec::new();
    for node in tree.lines() {
        // Places are given relative to the place before: columns alone, or `line:7:3`.
        if let Some((_, place)) = node.split_once("<line:") {
            line = place.split(':').next().unwrap_or(line);
        }
        if node.contains("<AddressSpaceConversion>") {
            faults.push(format!("a cast at about line {line} changes the address space: {node}"));
        }
    }
    faults
}

/// The text with a check of the threadgroup memory of each kernel after its last array.
fn with_memory_limit(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    for (idx, kernel) in text.split("kernel void ").enumerate() {
        if idx > 0 {
            out.push_str("kernel void ");
        }
        let mut sizes = Vec::new();
        let mut end = 0;
        for (at, _) in kernel.match_indices(ARRAY) {
            let Some(len) = kernel[at..].find(';') else { break };
            let declaration = &kernel[at..at + len];
            let name = declaration.split('[').next().and_then(|d| d.split_whitespace().last());
            sizes.extend(name.map(|name| format!("sizeof({name})")));
            end = at + len + 1;
        }
        out.push_str(&kernel[..end]);
        if !sizes.is_empty() {
            let sum = sizes.join(" + ");
            let check = format!("{sum} <= {THREADGROUP_BYTES_MAX}, \"more than 32 KiB\"");
            out.push_str(" static_assert(");
            out.push_str(&check);
            out.push_str(");");
        }
        out.push_str(&kernel[end..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threadgroup_memory_is_limited_by_kernel() {
        let text = "kernel void a(uint x) { LILY_THREADGROUP_ARRAY float t[4][5]; \
                    LILY_THREADGROUP_ARRAY float4 u[N]; f(); }\nkernel void b() { g(); }";
        let expected = "kernel void a(uint x) { LILY_THREADGROUP_ARRAY float t[4][5]; \
                        LILY_THREADGROUP_ARRAY float4 u[N]; \
                        static_assert(sizeof(t) + sizeof(u) <= 32768, \"more than 32 KiB\"); \
                        f(); }\nkernel void b() { g(); }";
        assert_eq!(with_memory_limit(text), expected);
    }

    #[test]
    fn casts_are_found_with_their_line() {
        let tree = "|-A <line:7:1, line:9:2>\n| `-CStyleCastExpr 0x1 <col:20, col:34> 'const float *' \
                    <AddressSpaceConversion>\n";
        let found = casts(tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a cast at about line 7 "), "{found:?}");
    }
}
