//! Development tasks: `cargo xtask ci` runs what CI runs, `cargo xtask lint` checks the structure,
//! `cargo xtask nvrtc` compiles the kernels for NVIDIA.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "tasks talk to a developer")]

mod ci;
mod lint;
mod nvrtc;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <ci|lint|nvrtc>

  ci     everything that CI runs, in order, stopping at the first failure
  lint   the import graph of the crates, file sizes, left-over markers
  nvrtc  every kernel compiled for NVIDIA GPUs; fetches NVIDIA's compiler once";

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let result = match task.as_deref() {
        Some("ci") => ci::run(),
        Some("lint") => lint::run(),
        Some("nvrtc") => nvrtc::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
