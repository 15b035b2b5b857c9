//! Logits, perplexity and agreement.

use crate::args::{AgreementArgs, Compute, LogitsArgs, ModelArgs, PerplexityArgs, TextArgs};
use crate::load::{self, Loaded};
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use lily_model::{Advance, Logits, Model, Rows, Step, TokenId};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

/// Tokens of a forward pass of these verbs: 1 GB of logits for the 35B's vocabulary.
const CHUNK: usize = 512;

pub(crate) fn logits(args: &LogitsArgs) -> Result<()> {
    let ids = match &args.ids_file {
        Some(path) => read_ids(path)?,
        None => args.ids.clone(),
    };
    ensure!(!ids.is_empty(), "there are no token ids; give at least one");
    let mut loaded = load::load(&args.model, Compute::F32, args.chunk.into())?;
    let vocab_size = loaded.shape.vocab_size;
    let start = Instant::now();
    // Beside the target, so that the final rename stays on one file system.
    let temporary = temporary_name(&args.out)?;
    let written = write_logits(loaded.model.as_mut(), &ids, args.chunk.into(), &temporary)
        .and_then(|()| {
            std::fs::rename(&temporary, &args.out)
                .with_context(|| format!("{} could not be written", args.out.display()))
        });
    if written.is_err() {
        // It may not exist, and the first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    written?;
    let seconds = start.elapsed().as_secs_f64();
    tracing::info!(
        "wrote {} x {vocab_size} logits to {} in {seconds:.2} s",
        ids.len(),
        args.out.display()
    );
    if args.json {
        output::json(
            &json!({"tokens": ids.len(), "vocabulary": vocab_size, "out": args.out, "seconds": seconds}),
        )?;
    }
    Ok(())
}

fn temporary_name(out: &Path) -> Result<std::path::PathBuf> {
    let name = out.file_name().with_context(|| format!("--out {} names no file", out.display()))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    Ok(out.with_file_name(temporary))
}

fn read_ids(path: &Path) -> Result<Vec<TokenId>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{} could not be read", path.display()))?;
    text.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.parse().with_context(|| format!("{}: `{word}` is no token id", path.display()))
        })
        .collect()
}

/// A safetensors file of one tensor, streamed: its size is known before the first logit is.
fn write_logits(model: &mut dyn Model, ids: &[TokenId], chunk: usize, path: &Path) -> Result<()> {
    let vocab_size = model.shape().vocab_size;
    let bytes = ids.len() * vocab_size * size_of::<f32>();
    let mut header = json!({"logits": {"dtype": "F32", "shape": [ids.len(), vocab_size], "data_offsets": [0, bytes]}}).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let full = || format!("{} could not be written", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(full)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).with_context(full)?;
    file.write_all(header.as_bytes()).with_context(full)?;
    let mut state = model.new_state(ids.len()).context("a sequence could not be started")?;
    let mut out = Logits::default();
    for tokens in ids.chunks(chunk) {
        let step = Step { state: &mut state, tokens, rows: Rows::All, advance: Advance::Commit };
        model.forward(&mut [step], &mut out).context("the forward pass failed")?;
        for value in &out.values {
            file.write_all(&value.to_le_bytes()).with_context(full)?;
        }
    }
    file.into_inner()
        .map_err(std::io::IntoInnerError::into_error)
        .and_then(|file| file.sync_all())
        .with_context(full)
}

/// A text cut into windows; each token but the first is scored once.
struct Windows {
    ids: Vec<TokenId>,
    window: usize,
    stride: usize,
}

impl Windows {
    fn read(text: &TextArgs, loaded: &Loaded) -> Result<Self> {
        ensure!(text.window >= 2, "--window is {}; it needs at least 2 tokens", text.window);
        ensure!(
            (1..=text.window).contains(&text.stride),
            "--stride is {}, but must be 1 to --window ({})",
            text.stride,
            text.window
        );
        let limit = loaded.shape.max_positions;
        ensure!(
            text.window <= limit,
            "--window is {}, but this checkpoint was made for {limit} tokens",
            text.window
        );
        let Some(text_model) = &loaded.text else {
            bail!("the model `{}` has no tokenizer.json", loaded.name)
        };
        let content = std::fs::read_to_string(&text.file)
            .with_context(|| format!("{} could not be read", text.file.display()))?;
        let ids =
            text_model.tokenizer.encode(&content).context("the text could not be tokenised")?;
        ensure!(
            ids.len() >= 2,
            "{} has {} tokens; at least 2 are needed",
            text.file.display(),
            ids.len()
        );
        Ok(Self { ids, window: text.window, stride: text.stride })
    }

