//! How fast prompts are read and tokens are written, by the model alone.

use crate::args::{BenchArgs, Compute, Group, VERSION};
use crate::load;
use crate::machine::Machine;
use crate::output;
use anyhow::{Context, Result, ensure};
use lily_model::{Advance, CpuModel, Logits, Model, Rows, SeqState, Shape, Step, TokenId};
use lily_weights::{Checkpoint, RandomQuant};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Instant;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    model: String,
    n_threads: usize,
    compute: &'static str,
    weight_bytes: u64,
    bytes_per_token: u64,
    load_s: f64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    /// `prefill` or `decode`.
    kind: &'static str,
    /// Tokens of the prompt, or of the context before decoding.
    n_before: usize,
    /// Tokens timed in a repetition.
    n_tokens: usize,
    tokens_per_s_min: f64,
    tokens_per_s_median: f64,
    tokens_per_s_max: f64,
    /// Weights, state and KV rows read, at the median. Decode only.
    gb_per_s: Option<f64>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    load::check_device(args.model.device)?;
    let start = Instant::now();
    let (checkpoint, name) = checkpoint(args)?;
    let load_s = start.elapsed().as_secs_f64();
    let summary = checkpoint.summary.clone();
    let options = load::cpu_options(&args.model, Compute::Int8, usize::from(args.chunk));
    let mut model = CpuModel::new(checkpoint.shape, checkpoint.weights, options);
    eprintln!(
        "{name}: {} in {load_s:.1} s, {} read per token",
        output::bytes(summary.weight_bytes),
        output::bytes(summary.bytes_per_token)
    );

    let mut rows = Vec::new();
    let longest = args.prompt.iter().copied().max().unwrap_or(0);
    let deepest = args.ctx_depth.iter().copied().max().unwrap_or(0) + args.n_decoded;
    let limit = model.shape().max_positions;
    ensure!(
        longest.max(deepest) <= limit,
        "{} tokens were asked for, but this checkpoint was made for {limit}",
        longest.max(deepest)
    );
    warm_up(&mut model)?;
    for &n in args.prompt.iter().filter(|&&n| n > 0) {
        rows.push(measure(args, "prefill", n, n, |timer| {
            let mut state = new_state(&model, n)?;
            let ids = prompt(0, n, vocab_size(&model));
            timer.start();
            feed(&mut model, &mut state, &ids, args.chunk.into())
        })?);
    }
    for &depth in args.ctx_depth.iter().filter(|_| args.n_decoded > 0) {
        let mut row = measure(args, "decode", depth, args.n_decoded, |timer| {
            let mut state = new_state(&model, depth + args.n_decoded)?;
            let vocab = vocab_size(&model);
            feed(&mut model, &mut state, &prompt(0, depth, vocab), args.chunk.into())?;
            timer.start();
            for i in 0..args.n_decoded {
                feed(&mut model, &mut state, &prompt(depth + i, 1, vocab), 1)?;
            }
            Ok(())
        })?;
        let state =
            lily_weights::memory_needed(model.shape(), 0, (depth + args.n_decoded / 2) as u64);
        // The recurrent state is read and written, KV rows are read.
        let bytes = summary.bytes_per_token + 2 * state.recurrent_state + state.kv_cache;
        row.gb_per_s = Some(bytes as f64 * row.tokens_per_s_median / 1e9);
        rows.push(row);
    }
    let report = Report {
        version: VERSION,
        machine: Machine::look(),
        model: name,
        n_threads: model.n_threads(),
        compute: match args.model.compute.unwrap_or(Compute::Int8) {
            Compute::F32 => "f32",
            Compute::Int8 => "int8",
        },
        weight_bytes: summary.weight_bytes,
        bytes_per_token: summary.bytes_per_token,
        load_s,
        rows,
    };
    if args.json { output::json(&report) } else { output::print(&table(&report)) }
}

