//! What can be typed.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// An inference engine for exactly one model: Qwen3.6-35B-A3B.
///
/// Without a model of your own, every command uses a tiny demo model that is built in:
/// try `lily chat`.
#[derive(Debug, Parser)]
#[command(version = VERSION, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("LILY_COMMIT"));

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Chat in the terminal, or answer one prompt
    Chat(ChatArgs),
    /// Serve an OpenAI-compatible API on this machine
    Serve(ServeArgs),
    /// Measure how fast prompts are read and tokens are written
    Bench(BenchArgs),
    /// Score a model, or write its logits
    Eval(EvalArgs),
    /// Show what is in a checkpoint and whether it fits this machine
    Inspect(InspectArgs),
    /// Show what this machine has and which devices can be used
    Doctor(DoctorArgs),
    /// Download a checkpoint (not built yet)
    Pull(PullArgs),
    /// Convert a checkpoint (not built yet)
    Convert(ConvertArgs),
}

#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// What to log on stderr: error, warn, info, debug, trace, or a filter like `lily_engine=debug`
    #[arg(
        long,
        global = true,
        env = "LILY_LOG",
        value_name = "LEVEL",
        value_parser = crate::log::check_filter,
        help_heading = "Logging"
    )]
    pub(crate) log: Option<String>,

    /// Log one JSON object per line
    #[arg(long, global = true, help_heading = "Logging")]
    pub(crate) log_json: bool,
}

/// Which model, computed where.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArgs {
    /// `demo` (built in), a directory with config.json and .safetensors files, or a hub id that is
    /// already in the hub cache
    #[arg(short, long, default_value = "demo", value_name = "MODEL")]
    pub(crate) model: String,

    /// Where to compute
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    pub(crate) device: Device,

    /// CPU threads [default: one per physical core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Arithmetic [default: int8 on the CPU, bf16 on a GPU; f32 for eval logits and perplexity]
    #[arg(long, value_enum)]
    pub(crate) compute: Option<Compute>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The best that works here
    Auto,
    /// Apple GPU
    Metal,
    /// NVIDIA GPU
    Cuda,
    /// CPU with SIMD
    Cpu,
    /// The GPU kernels simulated on the CPU: slow, for tests; needs a C++ compiler
    Sim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compute {
    /// Exact reference, f32 KV cache
    F32,
    /// GPU: activations and KV cache in bf16
    Bf16,
    /// CPU: activations rounded to 8 bits where weights are quantised, bf16 KV cache
    Int8,
}

/// How the next token is chosen; what is left out comes from the checkpoint.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temp: Option<f32>,

    /// Only the K most likely tokens; 0 is off
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<u32>,

    /// Only the most likely tokens that together have this probability; 1 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f32>,

    /// Only tokens with at least this fraction of the best one's probability; 0 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) min_p: Option<f32>,

    /// Makes the answer reproducible
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    /// Answer this and leave. Text on standard input is added after it
    pub(crate) prompt: Option<String>,

    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Tokens of prompt and answer together [default: what the checkpoint was made for, at most
    /// 32768]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) ctx: Option<usize>,

    /// System message, or @FILE to read it from a file
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// Think before answering
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) think: Option<Switch>,

    /// Longest answer, thinking included
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_tokens: Option<usize>,

    /// Print the answer as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,

    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,

    /// Tokens that one request may use, prompt and answer together [default: what the checkpoint
    /// was made for, at most 32768]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) ctx: Option<usize>,

    /// Requests computed at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) max_running: u16,

    /// Requests waiting beyond those; more are refused with 429
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(0..=8192))]
    pub(crate) max_queued: u16,

    /// Memory for prompts that were read, so that the next turn of a conversation reads only what is
    /// new; such as 512M or 4G, 0 for none [default: an eighth of the
    /// memory that is free, at most 8G; 4G on a GPU]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) cache_ram: Option<u64>,

    /// Longest time for a request in seconds, waiting included
    #[arg(long, value_name = "SECONDS")]
    pub(crate) deadline: Option<u64>,

    /// Name of the model in the API [default: the last part of MODEL]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Write requests with their prompts to the log
    #[arg(long)]
    pub(crate) log_prompts: bool,

    /// Append to FILE, for each answer, the rendered prompt, the raw text and what was made of it,
    /// one JSON object a line: what a report of a wrong tool call needs
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Key that clients must send; may be given several times. Others on this machine see it in
    /// the list of processes: prefer --api-key-file or the variable
    #[arg(
        long,
        value_name = "KEY",
        env = "LILY_API_KEY",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub(crate) api_key: Vec<String>,

    /// File with such keys, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,

    /// Listen beyond this machine without any key
    #[arg(long)]
    pub(crate) allow_anyone: bool,

    /// Let web pages of this origin (like `https://app.example`) use the server; may be given
    /// several times, `*` is any
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Vec<String>,

    /// Accept this name of the host in requests, beside localhost: for a proxy in front; may be
    /// given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,

    /// Print the address as one JSON object on stdout when ready
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Random weights of this shape instead of a model
    #[arg(long, value_enum, requires = "random")]
    pub(crate) shape: Option<ShapeName>,

    /// Make random weights in memory
    #[arg(long, requires = "shape")]
    pub(crate) random: bool,

    /// Experts per layer of the random weights; the 35B has 256, with fewer it needs less memory
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(8..=256))]
    pub(crate) experts: u16,

    /// Bits of the random weights
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=8))]
    pub(crate) bits: u8,

    /// Group size of the random weights
    #[arg(long, value_enum, default_value_t = Group::G64)]
    pub(crate) group: Group,

    /// Prompt lengths to measure; 0 for none
    #[arg(long, value_delimiter = ',', default_value = "512", value_name = "N,…")]
    pub(crate) prompt: Vec<usize>,

    /// Tokens to decode per measurement; 0 for none
    #[arg(long = "gen", default_value_t = 32, value_name = "N")]
    pub(crate) n_decoded: usize,

    /// Contexts after which to decode
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "N,…")]
    pub(crate) ctx_depth: Vec<usize>,

    /// Repetitions; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) reps: u16,

    /// Tokens of a prefill chunk
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=8192))]
    pub(crate) chunk: u16,

    /// Seed of the random weights
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    #[value(name = "32")]
    G32,
    #[value(name = "64")]
    G64,
    #[value(name = "128")]
    G128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShapeName {
    /// Qwen3.6-35B-A3B
    #[value(name = "35b")]
    Full,
}

