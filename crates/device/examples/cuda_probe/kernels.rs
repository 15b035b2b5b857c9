//! Small kernels against plain loops.

use crate::support::{
    Outcome, Random, bf16_to_f32, distance, download, ensure, f16_to_f64, f32_to_bf16, kernel,
    slices, time_us, upload,
};
use lily_device::cuda::CudaDevice;
use lily_device::{Commands, Device, Grid};

const DIALECT: &str = include_str!("../../tests/kernels/dialect.metal");
const QMV: &str = include_str!("../../tests/kernels/qmv.metal");
const GDN_STEP: &str = include_str!("../../tests/kernels/gdn_step.metal");

/// Operations of a SIMD group.
pub(crate) fn lanes(device: &CudaDevice) -> Outcome {
    let mut random = Random(1);
    let x: Vec<f32> = (0..64).map(|_| bf16_to_f32(f32_to_bf16(random.float()))).collect();
    let n: Vec<u32> = (0..64).map(|_| random.bits() % 1000).collect();
    let lanes = kernel(device, "dialect", "lanes", DIALECT)?;
    let (x_buffer, n_buffer) = (upload(device, &x, "x")?, upload(device, &n, "n")?);
    let fy = device.alloc(64 * 8 * 4, "fy")?;
    let uy = device.alloc(64 * 8 * 4, "uy")?;
    let mut commands = Commands::new();
    let buffers = slices(&[&x_buffer, &n_buffer, &fy, &uy]);
    commands.dispatch(&lanes, Grid::linear(1, 64), &buffers, &[]);
    device.submit(&commands)?;
    let (fy, uy) = (download::<f32>(device, &fy)?, download::<u32>(device, &uy)?);
    for tid in 0..64 {
        let (group, lane) = (tid / 32 * 32, tid % 32);
        let (xs, ns) = (&x[group..group + 32], &n[group..group + 32]);
        let exact = [
            fy[tid * 8 + 1] - xs.iter().copied().fold(f32::MIN, f32::max),
            fy[tid * 8 + 2] - xs.iter().copied().fold(f32::MAX, f32::min),
            fy[tid * 8 + 3] - xs[(lane * 5 + 3) % 32],
            fy[tid * 8 + 4] - xs[lane ^ 9],
            fy[tid * 8 + 5] - xs[17],
            fy[tid * 8 + 6] - xs[31 - lane],
        ];
        let sum: f64 = xs.iter().map(|x| f64::from(*x)).sum();
        // 31 additions of values up to 32.
        let near = (f64::from(fy[tid * 8]) - sum).abs() < 31.0 * 32.0 * 2.0_f64.powi(-24);
        ensure(near && exact.iter().all(|x| *x == 0.0), format!("lanes, float, thread {tid}"))?;
        let expected = [
            ns.iter().sum::<u32>(),
            ns.iter().copied().max().unwrap_or(0),
            ns.iter().copied().min().unwrap_or(0),
            ns[(lane * 5 + 3) % 32],
            ns[lane ^ 9],
            ns[17],
            ns[..lane].iter().sum(),
            ns[lane],
        ];
        ensure(uy[tid * 8..tid * 8 + 8] == expected, format!("lanes, uint, thread {tid}"))?;
    }
    println!("lanes: ok");
    Ok(())
}

/// All 16-bit floats to f32, and f32 of all sizes to 16 bits.
pub(crate) fn convert(device: &CudaDevice) -> Outcome {
    const N: usize = 1 << 16;
    let mut random = Random(2);
    // The low halves run through all 16-bit values; the values stay finite as half.
    let input: Vec<u32> = (0..N as u32)
        .map(|low| {
            let exponent = 127 - 26 + random.bits() % 41;
            (random.bits() & 0x807f_0000) | exponent << 23 | low
        })
        .collect();
    let x = upload(device, &input, "x")?;
    let (b, h) = (device.alloc(N * 2, "b")?, device.alloc(N * 2, "h")?);
    let back = device.alloc(N * 8, "back")?;
    let convert = kernel(device, "dialect", "convert", DIALECT)?;
    let mut commands = Commands::new();
    commands.dispatch(&convert, Grid::linear(N / 64, 64), &slices(&[&x, &b, &h, &back]), &[]);
    device.submit(&commands)?;
    let (b, h) = (download::<u16>(device, &b)?, download::<u16>(device, &h)?);
    let back = download::<f32>(device, &back)?;
    for (idx, bits) in input.iter().enumerate() {
        let x = f32::from_bits(*bits);
        ensure(b[idx] == f32_to_bf16(x), format!("bfloat({x}) is {:#x}", b[idx]))?;
        // Nearest: neither neighbour is nearer.
        let off = |half: u16| (f16_to_f64(half) - f64::from(x)).abs();
        let is_nearest = [h[idx].wrapping_add(1), h[idx].wrapping_sub(1)]
            .iter()
            .all(|other| off(h[idx]) <= off(*other));
        ensure(is_nearest, format!("half({x}) is {:#x}", h[idx]))?;
        let low = (bits & 0xffff) as u16;
        if (low >> 7) & 255 != 255 {
            ensure(
                back[2 * idx].to_bits() == u32::from(low) << 16,
                format!("float of bfloat {low:#x}"),
            )?;
        }
        if (low >> 10) & 31 != 31 {
            let exact = f64::from(back[2 * idx + 1]).to_bits() == f16_to_f64(low).to_bits();
            ensure(exact, format!("float of half {low:#x}"))?;
        }
    }
    println!("convert: ok");
    Ok(())
}

