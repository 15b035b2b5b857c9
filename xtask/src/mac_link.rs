//! Links the whole `lily` for Apple silicon on another system: zig as linker, and our own lists of
//! the symbols of the system libraries (`mac-stubs/`). It cannot be run here.

use crate::{lint, zig};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

const TARGET: &str = "aarch64-apple-darwin";

/// The linker can be fetched from `PyPI`; if not, that is one of the gaps that CI tolerates by name.
pub(crate) fn available() -> bool {
    zig::bin().inspect_err(|error| println!("{error:#}")).is_ok()
}

/// Builds `target/aarch64-apple-darwin/mac/lily` and looks at what it is.
pub(crate) fn run() -> Result<()> {
    let bin = zig::bin()?;
    let root = lint::workspace_root();
    let stubs = root.join("xtask/mac-stubs");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)))?;
    let flags = format!(
        "-L {} -C link-arg=-F{}",
        stubs.join("usr/lib").display(),
        stubs.join("F").display()
    );
    let status = Command::new(env!("CARGO"))
        .args(["zigbuild", "--profile", "mac", "--target", TARGET, "--package", "lily"])
        .current_dir(&root)
        .env("PATH", path)
        .env("RUSTFLAGS", flags)
        .stdin(Stdio::null())
        .status()
        .context("cargo could not be started")?;
    ensure!(
        status.success(),
        "lily does not link for {TARGET}; a symbol that is missing belongs into xtask/mac-stubs \
         after a look into Apple's documentation"
    );
    let executable = root.join("target").join(TARGET).join("mac/lily");
    let bytes = std::fs::read(&executable)
        .with_context(|| format!("{} could not be read", executable.display()))?;
    let libraries = libraries(&bytes).context("this is no Mach-O executable for arm64")?;
    ensure!(
        libraries.iter().any(|name| name.contains("Metal.framework")),
        "the executable does not load Metal but {libraries:?}"
    );
    println!(
        "{}: Mach-O arm64 executable, {} bytes, loads {}",
        executable.display(),
        bytes.len(),
        libraries.join(", ")
    );
    Ok(())
}

/// The dynamic libraries in the load commands of a 64-bit arm64 Mach-O executable.
fn libraries(bytes: &[u8]) -> Option<Vec<String>> {
    const MAGIC_64: u32 = 0xFEED_FACF;
    const CPU_ARM64: u32 = 0x0100_000C;
    const EXECUTABLE: u32 = 2;
    const LOAD_DYLIB: u32 = 0xC;
    const HEADER_BYTES: usize = 32;
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if word(0)? != MAGIC_64 || word(4)? != CPU_ARM64 || word(12)? != EXECUTABLE {
        return None;
    }
    let mut at = HEADER_BYTES;
    let mut names = Vec::new();
    for _ in 0..word(16)? {
        let (command, len) = (word(at)?, usize::try_from(word(at + 4)?).ok()?);
        if command == LOAD_DYLIB {
            let name = at + usize::try_from(word(at + 8)?).ok()?;
            let rest = bytes.get(name..at + len)?;
            let end = rest.iter().position(|byte| *byte == 0)?;
            names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        }
        at += len;
    }
    Some(names)
}
