//! What is in a checkpoint, and whether it fits.

use crate::args::InspectArgs;
use crate::load;
use crate::machine::Machine;
use crate::output;
use anyhow::{Result, ensure};
use lily_weights::{MemoryNeeded, Shape, Summary, memory_needed};
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    format: lily_weights::Format,
    shape: &'a Shape,
    contents: &'a Summary,
    memory: Vec<Needed>,
    machine: &'a Machine,
}

#[derive(Serialize)]
struct Needed {
    context_tokens: u64,
    #[serde(flatten)]
    parts: MemoryNeeded,
    total: u64,
    fits: Option<bool>,
}

/// Contexts that people ask about; those beyond the checkpoint's limit are left out.
const CONTEXTS: [u64; 4] = [4_096, 32_768, 131_072, 262_144];

pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let opened = load::open(&args.model.model)?;
    let checkpoint = &opened.checkpoint;
    let machine = Machine::look();
    let limit = checkpoint.shape.max_positions as u64;
    if let Some(ctx) = args.ctx {
        ensure!(ctx <= limit, "--ctx is {ctx}, but this checkpoint was made for {limit} tokens");
    }
    let mut contexts: Vec<u64> =
        CONTEXTS.into_iter().filter(|&n| n <= limit).chain(args.ctx).collect();
    if contexts.is_empty() {
        contexts.push(limit);
    }
    contexts.sort_unstable();
    contexts.dedup();
    let memory = contexts
        .into_iter()
        .map(|context_tokens| {
            let parts =
                memory_needed(&checkpoint.shape, checkpoint.summary.weight_bytes, context_tokens);
            let total = parts.total();
            // Mapped weights are page cache, which the system counts as available.
            let fits =
                machine.memory_available_bytes.or(machine.memory_bytes).map(|have| total <= have);
            Needed { context_tokens, parts, total, fits }
        })
        .collect();
    let report = Report {
        model: &opened.name,
        format: checkpoint.format,
        shape: &checkpoint.shape,
        contents: &checkpoint.summary,
        memory,
        machine: &machine,
    };
    if args.json { output::json(&report) } else { output::print(&table(&report)?) }
}

fn table(report: &Report<'_>) -> Result<String> {
    let (shape, contents) = (report.shape, report.contents);
    let mut out = String::new();
    let n_attention = (0..shape.n_layers).filter(|&layer| shape.is_attention(layer)).count();
    writeln!(out, "{}", report.model)?;
    writeln!(
        out,
        "  architecture  Qwen3.6 hybrid MoE: {} layers ({} gated delta net, {n_attention} gated attention)",
        shape.n_layers,
        shape.n_layers - n_attention
    )?;
    writeln!(
        out,
        "  sizes         hidden {}, {} experts ({} active) of {}, shared {}, vocabulary {}",
        shape.hidden,
        shape.n_experts,
        shape.n_experts_per_token,
        shape.expert_width,
        shape.shared_expert_width,
        shape.vocab_size
    )?;
    writeln!(out, "  context       up to {} tokens", shape.max_positions)?;
    writeln!(out, "  parameters    {}", output::count(contents.text_parameters))?;
    writeln!(out, "  read per token  {}\n", output::bytes(contents.bytes_per_token))?;
    writeln!(
        out,
        "  {:<24} {:>8} {:>10} {:>10}  storage",
        "class", "tensors", "parameters", "bytes"
    )?;
    for class in &contents.classes {
        let storage: Vec<&str> = class.storage.keys().map(String::as_str).collect();
        writeln!(
            out,
            "  {:<24} {:>8} {:>10} {:>10}  {}",
            class.class,
            class.tensors,
            output::count(class.parameters),
            output::bytes(class.bytes),
            storage.join(", ")
        )?;
    }
    writeln!(
        out,
        "\n  {:<10} {:>10} {:>10} {:>10} {:>10}",
        "context", "weights", "KV cache", "state", "total"
    )?;
    for needed in &report.memory {
        let verdict = match (needed.fits, report.machine.memory_bytes) {
            (Some(true), _) => "fits",
            (Some(false), Some(total)) if needed.total <= total => {
                "fits only if other programs make room"
            }
            (Some(false), _) => "does not fit",
            (None, _) => "",
        };
        writeln!(
            out,
            "  {:<10} {:>10} {:>10} {:>10} {:>10}  {verdict}",
            needed.context_tokens,
            output::bytes(needed.parts.weights),
            output::bytes(needed.parts.kv_cache),
            output::bytes(needed.parts.recurrent_state),
            output::bytes(needed.total)
        )?;
    }
    let machine = report.machine;
    if let Some(total) = machine.memory_bytes {
        let available =
            machine.memory_available_bytes.map(|n| format!(", {} available", output::bytes(n)));
        writeln!(
            out,
            "\n  this machine has {}{}",
            output::bytes(total),
            available.unwrap_or_default()
        )?;
    }
    Ok(out)
}
