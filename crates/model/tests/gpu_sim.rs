//! The differential table in the simulator: every kernel against plain loops.

#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "figures for whoever reads the log")]

use lily_device::sim::{SimDevice, SimOptions};
use lily_device::{Device, TileBody};
use lily_model::gpu::checks;
use std::path::Path;
use std::sync::Arc;

fn sim(checked: bool, seed: u64, tile: TileBody) -> Arc<dyn Device> {
    let cache_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-kernels");
    let options = SimOptions { checked, seed, threads: 2, tile, ..SimOptions::new(cache_dir) };
    Arc::new(SimDevice::new(options).expect("a C++ compiler is installed"))
}

fn run_table(device: &Arc<dyn Device>, seed: u64, n: u64, of: impl Fn(&str) -> bool) {
    let mut failures = Vec::new();
    let mut n_checks = 0;
    for check in checks::table().into_iter().filter(|check| of(check.name)) {
        n_checks += 1;
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
    assert!(n_checks > 0, "no check has this name");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn kernels_agree_with_plain_loops() {
    run_table(&sim(false, 0, TileBody::Simdgroup), 1, 8, |_| true);
}

/// Every access, barrier and SIMD operation watched, in shuffled orders.
#[test]
fn kernels_touch_only_what_they_may() {
    for seed in 1..=2 {
        run_table(&sim(true, seed, TileBody::Simdgroup), 100 + seed, 2, |_| true);
    }
}

/// Of the second body of tile.h, with bounds, contents and order of every access watched.
#[test]
fn tensor_operations_agree_with_plain_loops() {
    let of_tiles = |name: &str| name.starts_with("gemm") || name == "moe_prefill";
    run_table(&sim(false, 0, TileBody::Tensor), 1, 8, of_tiles);
    run_table(&sim(true, 1, TileBody::Tensor), 101, 2, of_tiles);
}

/// Files that keep operands in registers go on with the first body.
#[test]
fn panels_do_not_use_tensor_operations() {
    let of_panels = |name: &str| name == "attention_prefill" || name == "delta_prefill";
    run_table(&sim(false, 0, TileBody::Tensor), 1, 2, of_panels);
}
