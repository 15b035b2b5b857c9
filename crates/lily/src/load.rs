//! From what the user named to a loaded model.

use crate::accelerator;
use crate::args::{self, Compute, ModelArgs};
use crate::hub::{self, HubId};
use crate::output::{self, seconds};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lily_device::Device;
use lily_engine::{Sampling, SamplingDefaults, TextModel};
use lily_model::gpu::{Activations, GpuModel, GpuOptions};
use lily_model::{CpuModel, CpuOptions, Model, Precision, Shape};
use lily_text::{ChatTemplate, Tokenizer};
use lily_weights::{Checkpoint, EmbeddedFile, Summary};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Aligns the bytes inside it, so that embedded weights need no copy.
#[repr(C, align(64))]
struct Aligned<Bytes: ?Sized>(Bytes);

static DEMO_WEIGHTS: &Aligned<[u8]> = &Aligned(*include_bytes!("../demo/model.safetensors"));

/// The demo model, as files.
static DEMO: &[EmbeddedFile] = &[
    EmbeddedFile { name: "config.json", bytes: include_bytes!("../demo/config.json") },
    EmbeddedFile { name: "model.safetensors", bytes: &DEMO_WEIGHTS.0 },
    EmbeddedFile { name: "tokenizer.json", bytes: include_bytes!("../demo/tokenizer.json") },
    EmbeddedFile {
        name: "tokenizer_config.json",
        bytes: include_bytes!("../demo/tokenizer_config.json"),
    },
    EmbeddedFile {
        name: "generation_config.json",
        bytes: include_bytes!("../demo/generation_config.json"),
    },
    EmbeddedFile {
        name: "chat_template.jinja",
        bytes: include_bytes!("../demo/chat_template.jinja"),
    },
];

/// A context that fits most machines; the checkpoint's own limit can be far beyond memory.
const CONTEXT_TOKENS_DEFAULT: usize = 32_768;

/// An opened checkpoint and how it was named.
pub(crate) struct Opened {
    pub(crate) checkpoint: Checkpoint,
    /// "demo", or the last part of the path.
    pub(crate) name: String,
    /// Seconds.
    pub(crate) seconds: f64,
}

/// Opens what `--model` names, with a progress bar on a terminal.
pub(crate) fn open(model: &str) -> Result<Opened> {
    let start = Instant::now();
    if model == "demo" {
        let checkpoint = Checkpoint::from_embedded(DEMO).context("the built-in demo is damaged")?;
        let seconds = start.elapsed().as_secs_f64();
        return Ok(Opened { checkpoint, name: "demo".to_owned(), seconds });
    }
    let dir = locate(model)?;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("loading {msg} [{bar:30}] {pos}/{len} files")
        .context("the progress bar's template is wrong")?;
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(model.to_owned());
    let checkpoint = Checkpoint::open_with_progress(&dir, &mut |progress| {
        bar.set_length(progress.files_total as u64);
        bar.set_position(progress.files_done as u64);
    });
    bar.finish_and_clear();
    let checkpoint =
        checkpoint.with_context(|| format!("the model `{model}` could not be opened"))?;
    let name =
        dir.file_name().map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into());
    let name = if dir == Path::new(model) { name } else { model.to_owned() };
    Ok(Opened { checkpoint, name, seconds: start.elapsed().as_secs_f64() })
}

/// A path as it is, or a hub id in the hub's cache.
fn locate(model: &str) -> Result<PathBuf> {
    // The shell leaves `--model=~/x` as it is.
    if let (Some(rest), Some(home)) = (model.strip_prefix("~/"), std::env::home_dir()) {
        return Ok(home.join(rest));
    }
    let path = PathBuf::from(model);
    let is_gguf = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    if path.exists() || path.is_absolute() || model.starts_with('.') || is_gguf {
        return Ok(path);
    }
    match HubId::parse(model) {
        Some(id) => id.locate(&hub::cache()?),
        None => bail!(
            "there is no model `{model}`: give `demo`, a directory with config.json and \
             .safetensors files, or a hub id such as ORG/NAME"
        ),
    }
}

/// A computing model and what is needed around it.
pub(crate) struct Loaded {
    pub(crate) model: Box<dyn Model>,
    pub(crate) text: Option<TextModel>,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// Bytes of the weights as stored.
    pub(crate) weight_bytes: u64,
}

/// Opens the checkpoint and prepares the device. Says on stderr what was loaded.
pub(crate) fn load(args: &ModelArgs, default: Compute, max_batch_tokens: usize) -> Result<Loaded> {
    let accelerator = accelerator::open(args.device)?;
    let Opened { checkpoint, name, seconds: opened_s } = open(&args.model)?;
    let text = text_model(&checkpoint)?;
    let summary = &checkpoint.summary;
    tracing::info!(
        target: crate::log::SAY,
        "loaded {name} ({} parameters, {}, {}) in {}",
        output::count(summary.text_parameters),
        main_storage(summary),
        output::bytes(summary.weight_bytes),
        seconds(opened_s),
    );
    if summary.copied_bytes > 0 {
        tracing::warn!(
            "{} of weights were misaligned and had to be copied",
            output::bytes(summary.copied_bytes)
        );
    }
    let (shape, weight_bytes) = (checkpoint.shape.clone(), summary.weight_bytes);
    let model = compute(args, default, max_batch_tokens, checkpoint, accelerator)?;
    Ok(Loaded { model, text, name, shape, weight_bytes })
}

