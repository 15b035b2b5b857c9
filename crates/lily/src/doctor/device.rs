//! Tests a device: what the first user of a new machine runs.
//!
//! Every kernel is compiled, compared with plain loops, and the demo is run beside the CPU. The
//! report names each failing case so that it can be drawn again: the check, its seed, the shape.

use crate::accelerator;
use crate::args::{Device, DoctorArgs, VERSION};
use crate::load;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use lily_device::{Commands, DeviceInfo, DeviceKind};
use lily_model::gpu::speed::{self, Speed};
use lily_model::gpu::{Activations, GpuModel, GpuOptions, all_kernels, checks};
use lily_model::{
    Advance, CpuModel, CpuOptions, Logits, Model, Precision, Rows, SeqState, Shape, Step, TokenId,
};
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

type Dev = Arc<dyn lily_device::Device>;

#[derive(Serialize)]
pub(super) struct DeviceTest {
    device: &'static str,
    name: String,
    version: String,
    memory_bytes: u64,
    tile: String,
    kernels: Vec<Compiled>,
    checks: Vec<Checked>,
    demo: Vec<Demo>,
    copy_gb_per_s: Option<f64>,
    /// At the sizes of the 35B; empty for the simulator, whose speed means nothing.
    speeds: Vec<Timed>,
    passed: bool,
    /// One line for a bug report.
    summary: String,
}

#[derive(Serialize)]
struct Timed {
    what: String,
    us: f64,
    gb_per_s: Option<f64>,
    tflops: Option<f64>,
}

#[derive(Serialize)]
struct Compiled {
    kernel: String,
    ms: f64,
    error: Option<String>,
}

#[derive(Serialize)]
struct Checked {
    check: &'static str,
    cases: usize,
    /// The largest error as a part of what rounding allows.
    worst: f64,
    failures: Vec<String>,
}

#[derive(Serialize)]
struct Demo {
    activations: &'static str,
    /// Against the exact CPU forward pass, over all positions of a prompt.
    logit_difference_max: Option<f32>,
    logit_difference_mean: Option<f32>,
    /// Of the maximum in f32, of the mean in bf16: there a near tie may send one token to another
    /// expert, which moves its logits and says nothing about the kernels.
    tolerance: f32,
    /// Of the tokens chosen greedily after it.
    greedy_equal: usize,
    greedy_of: usize,
    error: Option<String>,
}

pub(super) fn run(device: Device, args: &DoctorArgs) -> Result<DeviceTest> {
    let Some(device) = accelerator::open(device)? else {
        bail!("--device cpu has no kernels to test; name a GPU or sim")
    };
    let info = device.info().clone();
    output::status(&format!("{}: {}", info.kind.name(), accelerator::line(&info)));
    // Whoever looks for one kernel wants nothing else.
    let everything = args.only.is_none();
    let kernels = if everything { compile(&device, &info)? } else { Vec::new() };
    let checks = run_checks(&device, args);
    let demo: Vec<Demo> = [Activations::F32, Activations::Bf16]
        .into_iter()
        .filter(|_| everything)
        .map(|acts| demo(&device, acts))
        .collect();
    let copy_gb_per_s = if everything { Some(copy_rate(&device)?) } else { None };
    let speeds =
        if everything && info.kind != DeviceKind::Sim { speeds(&device)? } else { Vec::new() };
    ensure!(!checks.is_empty(), "no kernel's name contains the text of --only");
    let passed = kernels.iter().all(|kernel| kernel.error.is_none())
        && checks.iter().all(|check| check.failures.is_empty())
        && demo.iter().all(Demo::passed);
    let mut test = DeviceTest {
        device: info.kind.name(),
        name: info.name,
        version: info.version,
        memory_bytes: info.memory_bytes,
        tile: format!("{:?}", info.tile),
        kernels,
        checks,
        demo,
        copy_gb_per_s,
        speeds,
        passed,
        summary: String::new(),
    };
    test.summary = summary(&test, args);
    Ok(test)
}

/// The kernels of the demo and of the 35B, each compiled once.
fn compile(device: &Dev, info: &DeviceInfo) -> Result<Vec<Compiled>> {
    let demo = load::open("demo")?.checkpoint.shape;
    let mut sources = Vec::new();
    for (shape, bits) in [(demo, 8), (Shape::qwen36_35b(), 4)] {
        let listed = all_kernels(info, &shape, bits, 64, Activations::Bf16)
            .context("the kernels could not be listed")?;
        sources.extend(listed);
    }
    let start = Instant::now();
    let mut compiled: Vec<Compiled> = in_parallel(&sources, |source| {
        let start = Instant::now();
        let error = device.kernel(source).err().map(|error| error.to_string());
        let ms = start.elapsed().as_secs_f64() * 1e3;
        Compiled { kernel: format!("{}.{}", source.file, source.entry), ms, error }
    });
    compiled.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let seconds = start.elapsed().as_secs_f64();
    output::status(&format!("{} kernels compiled in {seconds:.1} s", compiled.len()));
    Ok(compiled)
}