/// Atomics in both memories.
pub(crate) fn count(device: &CudaDevice) -> Outcome {
    const GROUPS: usize = 1000;
    let count = kernel(device, "dialect", "count", DIALECT)?;
    let total = device.alloc(4, "total")?;
    let first = device.alloc(GROUPS * 4, "first")?;
    let mut commands = Commands::new();
    commands.zero(total.all());
    commands.dispatch(&count, Grid::linear(GROUPS, 128), &slices(&[&total, &first]), &[]);
    device.submit(&commands)?;
    let each = 127 * 128 / 2;
    ensure(download::<u32>(device, &first)?.iter().all(|n| *n == each), "count, threadgroups")?;
    ensure(download::<u32>(device, &total)? == [each * GROUPS as u32], "count, total")?;
    println!("count: ok");
    Ok(())
}

/// A graph computes again from what its memory holds now; and a dispatch that reads what it writes
/// is refused.
pub(crate) fn graph(device: &CudaDevice) -> Outcome {
    const N: usize = 64 * 100;
    const TABLE: [f32; 4] = [1.0, 2.0, 4.0, 8.0];
    let scale = kernel(device, "dialect", "scale", DIALECT)?;
    let floats = |label: &str| device.alloc(N * 4, label);
    let (x, y, z, sum) = (floats("x")?, floats("y")?, floats("z")?, floats("sum")?);
    let params = [("n", N as u32), ("factor", 2.0_f32.to_bits()), ("shift", 3)];
    let mut commands = Commands::new();
    commands.copy(x.all(), y.all());
    commands.dispatch(&scale, Grid::linear(N / 64, 64), &slices(&[&y, &z]), &params);
    commands.zero(sum.all());
    commands.dispatch(&scale, Grid::linear(N / 64, 64), &slices(&[&z, &sum]), &params);
    let program = device.prepare(commands)?;
    // The program keeps these.
    drop((y, z));
    for start in [0, 1000, -5] {
        let values: Vec<f32> = (0_i16..).take(N).map(|idx| f32::from(start + idx)).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        device.write(&x.all(), &bytes)?;
        device.replay(&program)?;
        let got = download::<f32>(device, &sum)?;
        for (idx, (got, value)) in got.iter().zip(values).enumerate() {
            let table = TABLE[idx % 4];
            // Small integers: exact.
            let expected = (value * 2.0 + 3.0 + table) * 2.0 + 3.0 + table;
            ensure(got.to_bits() == expected.to_bits(), format!("graph, element {idx}: {got}"))?;
        }
    }
    let mut commands = Commands::new();
    commands.dispatch(&scale, Grid::linear(N / 64, 64), &slices(&[&x, &x]), &params);
    let error = device.submit(&commands).err().ok_or("an overlapping dispatch was accepted")?;
    println!("graph: ok; {error}");
    Ok(())
}

/// A quantised matrix times a vector: results and bandwidth.
pub(crate) fn qmv(device: &CudaDevice) -> Outcome {
    let qmv = kernel(device, "qmv", "qmv_q4", QMV)?;
    let mut random = Random(3);
    for (rows, cols) in [(61, 128), (2048, 2048), (12352, 2048), (248_320, 2048)] {
        let words: Vec<u32> = (0..rows * cols / 8).map(|_| random.bits()).collect();
        let groups = rows * cols / 64;
        let small = |scale: f32, random: &mut Random| -> Vec<u16> {
            (0..groups).map(|_| f32_to_bf16(scale * random.float())).collect()
        };
        let (scales, biases) = (small(0.01, &mut random), small(0.05, &mut random));
        let x = random.floats(cols);
        let buffers = [
            upload(device, &words, "codes")?,
            upload(device, &scales, "scales")?,
            upload(device, &biases, "biases")?,
            upload(device, &x, "x")?,
            device.alloc(rows * 4, "y")?,
        ];
        let mut commands = Commands::new();
        let params = [("n", rows as u32), ("k", cols as u32)];
        let all = slices(&buffers.each_ref());
        commands.dispatch(&qmv, Grid::linear(rows.div_ceil(8), 64), &all, &params);
        device.submit(&commands)?;
        let y = download::<f32>(device, &buffers[4])?;
        let expected: Vec<f64> = (0..rows)
            .map(|row| {
                let term = |k: usize| {
                    let at = row * cols + k;
                    let code = (words[at / 8] >> (4 * (at % 8))) & 15;
                    let (scale, bias) =
                        (bf16_to_f32(scales[at / 64]), bf16_to_f32(biases[at / 64]));
                    let weight = f64::from(scale) * f64::from(code) + f64::from(bias);
                    weight * f64::from(x[k])
                };
                (0..cols).map(term).sum()
            })
            .collect();
        let error = distance(&y, &expected);
        ensure(error < 1e-6, format!("qmv {rows}x{cols}: relative error {error:.1e}"))?;
        let us = time_us(device, &commands, 30)?;
        let bytes = (words.len() + groups) * 4 + (rows + cols) * 4;
        println!(
            "qmv {rows}x{cols}: relative error {error:.1e}, {us:.1} us, {:.0} GB/s",
            bytes as f64 / us / 1e3
        );
    }
    Ok(())
}

