//! What CI runs, cheap checks first.

use crate::{lint, mac_link};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};
use std::time::Instant;

const DARWIN: &str = "aarch64-apple-darwin";
const LILY: &str = "target/release/lily";
const SCRIPTED: &str = "target/release/examples/scripted";

/// Steps whose tool comes from outside and may be unreachable on some day. Nothing else may be
/// left out.
struct Gap(&'static str);

/// Runs every step and stops at the first failure.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    let mut gaps: Vec<Gap> = Vec::new();

    step("formatting", &["cargo", "fmt", "--all", "--check"])?;
    step("structure", &["cargo", "run", "--quiet", "--package", "xtask", "--", "lint"])?;
    step("lints", &["cargo", "clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    if darwin_is_installed() {
        step(
            "types and lints for macOS",
            &["cargo", "clippy", "--workspace", "--target", DARWIN, "--", "-D", "warnings"],
        )?;
    } else {
        gaps.push(Gap("the aarch64-apple-darwin target could not be fetched: not type-checked"));
    }
    step(
        "kernels with address spaces",
        &["cargo", "run", "--quiet", "--package", "xtask", "--", "typecheck"],
    )?;
    step("unit and property tests", &["cargo", "test", "--workspace", "--all-targets"])?;
    // A figure to look at; the test that bounds it has just passed.
    let bf16 = ["cargo", "test", "--package", "lily-model", "--test", "gpu_model", "bf16", "--"];
    step("bf16 activations in the simulator", &[&bf16[..], &["--nocapture"]].concat())?;
    step("kernels for NVIDIA", &["cargo", "run", "--quiet", "--package", "xtask", "--", "nvrtc"])?;
    step("documentation tests", &["cargo", "test", "--workspace", "--doc"])?;
    step(
        "documentation",
        &["cargo", "doc", "--workspace", "--no-deps", "--document-private-items"],
    )?;
    step("release build", &["cargo", "build", "--release"])?;
    if !darwin_is_installed() {
        gaps.push(Gap("the aarch64-apple-darwin target could not be fetched: not linked"));
    } else if mac_link::available() {
        let link = ["cargo", "run", "--quiet", "--package", "xtask", "--", "mac-link"];
        step("executable for macOS", &link)?;
    } else {
        gaps.push(Gap("zig could not be fetched: the macOS executable was not linked"));
    }
    step("user checks", &["python3", "tests/clients/user_checks.py"])?;
    step(
        "template renderer",
        &["cargo", "build", "--package", "lily-text", "--example", "render"],
    )?;
    step(
        "template agreement with jinja2",
        &[
            "python3",
            "tests/clients/template_agreement.py",
            "--render",
            "target/debug/examples/render",
        ],
    )?;
    step("requests made from the API's document", &["python3", "tests/api/run.py"])?;
    step(
        "server for scripts",
        &["cargo", "build", "--release", "--package", "lily-server", "--example", "scripted"],
    )?;
    step("cost of streaming", &["python3", "tests/api/load.py", "--server", SCRIPTED])?;
    step(
        "client libraries and agents",
        &["python3", "tests/clients/run.py", "--agents", "--scripted", SCRIPTED],
    )?;
    step("chat page in a browser", &["python3", "tests/page/run.py", "--binary", LILY])?;

    for Gap(gap) in &gaps {
        println!("GAP: {gap}");
    }
    println!("ci: every step passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, command: &[&str]) -> Result<()> {
    println!("== {name}: {}", command.join(" "));
    let start = Instant::now();
    let status = Command::new(command[0])
        .args(&command[1..])
        .current_dir(lint::workspace_root())
        .env("RUSTDOCFLAGS", "-D warnings")
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("`{}` could not be started; is it installed?", command[0]))?;
    ensure!(status.success(), "step `{name}` failed: {}", command.join(" "));
    println!("== {name}: ok in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Adds the target if it is missing; `false` if that is not possible today.
fn darwin_is_installed() -> bool {
    Command::new("rustup")
        .args(["target", "add", DARWIN])
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
