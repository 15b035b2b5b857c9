//! What operations cost: `cargo test -p lily-device --test sim speed -- --ignored --nocapture`.

use crate::support::{device_with, kernel, run, upload};
use lily_device::Grid;
use std::time::Instant;

#[test]
#[ignore = "measures, and prints figures"]
fn speed() {
    for (checked, seed) in [(false, 0), (false, 1), (true, 0)] {
        let device = device_with(checked, seed, 1);
        let y = upload(&device, "y", &vec![0.0f32; 64 * 512]);
        for (entry, n, per_group) in [
            ("sums", 1000, 256),
            ("barriers", 1000, 256),
            ("matrices", 1000, 8),
            ("own", 1000, 256),
            ("shared", 1000, 256),
            ("nothing", 1, 1),
        ] {
            let kernel = kernel(&device, "speed", entry, include_str!("../kernels/speed.metal"));
            let best = (0..5).map(|_| {
                let start = Instant::now();
                run(&device, &kernel, Grid::linear(32, 256), &[y.all()], &[("n", n)]).unwrap();
                start.elapsed()
            });
            let best = best.min().unwrap().as_secs_f64() * 1e9;
            let each = best / f64::from(n * per_group * 32);
            println!("checked {checked}, seed {seed}: {entry} {each:.1} ns ({:.2} ms)", best / 1e6);
        }
    }
    for (checked, threads) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let best = (0..5).map(|_| crate::real::qmv(2048, 2048, checked, 0, threads)).min();
        println!("checked {checked}, {threads} threads: qmv 2048x2048 {best:?}");
    }
}