fn run_checks(device: &Dev, args: &DoctorArgs) -> Vec<Checked> {
    let wanted = |check: &checks::Check| match &args.only {
        Some(text) => check.name.contains(text.as_str()),
        None => true,
    };
    let table: Vec<checks::Check> = checks::table().into_iter().filter(wanted).collect();
    in_parallel(&table, |check| {
        let checked = run_check(device, args, check);
        let state = if checked.failures.is_empty() { "ok" } else { "FAILED" };
        output::status(&format!(
            "{:<44} {state}, {} cases, at most {:.2} of the allowed error",
            checked.check, checked.cases, checked.worst
        ));
        checked
    })
}

fn run_check(device: &Dev, args: &DoctorArgs, check: &checks::Check) -> Checked {
    let mut checked = Checked { check: check.name, cases: 0, worst: 0.0, failures: Vec::new() };
    for seed in args.seed..args.seed + u64::from(args.cases) {
        checked.cases += 1;
        let cases = match checks::run(check, device, seed, 1) {
            Ok(cases) => cases,
            Err(error) => {
                checked.failures.push(format!("seed {seed}: {error}"));
                continue;
            }
        };
        for case in cases {
            let part = if case.error > 0.0 { case.error / case.tolerance } else { 0.0 };
            checked.worst = checked.worst.max(part);
            if !case.passed() {
                checked.failures.push(format!(
                    "seed {seed}: {}: off by {:.3e}, allowed {:.3e}",
                    case.what, case.error, case.tolerance
                ));
            }
        }
    }
    checked
}

/// The results in order. Each case compiles kernels of its own shape, which takes longer than
/// running them.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(idx) else { return done };
            done.push((idx, work(item)));
        }
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..n_threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("checks report failures, they do not panic"))
            .collect()
    });
    results.sort_by_key(|(idx, _)| *idx);
    results.into_iter().map(|(_, result)| result).collect()
}

impl Demo {
    fn passed(&self) -> bool {
        let bounded = match self.activations {
            "f32" => self.logit_difference_max,
            _ => self.logit_difference_mean,
        };
        self.error.is_none() && bounded.is_some_and(|difference| difference <= self.tolerance)
    }
}

/// Prompt and answer of the demo comparison, in tokens.
const PROMPT: usize = 96;
const ANSWER: usize = 32;

fn demo(device: &Dev, activations: Activations) -> Demo {
    let (name, tolerance) = match activations {
        Activations::F32 => ("f32", 1e-3),
        // Logits have a size of 10; activations of 8 bits in 8 layers leave about 1 % of it.
        Activations::Bf16 => ("bf16", 0.1),
    };
    let mut demo = Demo {
        activations: name,
        logit_difference_max: None,
        logit_difference_mean: None,
        tolerance,
        greedy_equal: 0,
        greedy_of: ANSWER,
        error: None,
    };
    match compare(device, activations) {
        Ok(([max, mean], equal)) => {
            demo.logit_difference_max = Some(max);
            demo.logit_difference_mean = Some(mean);
            demo.greedy_equal = equal;
        }
        Err(error) => demo.error = Some(format!("{error:#}")),
    }
    output::status(&match (&demo.error, demo.logit_difference_max) {
        (Some(error), _) => format!("demo, {name}: {error}"),
        (None, difference) => format!(
            "demo, {name}: logits differ by at most {:.1e}, {:.1e} on average, {} of {ANSWER} greedy \
             tokens equal",
            difference.unwrap_or(f32::NAN),
            demo.logit_difference_mean.unwrap_or(f32::NAN),
            demo.greedy_equal
        ),
    });
    demo
}

