//! Tries a GPU: right results of small kernels, speed of memory and launches, and errors that say
//! what happened. For a new machine, a new driver or a change of the CUDA device.
//!
//! `cargo run --release -p lily-device --example cuda_probe`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers")]
#![allow(clippy::cast_possible_truncation, reason = "its sizes are constants")]

#[cfg(not(target_os = "macos"))]
mod kernels;
#[cfg(not(target_os = "macos"))]
mod machine;
#[cfg(not(target_os = "macos"))]
mod support;

use std::process::ExitCode;

#[cfg(target_os = "macos")]
fn main() -> ExitCode {
    eprintln!("there is no CUDA for macOS");
    ExitCode::FAILURE
}

#[cfg(not(target_os = "macos"))]
fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        None => run(),
        // A fault ends a process's use of the GPU, so each has one of its own.
        Some("fault") => machine::fault(false),
        Some("fault-checked") => machine::fault(true),
        Some(other) => Err(format!("there is no mode {other}").into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "macos"))]
fn run() -> support::Outcome {
    let device = support::open(false)?;
    kernels::lanes(&device)?;
    kernels::convert(&device)?;
    kernels::count(&device)?;
    kernels::graph(&device)?;
    kernels::qmv(&device)?;
    kernels::gdn_step(&device)?;
    machine::compile()?;
    machine::launches(&device)?;
    machine::copies(&device)?;
    machine::memory(&device)?;
    machine::faults()?;
    println!("cuda_probe: everything as it should be");
    Ok(())
}
