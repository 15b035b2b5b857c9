//! The command line: one file per verb.

mod accelerator;
mod args;
mod bench;
mod chat;
mod doctor;
mod eval;
mod hub;
mod inspect;
mod load;
mod log;
mod machine;
mod output;
mod serve;
mod serve_access;

use anyhow::{Result, bail};
use args::{Cli, EvalVerb, Verb};
use clap::Parser;
use output::note;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(&cli.log, default_log(&cli.verb));
    match run(cli.verb) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output may stop when it has enough.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        // The shell's number for a command ended by Ctrl-C.
        Err(error) if error.is::<chat::Interrupted>() => ExitCode::from(130),
        Err(error) => {
            note!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A server reports each request; in a terminal that would stand between the lines of a chat.
fn default_log(verb: &Verb) -> &'static str {
    match verb {
        Verb::Serve(_) => "warn,lily::say=info,lily_server=info",
        _ => "warn,lily::say=info",
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
            "this version cannot download `{}` yet; fetch it with another tool, for example with \
             `{}`, and run `lily chat -m {}` or give the directory",
            args.id,
            hub::HubId::parse(&args.id)
                .map_or_else(|| "hf download ORG/NAME".to_owned(), |id| id.download_command()),
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