/// How most parameters are stored: "4-bit g64".
fn main_storage(summary: &Summary) -> &str {
    let mut parameters: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, n) in summary.classes.iter().flat_map(|class| &class.storage) {
        *parameters.entry(name).or_default() += n;
    }
    parameters.into_iter().max_by_key(|&(_, n)| n).map_or("empty", |(name, _)| name)
}

/// The model on its device. `default` is what the verb wants of a CPU; a GPU takes its exact mode
/// where the CPU would.
pub(crate) fn compute(
    args: &ModelArgs,
    default: Compute,
    max_batch_tokens: usize,
    checkpoint: Checkpoint,
    accelerator: Option<Arc<dyn Device>>,
) -> Result<Box<dyn Model>> {
    let Some(device) = accelerator else {
        let options = cpu_options(args, default, max_batch_tokens)?;
        return Ok(Box::new(CpuModel::new(checkpoint.shape, checkpoint.weights, options)));
    };
    let activations = match args.compute.unwrap_or(default) {
        Compute::F32 => Activations::F32,
        Compute::Int8 if args.compute.is_some() => {
            bail!("--compute int8 is the CPU's; a GPU computes in bf16 or f32")
        }
        Compute::Bf16 | Compute::Int8 => Activations::Bf16,
    };
    let start = Instant::now();
    let line = accelerator::line(device.info());
    let options = GpuOptions { activations, max_batch_tokens };
    let model = match GpuModel::new(device, checkpoint.shape.clone(), &checkpoint.weights, options)
    {
        Ok(model) => model,
        Err(error) if args.device == args::Device::Auto => {
            tracing::warn!("computing on the CPU, because the GPU cannot: {error}");
            let options = cpu_options(args, default, max_batch_tokens)?;
            return Ok(Box::new(CpuModel::new(checkpoint.shape, checkpoint.weights, options)));
        }
        Err(error) => {
            return Err(error).context(
                "the model could not be brought to the device; --device cpu needs only memory of \
                 the machine",
            );
        }
    };
    tracing::info!(
        target: crate::log::SAY,
        "{} on {line} in {}",
        output::bytes(model.weight_bytes()),
        seconds(start.elapsed().as_secs_f64())
    );
    Ok(Box::new(model))
}

pub(crate) fn cpu_options(
    args: &ModelArgs,
    default: Compute,
    max_batch_tokens: usize,
) -> Result<CpuOptions> {
    let precision = match args.compute.unwrap_or(default) {
        Compute::F32 => Precision::F32,
        Compute::Int8 => Precision::Int8,
        Compute::Bf16 => bail!("--compute bf16 is a GPU's; the CPU computes in int8 or f32"),
    };
    let n_threads = args.threads.map_or_else(lily_cpu::physical_cores, usize::from);
    Ok(CpuOptions { n_threads, precision, max_batch_tokens })
}

/// Tokenizer, template and sampling defaults; `None` if the checkpoint has no tokenizer.
fn text_model(checkpoint: &Checkpoint) -> Result<Option<TextModel>> {
    let Some(tokenizer) = &checkpoint.tokenizer else { return Ok(None) };
    let tokenizer = Tokenizer::from_bytes(tokenizer).context("tokenizer.json could not be read")?;
    let template = match (&checkpoint.chat_template, &checkpoint.tokenizer_config) {
        (Some(source), _) => {
            Some(ChatTemplate::new(source).context("the chat template is broken")?)
        }
        (None, Some(config)) => ChatTemplate::from_tokenizer_config(config)
            .context("the chat template of tokenizer_config.json is broken")?,
        (None, None) => None,
    };
    let generation = &checkpoint.generation;
    let thinking = Sampling {
        temperature: generation.temperature,
        top_k: generation.top_k,
        top_p: generation.top_p,
        min_p: generation.min_p,
        presence_penalty: generation.presence_penalty,
        repetition_penalty: generation.repetition_penalty,
        ..Sampling::default()
    };
    // The values that the real model's card recommends for plain answers are for the real model.
    let is_full =
        checkpoint.shape == Shape { n_experts: checkpoint.shape.n_experts, ..Shape::qwen36_35b() };
    let defaults = if is_full {
        SamplingDefaults::from_generation_config(thinking)
    } else {
        SamplingDefaults { plain: thinking.clone(), thinking }
    };
    Ok(Some(TextModel {
        tokenizer: Arc::new(tokenizer),
        template: template.map(Arc::new),
        eos_token_ids: generation.eos_token_ids.clone(),
        defaults,
    }))
}

/// For verbs that need text: an error that says what is missing.
pub(crate) fn need_text(text: Option<TextModel>, name: &str) -> Result<TextModel> {
    text.with_context(|| {
        format!("the model `{name}` has no tokenizer.json; put it beside config.json")
    })
}

/// `--ctx`, or what the checkpoint was made for, within reason.
pub(crate) fn context_tokens(ctx: Option<usize>, shape: &Shape) -> Result<usize> {
    match ctx {
        None => Ok(shape.max_positions.min(CONTEXT_TOKENS_DEFAULT)),
        Some(0) => bail!("--ctx is 0; give at least 1 token"),
        Some(ctx) if ctx > shape.max_positions => bail!(
            "--ctx is {ctx}, but this checkpoint was made for {} tokens at most",
            shape.max_positions
        ),
        Some(ctx) => Ok(ctx),
    }
}
