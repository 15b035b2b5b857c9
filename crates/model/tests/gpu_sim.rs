//! The differential table in the simulator: every kernel against plain loops.

#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "figures for whoever reads the log")]

use lily_device::Device;
use lily_device::sim::{SimDevice, SimOptions};
use lily_model::gpu::checks;
use std::path::Path;
use std::sync::Arc;

fn sim(checked: bool, seed: u64) -> Arc<dyn Device> {
    let cache_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-kernels");
    let options = SimOptions { checked, seed, threads: 2, ..SimOptions::new(cache_dir) };
    Arc::new(SimDevice::new(options).expect("a C++ compiler is installed"))
}

fn run_table(device: &Arc<dyn Device>, seed: u64, n: u64) {
    let mut failures = Vec::new();
    for check in checks::table() {
        let cases = match checks::run(&check, device, seed, n) {
            Ok(cases) => cases,
            Err(error) => {
                failures.push(format!("{}: {error}", check.name));
                continue;
            }
        };
        for case in cases.iter().filter(|case| !case.passed()) {
            let (what, error, tolerance) = (&case.what, case.error, case.tolerance);
            let name = check.name;
            failures.push(format!("{name}: {what}: off by {error:e}, more than {tolerance:e}"));
        }
        let worst = cases.iter().map(|c| c.error / c.tolerance.max(1e-300)).fold(0.0, f64::max);
        println!("{:<45} {n} cases, at most {worst:.2} of the tolerance", check.name);
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn kernels_agree_with_plain_loops() {
    run_table(&sim(false, 0), 1, 8);
}

/// Every access, barrier and SIMD operation watched, in shuffled orders.
#[test]
fn kernels_touch_only_what_they_may() {
    for seed in 1..=2 {
        run_table(&sim(true, seed), 100 + seed, 2);
    }
}
