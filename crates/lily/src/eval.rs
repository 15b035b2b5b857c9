//! Logits, perplexity and agreement.

mod compare;
mod windows;

use crate::args::{AgreementArgs, Compute, LogitsArgs, ModelArgs, PerplexityArgs, TextArgs};
use crate::load::{self, Loaded};
use crate::output::{self, seconds};
use anyhow::{Context, Result, ensure};
use compare::{Comparison, log_probability};
use indicatif::{ProgressBar, ProgressStyle};
use lily_model::{Advance, Logits, Model, Rows, Step, TokenId};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use windows::Windows;

/// Tokens of a forward pass over a text: a quarter of a gigabyte of logits with the 35B's
/// vocabulary.
const CHUNK: usize = 256;

pub(crate) fn logits(args: &LogitsArgs) -> Result<()> {
    let ids = match &args.ids_file {
        Some(path) => read_ids(path)?,
        None => args.ids.clone(),
    };
    ensure!(!ids.is_empty(), "there are no token ids; give at least one");
    let chunk = usize::from(args.chunk);
    let mut loaded = load::load(&args.model, Compute::F32, chunk)?;
    let limit = loaded.shape.max_positions;
    ensure!(
        ids.len() <= limit,
        "{} token ids are given, but this checkpoint was made for {limit}",
        ids.len()
    );
    let vocab_size = loaded.shape.vocab_size;
    let start = Instant::now();
    output::replace_file(&args.out, |out| write_logits(loaded.model.as_mut(), &ids, chunk, out))?;
    let elapsed_s = start.elapsed().as_secs_f64();
    output::status(&format!(
        "wrote {} x {vocab_size} logits to {} in {}",
        ids.len(),
        args.out.display(),
        seconds(elapsed_s)
    ));
    if args.json {
        output::json(&json!({
            "tokens": ids.len(),
            "vocabulary": vocab_size,
            "out": args.out,
            "seconds": elapsed_s,
        }))?;
    }
    Ok(())
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
fn write_logits(
    model: &mut dyn Model,
    ids: &[TokenId],
    chunk: usize,
    file: &mut dyn Write,
) -> Result<()> {
    let vocab_size = model.shape().vocab_size;
    let bytes = ids.len() * vocab_size * size_of::<f32>();
    let tensor = json!({
        "dtype": "F32",
        "shape": [ids.len(), vocab_size],
        "data_offsets": [0, bytes],
    });
    let mut header = json!({ "logits": tensor }).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut state = model.new_state(ids.len()).context("a sequence could not be started")?;
    let mut out = Logits::default();
    let mut bytes = Vec::new();
    for tokens in ids.chunks(chunk) {
        let step = Step { state: &mut state, tokens, rows: Rows::All, advance: Advance::Commit };
        model.forward(&mut [step], &mut out).context("the forward pass failed")?;
        bytes.clear();
        bytes.extend(out.values.iter().flat_map(|value| value.to_le_bytes()));
        file.write_all(&bytes)?;
    }
    Ok(())
}

pub(crate) fn perplexity(args: &PerplexityArgs) -> Result<()> {
    let loaded = load::load(&args.model, Compute::F32, CHUNK)?;
    let windows = windows(&args.text, &loaded)?;
    let (mut sum, mut squares, mut n) = (0.0, 0.0, 0_u64);
    let bar = progress(windows.n_scored());
    windows.score(&mut [loaded.model], CHUNK, |rows, next| {
        let nll = -log_probability(rows[0], next);
        sum += nll;
        squares += nll * nll;
        n += 1;
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let mean = sum / n as f64;
    // Standard error of the mean, as if tokens were independent.
    let error = ((squares / n as f64 - mean * mean).max(0.0) / n as f64).sqrt();
    if args.text.json {
        return output::json(&json!({
            "model": loaded.name,
            "tokens": n,
            "window": windows.window,
            "stride": windows.stride,
            "nll_mean": mean,
            "nll_standard_error": error,
            "perplexity": mean.exp(),
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
    let loaded = load::load(&args.model, Compute::Int8, CHUNK)?;
    let reference_args =
        ModelArgs { model: args.with.clone(), compute: args.with_compute, ..args.model.clone() };
    let reference = load::load(&reference_args, Compute::F32, CHUNK)?;
    ensure!(
        loaded.shape.vocab_size == reference.shape.vocab_size,
        "the models have vocabularies of {} and {} rows; only equal ones can be compared",
        loaded.shape.vocab_size,
        reference.shape.vocab_size
    );
    let windows = windows(&args.text, &reference)?;
    let limit = loaded.shape.max_positions;
    ensure!(
        windows.window <= limit,
        "--window is {}, but `{}` was made for {limit} tokens",
        windows.window,
        loaded.name
    );
    let mut comparison = Comparison::default();
    let bar = progress(windows.n_scored());
    windows.score(&mut [reference.model, loaded.model], CHUNK, |rows, _| {
        comparison.add(rows[0], rows[1]);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let result = comparison.result();
    if args.text.json {
        return output::json(&json!({
            "model": loaded.name,
            "reference": reference.name,
            "tokens": result.n,
            "window": windows.window,
            "stride": windows.stride,
            "top1": result.top1,
            "top5": result.top5,
            "kl_mean": result.kl_mean,
            "kl_p99": result.kl_p99,
            "kl_max": result.kl_max,
        }));
    }
    output::print(&format!(
        "{} against {} over {} tokens (window {}, stride {})\n\
         same first choice                   {:.2} %\n\
         first choice among reference's five {:.2} %\n\
         KL divergence in nats               mean {:.3e}, 99th percentile {:.3e}, most {:.3e}\n",
        loaded.name,
        reference.name,
        result.n,
        windows.window,
        windows.stride,
        100.0 * result.top1,
        100.0 * result.top5,
        result.kl_mean,
        result.kl_p99,
        result.kl_max
    ))
}

/// The text as the model's tokenizer cuts it, in windows that the model can see.
fn windows(text: &TextArgs, loaded: &Loaded) -> Result<Windows> {
    let (window, stride) = (text.window, text.stride);
    ensure!(window >= 2, "--window is {window}; it needs at least 2 tokens");
    ensure!(
        (1..=window).contains(&stride),
        "--stride is {stride}, but must be 1 to --window ({window})"
    );
    let limit = loaded.shape.max_positions;
    ensure!(
        window <= limit,
        "--window is {window}, but `{}` was made for {limit} tokens",
        loaded.name
    );
    let text_model = loaded
        .text
        .as_ref()
        .with_context(|| format!("the model `{}` has no tokenizer.json", loaded.name))?;
    let path = text.file.display();
    let content =
        std::fs::read_to_string(&text.file).with_context(|| format!("{path} could not be read"))?;
    // The file is the user's own: the words of special tokens in it mean these tokens.
    let ids = text_model.tokenizer.encode(&content).context("the text could not be tokenised")?;
    ensure!(ids.len() >= 2, "{path} has {} tokens; at least 2 are needed", ids.len());
    Ok(Windows { ids, window, stride })
}

/// A bar on a terminal.
fn progress(n_tokens: usize) -> ProgressBar {
    let bar = ProgressBar::new(n_tokens as u64);
    match ProgressStyle::with_template("scoring [{bar:30}] {pos}/{len} tokens, {eta} left") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
