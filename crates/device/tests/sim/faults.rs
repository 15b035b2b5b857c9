//! Each kind of mistake is found, and named; the same kernel without the mistake runs in any order.

use crate::support::{device_with, kernel, read_f32, run, upload};
use lily_device::sim::SimDevice;
use lily_device::{Buffer, Command, Commands, Device, DeviceError, Grid, Kernel, Slice};

const SEEDS: u64 = 12;

fn broken(device: &SimDevice, entry: &'static str, bad: bool) -> Kernel {
    let text = include_str!("../kernels/broken.metal");
    let text = format!("#define BAD {}\n#line 1 \"broken.metal\"\n{text}", u32::from(bad));
    kernel(device, "broken", entry, &text)
}

/// The message, which must contain all of `expected`.
#[track_caller]
fn check_fault(result: Result<(), DeviceError>, kernel: &str, expected: &[&str]) {
    match result.expect_err("the kernel is wrong") {
        DeviceError::Fault { kernel: found, fault, .. } => {
            assert_eq!(found, kernel, "{fault}");
            for part in expected {
                assert!(fault.contains(part), "expected `{part}` in: {fault}");
            }
        }
        other => panic!("{other}"),
    }
}

/// Runs the wrong kernel and the right one in several orders; `outputs` buffers of floats.
#[track_caller]
fn check(entry: &'static str, groups: usize, threads: u32, outputs: usize, expected: &[&str]) {
    for seed in 0..SEEDS {
        let device = device_with(true, seed, 1 + usize::from(seed % 4 == 3));
        let buffers: Vec<Slice> = (0..outputs)
            .map(|n| {
                let values = vec![0.0f32; groups * threads as usize];
                // The first output starts undefined, as it does after `alloc`.
                let buffer = upload(&device, "output", &values);
                if n == 0 {
                    device.alloc(values.len() * 4, "output").expect("memory")
                } else {
                    buffer
                }
                .all()
            })
            .collect();
        let grid = Grid::linear(groups, threads);
        let result = run(&device, &broken(&device, entry, true), grid, &buffers, &[]);
        check_fault(result, entry, expected);
        run(&device, &broken(&device, entry, false), grid, &buffers, &[])
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// A buffer of 256 numbers, of which the middle 64 are bound.
fn middle(device: &SimDevice) -> (Buffer, Slice) {
    let buffer = upload(device, "buffer", &[1.0f32; 256]);
    let slice = buffer.slice(256..512);
    (buffer, slice)
}

#[track_caller]
fn check_bounds(entry: &'static str, at: i32, expected: &[&str]) {
    for seed in 0..SEEDS {
        let device = device_with(true, seed, 1);
        let (x, y) = (middle(&device).1, middle(&device).1);
        let kernel = broken(&device, entry, true);
        let result = |at: i32| {
            let params = [("at", at.cast_unsigned())];
            let slices = [x.clone(), y.clone()];
            let n = kernel.signature.buffers().count();
            run(&device, &kernel, Grid::linear(1, 64), &slices[2 - n..], &params)
        };
        check_fault(result(at), entry, expected);
        result(0).expect("inside");
    }
}

#[test]
fn accesses_stay_inside_their_slices() {
    let slice = "a slice of 256 bytes";
    check_bounds(
        "load",
        1,
        &["out of bounds", "thread 63 reads 4 bytes", "offset 256 of x", slice],
    );
    check_bounds("load", -1, &["thread 0 reads", "offset -4 of x", slice, "at broken.metal:11"]);
    check_bounds("store", 1, &["thread 63 writes 4 bytes", "offset 256 of y", slice]);
    check_bounds("store", -1, &["thread 0 writes", "offset -4 of y", slice]);
    // Outside of the buffer as well, before and after.
    check_bounds("load", 1000, &["out of bounds: thread", "reads 4 bytes"]);
    check_bounds("store", -1000, &["out of bounds: thread", "writes 4 bytes"]);
    check_bounds("store_halves", 65, &["writes 2 bytes", "of y", slice]);
    check_bounds("store_halves", -1, &["thread 0 writes 2 bytes at offset -2 of y", slice]);
}

#[test]
fn a_vector_is_aligned_and_inside() {
    // clang copies vectors as bytes: it does not say that they should be aligned, and before
    // version 16 it does not report them at all.
    if device_with(true, 0, 1).info().version.contains("clang") {
        return;
    }
    check_bounds("load_vector", 64, &["out of bounds", "reads 16 bytes at offset 256 of x"]);
    check_bounds("load_vector", 1, &["misaligned", "reads 16 bytes at offset 4 of x"]);
}

#[test]
fn a_const_slice_is_not_written() {
    for seed in 0..SEEDS {
        let device = device_with(true, seed, 1);
        let slices = [middle(&device).1, middle(&device).1];
        let grid = Grid::linear(1, 64);
        let result = run(&device, &broken(&device, "write_const", true), grid, &slices, &[]);
        let expected = ["thread 40 writes 4 bytes at offset 12 of x", "device const"];
        check_fault(result, "write_const", &expected);
        run(&device, &broken(&device, "write_const", false), grid, &slices, &[]).expect("good");
    }
}

#[test]
fn threadgroup_arrays_are_not_overrun() {
    let array = "a threadgroup array of 256 bytes";
    check_bounds("overrun", 1, &["thread 63 writes 4 bytes at offset 256 of a", array]);
    check_bounds("overrun", -1, &["thread 0 writes 4 bytes at offset -4 of a", array]);
}

#[test]
fn threadgroup_memory_ends_at_32_kib() {
    let expected = ["threadgroup array large of 32516 bytes, after 256", "32768 bytes"];
    check("too_much", 1, 64, 1, &expected);
    let device = device_with(false, 0, 1);
    let slices = [upload(&device, "y", &[0.0f32; 64]).all()];
    let result =
        run(&device, &broken(&device, "too_much", true), Grid::linear(1, 64), &slices, &[]);
    check_fault(result, "too_much", &expected);
}

#[test]
fn all_threads_arrive_at_a_barrier() {
    let expected = ["100 of 128 threads wait at the threadgroup barrier", "28 have finished"];
    check("barrier_in_branch", 1, 128, 1, &expected);
    check("two_barriers", 1, 128, 1, &["divergence: threads wait at the barriers of lines"]);
}

#[test]
fn all_lanes_arrive_at_a_simd_operation() {
    check("sum_in_branch", 1, 64, 1, &["16 of 32 lanes", "SIMD operation", "16 have finished"]);
    check("sum_or_barrier", 1, 64, 1, &["divergence"]);
    check("two_sums", 1, 64, 1, &["divergence", "SIMD operations of lines"]);
}

#[test]
fn unchecked_modules_see_divergence_too() {
    for entry in ["barrier_in_branch", "two_barriers", "sum_in_branch", "sum_or_barrier"] {
        for seed in 0..SEEDS {
            let device = device_with(false, seed, 1);
            let slices = [upload(&device, "y", &[0.0f32; 128]).all()];
            let grid = Grid::linear(1, 128);
            let result = run(&device, &broken(&device, entry, true), grid, &slices, &[]);
            check_fault(result, entry, &["divergence"]);
            run(&device, &broken(&device, entry, false), grid, &slices, &[]).expect("good");
            assert!(read_f32(&device, &slices[0].buffer).iter().all(|y| *y > 0.0));
        }
    }
}

#[test]
fn what_nobody_wrote_is_not_read() {
    check("unwritten_threadgroup", 1, 128, 1, &["thread 50 reads", "offset 308 of t that nobody"]);
    check(
        "unwritten_halves",
        1,
        128,
        1,
        &["thread 50 reads 2 bytes", "offset 154 of t that nobody"],
    );
    check("leftover", 2, 128, 1, &["of t that nobody has written", "threadgroup [1, 0, 0]"]);
}

#[test]
fn device_memory_starts_undefined() {
    let device = device_with(true, 0, 1);
    let x = device.alloc(256, "x").expect("memory");
    let y = device.alloc(256, "y").expect("memory");
    let copy = broken(&device, "copy", true);
    let attempt = || run(&device, &copy, Grid::linear(1, 64), &[x.all(), y.all()], &[]);
    let expected = ["thread 0 reads 4 bytes at offset 0 of x that nobody has written"];
    check_fault(attempt(), "copy", &expected);
    // All but one byte, by different means.
    device.write(&x.all(), &[1; 100]).expect("a write");
    let mut commands = Commands::new();
    commands.zero(x.slice(101..200));
    commands.copy(x.slice(0..56), x.slice(200..256));
    device.submit(&commands).expect("inside");
    let expected = ["thread 25 reads 4 bytes at offset 100 of x that nobody has written"];
    check_fault(attempt(), "copy", &expected);
    // Copies spread what is undefined.
    let mut commands = Commands::new();
    commands.copy(x.slice(99..102), y.slice(98..101));
    commands.copy(y.slice(98..101), x.slice(0..3));
    device.submit(&commands).expect("inside");
    let expected = ["thread 0 reads 4 bytes at offset 0 of x that nobody has written"];
    check_fault(attempt(), "copy", &expected);
    device.write(&x.slice(0..4), &[1; 4]).expect("a write");
    device.write(&x.slice(100..101), &[1]).expect("a write");
    attempt().expect("all is written");
    // What a kernel wrote is defined.
    run(&device, &copy, Grid::linear(1, 64), &[y.all(), x.all()], &[]).expect("all is written");
}

#[test]
fn threads_meet_between_accesses() {
    check("race_read", 1, 128, 1, &["race: thread", "of t, which thread", "without a barrier"]);
    check("race_write", 1, 128, 1, &["race: thread", "of t, which thread"]);
    check("race_both_write", 1, 128, 1, &["race: thread", "writes offset", "wrote, without"]);
    check("race_lanes", 1, 128, 1, &["race: thread", "of t, which thread"]);
    check("race_device", 1, 128, 2, &["race: thread", "of z, which thread"]);
}

#[test]
fn threadgroups_do_not_share_bytes() {
    check("race_groups", 4, 64, 1, &["race between threadgroups", "of y", "wrote"]);
}

#[test]
fn threadgroups_do_not_read_their_neighbours() {
    for seed in 0..SEEDS {
        let device = device_with(true, seed, 1);
        let slices = [upload(&device, "y", &[0u16; 512]).all()];
        let grid = Grid::linear(8, 64);
        // The same threadgroup is caught too: its lanes read what other lanes write.
        let result = run(&device, &broken(&device, "race_halo", true), grid, &slices, &[]);
        check_fault(result, "race_halo", &["race", "of y"]);
        run(&device, &broken(&device, "race_halo", false), grid, &slices, &[]).expect("good");
    }
}

fn dispatch(kernel: &Kernel, buffers: &[Slice], params: &[u32]) -> Command {
    Command::Dispatch {
        kernel: kernel.clone(),
        buffers: buffers.to_vec(),
        params: params.to_vec(),
        grid: Grid::linear(1, 64),
    }
}

#[test]
fn dispatches_that_share_bytes_need_a_barrier() {
    for seed in 0..SEEDS {
        let device = device_with(true, seed, 1);
        let y = upload(&device, "y", &[0.0f32; 256]);
        let other = upload(&device, "other", &[0.0f32; 64]);
        let kernel = |entry| broken(&device, entry, true);
        let fill = dispatch(&kernel("fill"), &[y.slice(0..256)], &[]);
        let add = |at| dispatch(&kernel("add"), &[y.all()], &[at]);
        let add_from = dispatch(&kernel("add_from"), &[y.slice(128..384), other.all()], &[]);
        let submit = |list: Vec<Command>| device.submit(&Commands::from_list(list)).map(drop);

        // Whichever comes first, the second is at fault and the first is named.
        for second in [add(0), add(63), add_from.clone()] {
            let error = submit(vec![fill.clone(), second.clone()]).expect_err("no barrier");
            let message = error.to_string();
            assert!(message.contains("no barrier between dispatches"), "{message}");
            assert!(message.contains("fill") && message.contains("add"), "{message}");
            submit(vec![fill.clone(), Command::Barrier, second]).expect("a barrier");
        }
        // One slice, but not one byte in common.
        submit(vec![fill.clone(), add(64)]).expect("apart");
        // A submission ends with a barrier.
        submit(vec![fill.clone()]).and_then(|()| submit(vec![add(0)])).expect("apart");

        let zero = Command::Zero { dst: y.slice(0..4) };
        let copy = Command::Copy { src: y.slice(0..256), dst: other.all() };
        for list in [[fill.clone(), zero.clone()], [copy.clone(), fill.clone()], [zero, copy]] {
            let error = submit(list.to_vec()).expect_err("no barrier").to_string();
            assert!(error.contains("no barrier between"), "{error}");
            let [first, second] = list;
            submit(vec![first, Command::Barrier, second]).expect("a barrier");
        }
    }
}
