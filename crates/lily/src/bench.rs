//! How fast prompts are read and tokens are written, by the model alone.

use crate::accelerator;
use crate::args::{BenchArgs, Compute, Group, VERSION};
use crate::load;
use crate::machine::{self, Machine};
use crate::output::{self, seconds};
use anyhow::{Context, Result, ensure};
use lily_model::{Advance, Logits, Model, Rows, SeqState, Shape, Step, TokenId};
use lily_weights::{Checkpoint, RandomQuant, memory_needed};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Instant;

/// Caches of processors are smaller; only beyond them does the memory's speed matter.
const CACHED_BYTES_MAX: u64 = 1 << 29;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    model: String,
    /// The GPU; null for the CPU.
    device: Option<String>,
    n_threads: usize,
    compute: &'static str,
    chunk_tokens: usize,
    weight_bytes: u64,
    bytes_per_token: u64,
    /// How fast as many threads read memory and do nothing else.
    memory_gb_per_s: Option<f64>,
    peak_memory_bytes: Option<u64>,
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
    /// Weights, state and KV rows. Decode only.
    bytes_per_token: Option<u64>,
    /// Of those, at the median.
    gb_per_s: Option<f64>,
    /// If reading those took all the time. Decode only, for weights that fit into no cache.
    floor_tokens_per_s: Option<f64>,
    /// Launches of a decode step. GPU only.
    dispatches: Option<usize>,
    /// Barriers of a decode step. GPU only.
    barriers: Option<usize>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let accelerator = accelerator::open(args.model.device)?;
    let device = accelerator.as_ref().map(|device| accelerator::line(device.info()));
    let machine = Machine::look();
    let start = Instant::now();
    let (checkpoint, name) = checkpoint(args)?;
    let load_s = start.elapsed().as_secs_f64();
    let summary = checkpoint.summary.clone();
    let chunk = usize::from(args.chunk);
    let is_gpu = accelerator.is_some();
    let n_threads = args.model.threads.map_or_else(lily_cpu::physical_cores, usize::from);
    let compute = args.model.compute.unwrap_or(if is_gpu { Compute::Bf16 } else { Compute::Int8 });
    let mut bench = Bench {
        model: load::compute(&args.model, compute, chunk, checkpoint, accelerator)?,
        is_gpu,
        bytes_per_token: summary.bytes_per_token,
        kv_scale: if compute == Compute::F32 { 2 } else { 1 },
        chunk,
        reps: args.reps.into(),
    };
    output::status(&format!(
        "{name}: {} in {}, {} read per token",
        output::bytes(summary.weight_bytes),
        seconds(load_s),
        output::bytes(summary.bytes_per_token)
    ));
    let longest = args.prompt.iter().copied().max().unwrap_or(0);
    let deepest = args.ctx_depth.iter().copied().max().unwrap_or(0) + args.n_decoded;
    let limit = bench.model.shape().max_positions;
    ensure!(
        longest.max(deepest) <= limit,
        "{} tokens were asked for, but this checkpoint was made for {limit}",
        longest.max(deepest)
    );
    bench.warm_up()?;
    let mut rows = Vec::new();
    for &n in args.prompt.iter().filter(|&&n| n > 0) {
        rows.push(bench.prefill(n)?);
    }
    for &depth in args.ctx_depth.iter().filter(|_| args.n_decoded > 0) {
        rows.push(bench.decode(depth, args.n_decoded)?);
    }
    let peak_memory_bytes = machine::peak_memory_bytes();
    let memory_gb_per_s = machine::read_gb_per_s(&Machine::look(), n_threads);
    // In a cache there is no such limit.
    let limit = memory_gb_per_s.filter(|_| !is_gpu && summary.weight_bytes > CACHED_BYTES_MAX);
    for row in &mut rows {
        row.floor_tokens_per_s =
            row.bytes_per_token.zip(limit).map(|(bytes, limit)| limit * 1e9 / bytes as f64);
    }
    let report = Report {
        version: VERSION,
        machine,
        model: name,
        device,
        n_threads,
        compute: match compute {
            Compute::F32 => "f32",
            Compute::Bf16 => "bf16",
            Compute::Int8 => "int8",
        },
        chunk_tokens: chunk,
        weight_bytes: summary.weight_bytes,
        bytes_per_token: summary.bytes_per_token,
        memory_gb_per_s,
        peak_memory_bytes,
        load_s,
        rows,
    };
    if args.json { output::json(&report) } else { output::print(&table(&report)?) }
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

/// A model and how to measure it.
struct Bench {
    model: Box<dyn Model>,
    is_gpu: bool,
    bytes_per_token: u64,
    /// KV rows of the exact reference are twice as long.
    kv_scale: u64,
    chunk: usize,
    reps: usize,
}

impl Bench {
    /// Touches every weight page once and fills the scratch memory.
    fn warm_up(&mut self) -> Result<()> {
        let ids = self.prompt(0, 64);
        let mut state = self.new_state(ids.len())?;
        self.feed(&mut state, &ids)
    }