    /// Calls `score(row of logits, next token)` for every scored token.
    fn each(&self, model: &mut dyn Model, mut score: impl FnMut(&[f32], TokenId)) -> Result<()> {
        let mut scored_to = 1;
        let mut start = 0;
        let mut out = Logits::default();
        while scored_to < self.ids.len() {
            let end = (start + self.window).min(self.ids.len());
            let tokens = &self.ids[start..end];
            let mut state =
                model.new_state(tokens.len()).context("a sequence could not be started")?;
            let mut position = start;
            for chunk in tokens.chunks(CHUNK) {
                let step = Step {
                    state: &mut state,
                    tokens: chunk,
                    rows: Rows::All,
                    advance: Advance::Commit,
                };
                model.forward(&mut [step], &mut out).context("the forward pass failed")?;
                for row in 0..out.n_rows() {
                    let next = position + row + 1;
                    if next >= scored_to && next < end {
                        score(out.row(row), self.ids[next]);
                    }
                }
                position += chunk.len();
            }
            scored_to = end;
            start += self.stride;
        }
        Ok(())
    }
}

/// Log-probability of `token`, natural logarithm.
fn log_probability(row: &[f32], token: TokenId) -> f64 {
    f64::from(row[token as usize]) - log_sum_exp(row)
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
    let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
    f64::from(max) + sum.ln()
}

pub(crate) fn perplexity(args: &PerplexityArgs) -> Result<()> {
    let mut loaded = load::load(&args.model, Compute::F32, CHUNK)?;
    let windows = Windows::read(&args.text, &loaded)?;
    let (mut sum, mut squares, mut n) = (0.0, 0.0, 0_u64);
    windows.each(loaded.model.as_mut(), |row, next| {
        let nll = -log_probability(row, next);
        sum += nll;
        squares += nll * nll;
        n += 1;
    })?;
    let mean = sum / n as f64;
    // Standard error of the mean, as if tokens were independent.
    let error = ((squares / n as f64 - mean * mean).max(0.0) / n as f64).sqrt();
    if args.text.json {
        return output::json(&json!({
            "model": loaded.name, "tokens": n, "window": windows.window, "stride": windows.stride,
            "nll_mean": mean, "nll_standard_error": error, "perplexity": mean.exp(),
        }));
    }
    output::print(&format!(
        "perplexity {:.4} ± {:.4} over {n} tokens (window {}, stride {})\n",
        mean.exp(),
        mean.exp() * error,
        windows.window,
        windows.stride
    ))
}

pub(crate) fn agreement(args: &AgreementArgs) -> Result<()> {
    let mut loaded = load::load(&args.model, Compute::Int8, CHUNK)?;
    let reference_args =
        ModelArgs { model: args.with.clone(), compute: args.with_compute, ..args.model.clone() };
    let mut reference = load::load(&reference_args, Compute::F32, CHUNK)?;
    ensure!(
        loaded.shape.vocab_size == reference.shape.vocab_size,
        "the models have vocabularies of {} and {} rows; only equal ones can be compared",
        loaded.shape.vocab_size,
        reference.shape.vocab_size
    );
    let windows = Windows::read(&args.text, &reference)?;
    // The reference's rows are kept on disk-sized memory only for one window at a time.
    let mut stats = Stats::default();
    let mut rows: Vec<Vec<f32>> = Vec::new();
    let one = |window: &[TokenId]| Windows {
        ids: window.to_vec(),
        window: window.len(),
        stride: window.len(),
    };
    for window in windows.ids.chunks(CHUNK).filter(|window| window.len() >= 2) {
        rows.clear();
        one(window).each(reference.model.as_mut(), |row, _| rows.push(row.to_vec()))?;
        let mut expected = rows.iter();
        one(window).each(loaded.model.as_mut(), |row, _| {
            if let Some(expected) = expected.next() {
                stats.add(expected, row);
            }
        })?;
    }
    stats.kl.sort_by(f64::total_cmp);
    let n = stats.kl.len();
    let mean = stats.kl.iter().sum::<f64>() / n as f64;
    let p99 = stats.kl[(n * 99 / 100).min(n - 1)];
    let (top1, top5) = (stats.top1 as f64 / n as f64, stats.top5 as f64 / n as f64);
    if args.text.json {
        return output::json(&json!({
            "model": loaded.name, "reference": reference.name, "tokens": n,
            "top1": top1, "top5": top5, "kl_mean": mean, "kl_p99": p99,
        }));
    }
    output::print(&format!(
        "{} against {}: same first choice {:.2} %, its choice among the reference's five {:.2} %, \
         KL mean {mean:.3e}, 99th percentile {p99:.3e}, over {n} tokens\n",
        loaded.name,
        reference.name,
        100.0 * top1,
        100.0 * top5
    ))
}

#[derive(Default)]
struct Stats {
    top1: u64,
    top5: u64,
    /// KL divergence of each position from the reference, in nats.
    kl: Vec<f64>,
}

impl Stats {
    fn add(&mut self, reference: &[f32], row: &[f32]) {
        let (a, b) = (log_sum_exp(reference), log_sum_exp(row));
        let kl = reference
            .iter()
            .zip(row)
            .map(|(&p, &q)| {
                let (p, q) = (f64::from(p) - a, f64::from(q) - b);
                p.exp() * (p - q)
            })
            .sum();
        self.kl.push(kl);
        let best = argmax(row);
        self.top1 += u64::from(argmax(reference) == best);
        let better = reference.iter().filter(|&&x| x > reference[best]).count();
        self.top5 += u64::from(better < 5);
    }
}

fn argmax(row: &[f32]) -> usize {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
    best.unwrap_or(0)
}
