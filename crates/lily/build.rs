//! Records the commit for `--version`, if this is a git checkout.

use std::process::Command;

fn main() {
    let output = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output();
    let commit = output
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map(|commit| format!(" ({})", commit.trim()))
        .unwrap_or_default();
    println!("cargo:rustc-env=LILY_COMMIT={commit}");
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/logs/HEAD");
}