/// The largest and the mean difference of logits, and how many greedy tokens are equal.
fn compare(device: &Dev, activations: Activations) -> Result<([f32; 2], usize)> {
    let checkpoint = load::open("demo")?.checkpoint;
    let options = GpuOptions { activations, max_batch_tokens: PROMPT };
    let mut gpu =
        GpuModel::new(Arc::clone(device), checkpoint.shape.clone(), &checkpoint.weights, options)?;
    let options = CpuOptions {
        n_threads: lily_cpu::physical_cores(),
        precision: Precision::F32,
        max_batch_tokens: PROMPT,
    };
    let mut cpu = CpuModel::new(checkpoint.shape, checkpoint.weights, options);
    let vocab = u32::try_from(cpu.shape().vocab_size).context("a vocabulary fits 32 bits")?;
    let ids: Vec<TokenId> =
        (0..u32::try_from(PROMPT)?).map(|i| i.wrapping_mul(2_654_435_761) % vocab).collect();
    let (expected, expected_answer) = read_and_answer(&mut cpu, &ids)?;
    let (actual, answer) = read_and_answer(&mut gpu, &ids)?;
    let (mut max, mut sum) = (0.0_f32, 0.0_f64);
    for (a, b) in expected.iter().zip(&actual) {
        let difference = (a - b).abs();
        // NaN anywhere counts as infinitely different.
        let difference = if difference.is_nan() { f32::INFINITY } else { difference };
        max = max.max(difference);
        sum += f64::from(difference);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a figure of two digits")]
    let mean = (sum / expected.len() as f64) as f32;
    let equal = expected_answer.iter().zip(&answer).take_while(|(a, b)| a == b).count();
    Ok(([max, mean], equal))
}

/// Logits of every position, in chunks and token by token, and a greedy continuation.
fn read_and_answer(model: &mut dyn Model, ids: &[TokenId]) -> Result<(Vec<f32>, Vec<TokenId>)> {
    let mut state = model.new_state(ids.len() + ANSWER)?;
    let mut values = Vec::new();
    let (chunks, singles) = ids.split_at(ids.len() - 8);
    for tokens in chunks.chunks(48).chain(singles.chunks(1)) {
        values.extend(feed(model, &mut state, tokens)?);
    }
    let vocab_size = model.shape().vocab_size;
    let last = Logits { values: values[values.len() - vocab_size..].to_vec(), vocab_size };
    let answer = model.decode_greedy(&mut state, last.argmax(0), ANSWER)?;
    Ok((values, answer))
}

fn feed(model: &mut dyn Model, state: &mut SeqState, tokens: &[TokenId]) -> Result<Vec<f32>> {
    let mut out = Logits::default();
    let step = Step { state, tokens, rows: Rows::All, advance: Advance::Commit };
    model.forward(&mut [step], &mut out)?;
    Ok(out.values)
}

/// Bytes read and written per second by copies inside the device.
fn copy_rate(device: &Dev) -> Result<f64> {
    let len = usize::try_from((device.info().memory_bytes / 16).min(1 << 30))?;
    let (src, dst) = (device.alloc(len, "bandwidth")?, device.alloc(len, "bandwidth")?);
    let mut commands = Commands::new();
    commands.zero(src.all());
    commands.copy(src.all(), dst.all());
    device.wait(device.submit(&commands)?)?;
    let mut commands = Commands::new();
    for _ in 0..4 {
        commands.copy(src.all(), dst.all());
    }
    let elapsed = device.wait(device.submit(&commands)?)?;
    let rate = 8.0 * len as f64 / elapsed.as_secs_f64() / 1e9;
    output::status(&format!("memory: {rate:.0} GB/s copying"));
    Ok(rate)
}

fn speeds(device: &Dev) -> Result<Vec<Timed>> {
    let measured = speed::measure(device).context("the kernels could not be timed")?;
    Ok(measured
        .into_iter()
        .map(|Speed { what, us, gb_per_s, tflops }| {
            let rate = match (gb_per_s, tflops) {
                (Some(rate), _) => format!("{rate:.0} GB/s"),
                (None, rate) => format!("{:.1} TFLOP/s", rate.unwrap_or(f64::NAN)),
            };
            output::status(&format!("{what:<52} {us:>9.1} us {rate:>14}"));
            Timed { what, us, gb_per_s, tflops }
        })
        .collect())
}

fn summary(test: &DeviceTest, args: &DoctorArgs) -> String {
    let broken: Vec<String> = test
        .kernels
        .iter()
        .filter(|kernel| kernel.error.is_some())
        .map(|kernel| format!("{} does not compile", kernel.kernel))
        .chain(test.checks.iter().filter_map(|check| {
            check.failures.first().map(|first| format!("{} [{first}]", check.check))
        }))
        .chain(test.demo.iter().filter(|demo| !demo.passed()).map(|demo| {
            let max = demo.logit_difference_max.unwrap_or(f32::NAN);
            let mean = demo.logit_difference_mean.unwrap_or(f32::NAN);
            let error = demo.error.as_deref().unwrap_or("");
            format!("demo {} off by {max:.1e}, {mean:.1e} on average {error}", demo.activations)
        }))
        .collect();
    let verdict = if broken.is_empty() { "all green".to_owned() } else { broken.join("; ") };
    format!(
        "lily {VERSION} {} | {} | {} | tile {} | {} kernels, {} checks x {} cases from seed {} | \
         {} | {verdict}",
        test.device,
        test.name,
        test.version,
        test.tile,
        test.kernels.len(),
        test.checks.len(),
        args.cases,
        args.seed,
        test.copy_gb_per_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0} GB/s")),
    )
    .replace('\n', " ")
}

impl DeviceTest {
    pub(super) fn passed(&self) -> bool {
        self.passed
    }

    /// What a person reads; the progress was shown before.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for kernel in self.kernels.iter().filter(|kernel| kernel.error.is_some()) {
            let error = kernel.error.as_deref().unwrap_or_default();
            let _ = writeln!(out, "{} does not compile: {error}", kernel.kernel);
        }
        for check in &self.checks {
            for failure in &check.failures {
                let _ = writeln!(out, "{}: {failure}", check.check);
            }
        }
        out.push_str(&self.summary);
        out.push('\n');
        out
    }
}
