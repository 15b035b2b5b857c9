//! The kernels under a C++ compiler in which address spaces are real.

use crate::{lint, zig};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Mistakes that a Mac would refuse and that no other check here sees: a text of a kernel file,
/// what to put in its place, and words of the error.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    (
        "gemv",
        "device const float*   gain [[",
        "device float* gain2; const float* gain [[",
        "expected",
    ),
    ("gemv", "device float* y = y0;", "float* y = y0;", "address space"),
    (
        "gemv",
        "threadgroup float* flat = (threadgroup float*)xs;",
        "device float* flat = xs;",
        "device",
    ),
    (
        "gemv",
        "threadgroup const float4* x, uint cols",
        "device const float4* x, uint cols",
        "dot_rows",
    ),
    ("gemv", "    float scale = 1.0f;", "    float scale = 1.0f; gain[0] = scale;", "read-only"),
    ("norm", "= act(x[row + i] * scale * gain[i])", "= x[row + i] * scale * gain[i]", "conversion"),
    ("next_token", "seq[0] += p.n_tokens;", "p.n_tokens += 1;", "const"),
];

/// Checks every kernel in every variant, and that the check finds mistakes.
pub(crate) fn run() -> Result<()> {
    let bin = zig::bin().context(
        "zig's clang checks the kernels' address spaces; install ziglang and cargo-zigbuild from \
         PyPI into target/zig-venv",
    )?;
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
    for text in &texts {
        let output = check(&bin, text)?;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}:\n{words}", text.display());
    }
    for (file, from, to, expected) in MISTAKES {
        mistake(&bin, &texts, file, from, to, expected)?;
    }
    println!("{} kernel texts checked, {} deliberate mistakes found", texts.len(), MISTAKES.len());
    Ok(())
}

fn check(bin: &Path, text: &Path) -> Result<Output> {
    Command::new(bin.join("python"))
        .args(["-m", "ziglang", "clang", "-x", "c++", "-std=c++17", "-fsyntax-only"])
        .args(["-Wno-everything", "-Werror=implicit-float-conversion", "-include"])
        .arg(lint::workspace_root().join("kernels/shim/typecheck.h"))
        .arg(text)
        .stdin(Stdio::null())
        .output()
        .context("zig's clang could not be started")
}

/// Makes the mistake in the last variant of a file (the one with bf16 activations) and expects to
/// hear of it.
fn mistake(
    bin: &Path,
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
    ensure!(text.contains(from), "{file}.metal no longer has `{from}`: adjust the mistake");
    let bad = good.with_extension("mistake");
    std::fs::write(&bad, text.replacen(from, to, 1))?;
    let output = check(bin, &bad)?;
    std::fs::remove_file(&bad)?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && words.contains(expected),
        "`{to}` instead of `{from}` in {file}.metal was not refused as expected:\n{words}"
    );
    Ok(())
}