    fn prefill(&mut self, n: usize) -> Result<Row> {
        let ids = self.prompt(0, n);
        let mut times = Vec::new();
        for _ in 0..self.reps {
            let mut state = self.new_state(n)?;
            let start = Instant::now();
            self.feed(&mut state, &ids)?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(Row::new("prefill", n, n, times))
    }

    fn decode(&mut self, depth: usize, n: usize) -> Result<Row> {
        let mut state = self.new_state(depth + n)?;
        self.feed(&mut state, &self.prompt(0, depth))?;
        let before = self.model.snapshot(&state).context("the context could not be kept")?;
        let ids = self.prompt(depth, n);
        let mut times = Vec::new();
        for _ in 0..self.reps {
            self.model.restore(&mut state, &before).context("the context could not be restored")?;
            let start = Instant::now();
            if self.is_gpu {
                self.model.decode_greedy(&mut state, ids[0], n).context("decoding failed")?;
            } else {
                for id in &ids {
                    self.feed(&mut state, std::slice::from_ref(id))?;
                }
            }
            times.push(start.elapsed().as_secs_f64());
        }
        let mut row = Row::new("decode", depth, n, times);
        let needed = memory_needed(self.model.shape(), 0, (depth + n / 2) as u64);
        // The recurrent state is read and written, KV rows are read.
        let bytes =
            self.bytes_per_token + 2 * needed.recurrent_state + self.kv_scale * needed.kv_cache;
        let counts = self.model.decode_counts(&state);
        row.dispatches = counts.map(|counts| counts.dispatches);
        row.barriers = counts.map(|counts| counts.barriers);
        row.bytes_per_token = Some(bytes);
        row.gb_per_s = Some(bytes as f64 * row.tokens_per_s_median / 1e9);
        Ok(row)
    }

    fn new_state(&self, capacity: usize) -> Result<SeqState> {
        self.model.new_state(capacity.max(1)).context("a sequence could not be started")
    }

    /// Token `i` is `(i * 2654435761 mod 2^32) mod vocabulary`, as in every published row.
    fn prompt(&self, first: usize, n: usize) -> Vec<TokenId> {
        prompt(first, n, self.model.shape().vocab_size as u64)
    }

    fn feed(&mut self, state: &mut SeqState, ids: &[TokenId]) -> Result<()> {
        let mut out = Logits::default();
        let mut done = 0;
        for tokens in ids.chunks(self.chunk) {
            done += tokens.len();
            let rows = if done == ids.len() { Rows::Last } else { Rows::None };
            let step = Step { state, tokens, rows, advance: Advance::Commit };
            self.model.forward(&mut [step], &mut out).context("the forward pass failed")?;
        }
        Ok(())
    }
}

fn prompt(first: usize, n: usize, vocab_size: u64) -> Vec<TokenId> {
    (first as u64..(first + n) as u64)
        .map(|i| {
            let id = (i * 2_654_435_761 % (1 << 32)) % vocab_size;
            TokenId::try_from(id).expect("a vocabulary has less than 2^32 rows")
        })
        .collect()
}

impl Row {
    /// Says at once how fast it was: a long table takes hours.
    fn new(kind: &'static str, n_before: usize, n_tokens: usize, times: Vec<f64>) -> Self {
        let mut rates: Vec<f64> = times.into_iter().map(|time| n_tokens as f64 / time).collect();
        rates.sort_by(f64::total_cmp);
        let row = Self {
            kind,
            n_before,
            n_tokens,
            tokens_per_s_min: rates[0],
            tokens_per_s_median: rates[rates.len() / 2],
            tokens_per_s_max: rates[rates.len() - 1],
            bytes_per_token: None,
            gb_per_s: None,
            floor_tokens_per_s: None,
            dispatches: None,
            barriers: None,
        };
        output::status(&format!("{kind} at {n_before}: {:.2} tok/s", row.tokens_per_s_median));
        row
    }
}

fn table(report: &Report) -> Result<String> {
    let mut out = String::new();
    if let Some(device) = &report.device {
        writeln!(out, "{}, {}\n{device}", report.model, report.compute)?;
    } else {
        writeln!(out, "{}, {} threads, {}", report.model, report.n_threads, report.compute)?;
        writeln!(out, "{}", report.machine.line())?;
    }
    if let Some(rate) = report.memory_gb_per_s {
        writeln!(out, "memory is read at {rate:.1} GB/s by as many threads")?;
    }
    if let Some(load) = report.machine.load_average {
        writeln!(out, "load average before: {load:.1}")?;
    }
    writeln!(out, "lily {}\n", report.version)?;
    let (min, median, max) = ("min", "median", "max");
    writeln!(out, "{:<8} {:>7} {min:>9} {median:>9} {max:>9}  tok/s", "", "context")?;
    for row in &report.rows {
        write!(
            out,
            "{:<8} {:>7} {:>9.2} {:>9.2} {:>9.2}",
            row.kind,
            row.n_before,
            row.tokens_per_s_min,
            row.tokens_per_s_median,
            row.tokens_per_s_max
        )?;
        if let Some(rate) = row.gb_per_s {
            write!(out, "  {rate:.1} GB/s")?;
        }
        if let Some(floor) = row.floor_tokens_per_s {
            let share = 100.0 * row.tokens_per_s_median / floor;
            write!(out, ", {share:.0} % of the {floor:.1} tok/s that memory allows")?;
        }
        if let (Some(dispatches), Some(barriers)) = (row.dispatches, row.barriers) {
            write!(out, ", {dispatches} dispatches, {barriers} barriers")?;
        }
        writeln!(out)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::prompt;

    #[test]
    fn prompts_are_those_of_published_rows() {
        assert_eq!(prompt(0, 4, 4096), [0, 2_481, 866, 3_347]);
        assert_eq!(prompt(1, 3, 4096), prompt(0, 4, 4096)[1..]);
        assert!(prompt(0, 1000, 248_320).iter().all(|&id| id < 248_320));
    }
}