fn checkpoint(args: &BenchArgs) -> Result<(Checkpoint, String)> {
    if !args.random {
        let opened = load::open(&args.model.model)?;
        return Ok((opened.checkpoint, opened.name));
    }
    let n_experts = usize::from(args.experts);
    let shape = Shape { n_experts, ..Shape::qwen36_35b() };
    ensure!(args.bits != 7, "--bits is 7, but must be one of 2, 3, 4, 5, 6, 8");
    let group = match args.group {
        Group::G32 => 32,
        Group::G64 => 64,
        Group::G128 => 128,
    };
    let quant = RandomQuant { bits: args.bits, group };
    let name = format!("random 35B shape, {n_experts} experts, {}-bit g{group}", args.bits);
    Ok((Checkpoint::random(&shape, quant, false, args.seed), name))
}

/// Starts when the part to be timed begins.
struct Timer(Instant);

impl Timer {
    fn start(&mut self) {
        self.0 = Instant::now();
    }
}

fn measure(
    args: &BenchArgs,
    kind: &'static str,
    n_before: usize,
    n_tokens: usize,
    mut once: impl FnMut(&mut Timer) -> Result<()>,
) -> Result<Row> {
    let mut rates = Vec::new();
    for _ in 0..args.reps {
        let mut timer = Timer(Instant::now());
        once(&mut timer)?;
        rates.push(n_tokens as f64 / timer.0.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    let row = Row {
        kind,
        n_before,
        n_tokens,
        tokens_per_s_min: rates[0],
        tokens_per_s_median: rates[rates.len() / 2],
        tokens_per_s_max: rates[rates.len() - 1],
        gb_per_s: None,
    };
    eprintln!("{kind} at {n_before}: {:.2} tok/s", row.tokens_per_s_median);
    Ok(row)
}

/// Touches every weight page once and fills the scratch memory.
fn warm_up(model: &mut CpuModel) -> Result<()> {
    let mut state = new_state(model, 64)?;
    let ids = prompt(0, 64, vocab_size(model));
    feed(model, &mut state, &ids, 32)
}

fn new_state(model: &CpuModel, capacity: usize) -> Result<SeqState> {
    model.new_state(capacity.max(1)).context("a sequence could not be started")
}

fn vocab_size(model: &CpuModel) -> u64 {
    model.shape().vocab_size as u64
}

/// Token `i` is `(i * 2654435761 mod 2^32) mod vocabulary`, as in every published row.
fn prompt(first: usize, n: usize, vocab: u64) -> Vec<TokenId> {
    (first as u64..(first + n) as u64)
        .map(|i| {
            let id = (i * 2_654_435_761 % (1 << 32)) % vocab;
            TokenId::try_from(id).expect("a vocabulary has less than 2^32 rows")
        })
        .collect()
}

fn feed(model: &mut CpuModel, state: &mut SeqState, ids: &[TokenId], chunk: usize) -> Result<()> {
    let mut out = Logits::default();
    let mut done = 0;
    for tokens in ids.chunks(chunk) {
        done += tokens.len();
        let rows = if done == ids.len() { Rows::Last } else { Rows::None };
        let step = Step { state, tokens, rows, advance: Advance::Commit };
        model.forward(&mut [step], &mut out).context("the forward pass failed")?;
    }
    Ok(())
}

fn table(report: &Report) -> String {
    let mut out = format!(
        "{}\n{}, {} threads, {}\nlily {}\n\n{:<8} {:>7} {:>9} {:>9} {:>9}  tok/s\n",
        report.model,
        report.machine.line(),
        report.n_threads,
        report.compute,
        report.version,
        "",
        "context",
        "min",
        "median",
        "max"
    );
    for row in &report.rows {
        let rate = row.gb_per_s.map(|rate| format!("  {rate:.1} GB/s")).unwrap_or_default();
        let _ = writeln!(
            out,
            "{:<8} {:>7} {:>9.2} {:>9.2} {:>9.2}{rate}",
            row.kind,
            row.n_before,
            row.tokens_per_s_min,
            row.tokens_per_s_median,
            row.tokens_per_s_max
        );
    }
    out
}
