//! Builds what the suites of real clients need, and runs them: see docs/clients.md.

use crate::lint;
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// Debug builds: fast enough for the demo model, and there already after the tests.
const BUILDS: [&[&str]; 2] = [
    &["build", "--quiet", "--package", "lily", "--bin", "lily"],
    &["build", "--quiet", "--package", "lily-server", "--example", "scripted"],
];

/// Hands its arguments to `tests/clients/run.py`.
pub(crate) fn run(arguments: impl Iterator<Item = String>) -> Result<()> {
    for build in BUILDS {
        let name = format!("cargo {}", build.join(" "));
        finish(&name, Command::new(env!("CARGO")).args(build))?;
    }
    let script = "tests/clients/run.py";
    let mut clients = Command::new("python3");
    clients.args([script, "--binary", "target/debug/lily"]).args(arguments);
    finish(script, &mut clients)
}

fn finish(name: &str, command: &mut Command) -> Result<()> {
    let status = command
        .current_dir(lint::workspace_root())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("`{name}` could not be started; is it installed?"))?;
    ensure!(status.success(), "`{name}` failed; its output is above");
    Ok(())
}
