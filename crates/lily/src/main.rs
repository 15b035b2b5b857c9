//! The command line: one file per verb.

#![expect(clippy::print_stderr, reason = "a program talks to its user on stderr")]

mod args;
mod bench;
mod chat;
mod doctor;
mod eval;
mod inspect;
mod load;
mod machine;
mod output;
mod serve;

use anyhow::{Result, bail};
use args::{Cli, EvalVerb, LogArgs, Verb};
use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(&cli.log, &cli.verb);
    match run(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output may stop when it has enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Chat(args) => chat::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Eval(args) => match args.what {
            EvalVerb::Perplexity(args) => eval::perplexity(&args),
            EvalVerb::Logits(args) => eval::logits(&args),
            EvalVerb::Agreement(args) => eval::agreement(&args),
        },
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Pull(args) => bail!(
            "this version cannot download `{}` yet; fetch it with another tool, for example \
             `hf download {}`, and run `lily chat -m {}` or give the directory",
            args.id,
            args.id,
            args.id
        ),
        Verb::Convert(args) => bail!(
            "this version cannot convert {} to {} yet; convert it with `mlx_lm.convert` and give \
             the resulting directory to -m",
            args.from.display(),
            args.to.display()
        ),
    }
}

/// Logs go to stderr: human lines on a terminal, and JSON on request.
fn start_log(args: &LogArgs, verb: &Verb) {
    // A server reports each request; in a terminal that would stand between the lines of a chat.
    let default = if matches!(verb, Verb::Serve(_)) { "warn,lily_server=info" } else { "warn" };
    let level = args.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(level).unwrap_or_else(|error| {
        eprintln!("warning: the log filter `{level}` is ignored: {error}");
        EnvFilter::new("warn")
    });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if args.log_json {
        log.json().init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
    }
}
