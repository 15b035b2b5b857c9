//! Development tasks: `cargo xtask ci` runs what CI runs, `cargo xtask lint` checks the structure,
//! the others compile the kernels and the macOS executable on a machine that can run neither.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "tasks talk to a developer")]

mod ci;
mod clients;
mod lint;
mod mac_link;
mod nvrtc;
mod typecheck;
mod zig;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <ci|lint|clients|typecheck|nvrtc|mac-link>

  ci     everything that CI runs, in order, stopping at the first failure
  lint   the import graph of the crates, file sizes, left-over markers
  clients  real clients against the server; `--only NAME,…`, `--agents`
  typecheck  every kernel under a compiler with address spaces; fetches zig once
  nvrtc  every kernel compiled for NVIDIA GPUs; fetches NVIDIA's compiler once
  mac-link  the executable for Apple silicon, linked here; fetches zig once";

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let result = match task.as_deref() {
        Some("ci") => ci::run(),
        Some("lint") => lint::run(),
        Some("clients") => clients::run(std::env::args().skip(2)),
        Some("typecheck") => typecheck::run(),
        Some("nvrtc") => nvrtc::run(),
        Some("mac-link") => mac_link::run(),
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
