//! Compiles the kernels for NVIDIA GPUs, which needs NVIDIA's compiler but no GPU.

use crate::lint;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The compiler library, as a Python package. Fixed, so that a new release fails nobody's build.
const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";

/// The oldest GPUs that Lily runs on, and the ones it is measured on.
const ARCHS: &[&str] = &["sm_80", "sm_90"];

/// Fetches the compiler once, then compiles every kernel.
pub(crate) fn run() -> Result<()> {
    let library = library()?;
    println!("NVRTC: {}", library.display());
    // The vocabulary on its own first: what it lacks fails everywhere else.
    let vocabulary = ["lily-device", "--example", "cuda_compile", "--"];
    let product = ["lily-model", "--example", "kernels", "--", "cuda"];
    for program in [&vocabulary[..], &product[..]] {
        let status = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--package"])
            .args(program)
            .args(ARCHS)
            .current_dir(lint::workspace_root())
            .env("LILY_NVRTC", &library)
            .stdin(Stdio::null())
            .status()
            .context("cargo could not be started")?;
        ensure!(status.success(), "the kernels do not compile for {}", ARCHS.join(" and "));
    }
    Ok(())
}

/// The library named by `LILY_NVRTC`, or else the one in a virtual environment below `target`,
/// which is made if it is missing.
fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LILY_NVRTC") {
        return Ok(path.into());
    }
    let dir = lint::workspace_root().join("target").join(PACKAGE.replace("==", "-"));
    if let Some(path) = find(&dir) {
        return Ok(path);
    }
    // Whatever an interrupted run left is in the way.
    let _ = std::fs::remove_dir_all(&dir);
    let python = if cfg!(windows) { "python" } else { "python3" };
    output(python, &[OsStr::new("-m"), OsStr::new("venv"), dir.as_os_str()])?;
    let bin = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE];
    output(dir.join(bin), &install.map(OsStr::new)).with_context(|| {
        format!(
            "{PACKAGE} could not be fetched, and without it no kernel is compiled for NVIDIA; \
             get NVRTC in another way (the CUDA toolkit has it) and set LILY_NVRTC to the library"
        )
    })?;
    find(&dir).with_context(|| format!("{PACKAGE} holds no library that is known here"))
}

/// The library below `dir`, wherever the package keeps it.
fn find(dir: &Path) -> Option<PathBuf> {
    let prefix = if cfg!(windows) { "nvrtc64_" } else { "libnvrtc.so" };
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        // A link to a folder, such as lib64, leads to what is seen anyway.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if let Some(found) = find(&path) {
                return Some(found);
            }
        } else if name.to_string_lossy().starts_with(prefix)
            && !name.to_string_lossy().contains(".alt")
        {
            return Some(path);
        }
    }
    None
}

fn output(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Result<()> {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} could not be started", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{}", String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