#[derive(Args, Debug)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    pub(crate) what: EvalVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EvalVerb {
    /// How well a model predicts a text
    Perplexity(PerplexityArgs),
    /// Write the logits of a prompt to a safetensors file
    Logits(LogitsArgs),
    /// How often two models choose the same token, over a text
    Agreement(AgreementArgs),
}

#[derive(Args, Debug)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Token ids, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = |text: &str| text.trim().parse::<u32>(),
        required_unless_present = "ids_file",
        value_name = "ID,…"
    )]
    pub(crate) ids: Vec<u32>,

    /// File with token ids, separated by commas or white space
    #[arg(long, conflicts_with = "ids", value_name = "FILE")]
    pub(crate) ids_file: Option<PathBuf>,

    /// The file to write: one f32 tensor `logits`, [tokens, vocabulary]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,

    /// Tokens of a prefill chunk
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=8192))]
    pub(crate) chunk: u16,

    /// Print what was done as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AgreementArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// The model to compare with, named as in --model; the reference
    #[arg(long, value_name = "MODEL")]
    pub(crate) with: String,

    /// Arithmetic of the reference [default: f32]
    #[arg(long, value_enum)]
    pub(crate) with_compute: Option<Compute>,

    #[command(flatten)]
    pub(crate) text: TextArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TextArgs {
    /// The text
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Tokens that the model sees at once
    #[arg(long, default_value_t = 2048, value_name = "TOKENS")]
    pub(crate) window: usize,

    /// Tokens between the starts of two windows; the rest of a window is context
    #[arg(long, default_value_t = 1024, value_name = "TOKENS")]
    pub(crate) stride: usize,

    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Another context length to show the memory of
    #[arg(long, value_name = "TOKENS")]
    pub(crate) ctx: Option<u64>,

    /// Print everything as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Test this device: compile every kernel, compare it with plain loops, run the demo on it
    #[arg(long, value_enum)]
    pub(crate) device: Option<Device>,

    /// Random cases of each kernel
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) cases: u16,

    /// Draws other cases
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Only kernels whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,

    /// Print everything as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Hub id, such as ORG/NAME or ORG/NAME@REVISION
    pub(crate) id: String,
}

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// The checkpoint to convert
    pub(crate) from: PathBuf,
    /// Where to write the result
    pub(crate) to: PathBuf,
}
/// Bytes: a number, or one with K, M, G or T for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_end_matches("IB").trim_end_matches('B');
    let (digits, shift) = match digits.chars().next_back() {
        Some('K') => (&digits[..digits.len() - 1], 10),
        Some('M') => (&digits[..digits.len() - 1], 20),
        Some('G') => (&digits[..digits.len() - 1], 30),
        Some('T') => (&digits[..digits.len() - 1], 40),
        _ => (digits, 0),
    };
    let number = digits.trim().parse::<u64>();
    let bytes = number.ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "a size is a whole number with K, M, G or T, such as 512M or 4G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("1024"), Ok(1024));
        assert_eq!(size(" 4G "), Ok(4 << 30));
        assert_eq!(size("512 MiB"), Ok(512 << 20));
        assert_eq!(size("2kb"), Ok(2048));
        for bad in ["", "G", "-1", "1.5G", "4X", "99999999999T", "é", "1é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