const D: usize = 128;

/// The gated delta rule.
pub(crate) fn gdn_step(device: &CudaDevice) -> Outcome {
    const KEY_HEADS: usize = 16;
    const VALUE_HEADS: usize = 32;
    let gdn_step = kernel(device, "gdn_step", "gdn_step", GDN_STEP)?;
    let mut random = Random(4);
    for n_tokens in [1, 16] {
        let unit = |random: &mut Random| -> Vec<f32> {
            let mut x = random.floats(n_tokens * KEY_HEADS * D);
            for head in x.chunks_mut(D) {
                let norm = head.iter().map(|x| x * x).sum::<f32>().sqrt();
                for x in head {
                    *x /= norm;
                }
            }
            x
        };
        let (q, k) = (unit(&mut random), unit(&mut random));
        let v = random.floats(n_tokens * VALUE_HEADS * D);
        let g: Vec<f32> = (0..n_tokens * VALUE_HEADS).map(|_| -random.float().abs()).collect();
        let beta: Vec<f32> = (0..n_tokens * VALUE_HEADS).map(|_| random.float().abs()).collect();
        let state = random.floats(VALUE_HEADS * D * D);
        let state_buffer = upload(device, &state, "state")?;
        let o = device.alloc(n_tokens * VALUE_HEADS * D * 4, "o")?;
        let inputs = [&q, &k, &v, &g, &beta];
        let mut buffers = Vec::new();
        for input in inputs {
            buffers.push(upload(device, input, "input")?.all());
        }
        buffers.extend([state_buffer.all(), o.all()]);
        let params = [
            ("n_tokens", n_tokens as u32),
            ("n_key_heads", KEY_HEADS as u32),
            ("n_value_heads", VALUE_HEADS as u32),
        ];
        let mut commands = Commands::new();
        let grid = Grid::new([D / 32, VALUE_HEADS, 1], 128);
        commands.dispatch(&gdn_step, grid, &buffers, &params);
        device.submit(&commands)?;
        let (o, new_state) = (download(device, &o)?, download(device, &state_buffer)?);

        let mut s: Vec<f64> = state.iter().map(|x| f64::from(*x)).collect();
        let mut expected = vec![0.0; n_tokens * VALUE_HEADS * D];
        for t in 0..n_tokens {
            for head in 0..VALUE_HEADS {
                let row = t * VALUE_HEADS + head;
                let at = (t * KEY_HEADS + head / (VALUE_HEADS / KEY_HEADS)) * D;
                let (k, q) = (&k[at..at + D], &q[at..at + D]);
                for column in 0..D {
                    let s = &mut s[(head * D + column) * D..][..D];
                    for s in &mut *s {
                        *s *= f64::from(g[row]).exp();
                    }
                    let dot = |s: &[f64], x: &[f32]| -> f64 {
                        s.iter().zip(x).map(|(s, x)| s * f64::from(*x)).sum()
                    };
                    let off = f64::from(v[row * D + column]) - dot(s, k);
                    let delta = f64::from(beta[row]) * off;
                    s.iter_mut().zip(k).for_each(|(s, k)| *s += f64::from(*k) * delta);
                    expected[row * D + column] = dot(s, q);
                }
            }
        }
        let (error_o, error_s) = (distance(&o, &expected), distance(&new_state, &s));
        ensure(
            error_o < 1e-6 && error_s < 1e-6,
            format!("gdn_step: relative errors {error_o:.1e}, {error_s:.1e}"),
        )?;
        let us = time_us(device, &commands, 30)?;
        let bytes = 2 * state.len() * 4;
        println!(
            "gdn_step {n_tokens} tokens: relative errors {error_o:.1e} (o), {error_s:.1e} (state), \
             {us:.1} us, {:.0} GB/s",
            bytes as f64 / us / 1e3
        );
    }
    Ok(())
}
