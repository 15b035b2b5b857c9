//! Zig from `PyPI`: its clang checks the kernels, its linker makes the macOS executable.

use crate::lint;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Fixed, so that a new release fails nobody's build.
const PACKAGES: &[&str] = &["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];

/// The `bin` folder of a virtual environment that has both, made if it is missing.
pub(crate) fn bin() -> Result<PathBuf> {
    let dir = lint::workspace_root().join("target/zig-venv");
    let bin = dir.join("bin");
    if bin.join("cargo-zigbuild").exists() && bin.join("python-zig").exists() {
        return Ok(bin);
    }
    // Whatever an interrupted run left is in the way.
    let _ = std::fs::remove_dir_all(&dir);
    let venv = dir.display().to_string();
    run("python3", &["-m", "venv", &venv])?;
    let python = bin.join("python").display().to_string();
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(&python, &[&install[..], PACKAGES].concat())
        .with_context(|| format!("{} could not be fetched from PyPI", PACKAGES.join(" and ")))?;
    Ok(bin)
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} could not be started; is it installed?"))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(())
}
