//! Attention and delta rule of many tokens in the simulator, against plain loops.

#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "how far from the tolerance, for who looks")]

use lily_device::Device;
use lily_device::sim::{SimDevice, SimOptions};
use lily_model::gpu::checks;
use std::path::Path;
use std::sync::Arc;

fn run(checked: bool, name: &str, seed: u64, n: u64) {
    let cache_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-kernels");
    let options = SimOptions { checked, seed, threads: 2, ..SimOptions::new(cache_dir) };
    let device: Arc<dyn Device> = Arc::new(SimDevice::new(options).expect("a C++ compiler"));
    let table = checks::table();
    let check = table.iter().find(|check| check.name == name).expect("a check of that name");
    let cases = checks::run(check, &device, seed, n).expect("the simulator finds no fault");
    for case in &cases {
        println!("{:.3} {:e} {}", case.error / case.tolerance, case.error, case.what);
    }
    let wrong: Vec<_> = cases.iter().filter(|case| !case.passed()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn attention_agrees() {
    run(false, "attention_prefill", 100, 8);
}

#[test]
fn attention_touches_what_it_may() {
    run(true, "attention_prefill", 7, 3);
}

#[test]
fn delta_rule_agrees() {
    run(false, "delta_prefill", 100, 10);
}

#[test]
fn delta_rule_touches_what_it_may() {
    run(true, "delta_prefill", 7, 3);
}
