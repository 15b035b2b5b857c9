//! Records the commit for `--version`, if this is a git checkout.

use std::path::Path;
use std::process::Command;

fn main() {
    let git = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git");
    // A path that is not there would make every build run this again.
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["HEAD", "logs/HEAD"] {
        let path = git.join(name);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let output = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output();
    let commit = output
        .ok()
        .filter(|output| git.exists() && output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map(|commit| format!(" ({})", commit.trim()))
        .unwrap_or_default();
    println!("cargo:rustc-env=LILY_COMMIT={commit}");
}
