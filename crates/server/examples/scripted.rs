//! The real server with a model that answers from a script.
//!
//! ```text
//! cargo run -p lily-server --example scripted -- --script rules.json [--port 0]
//! ```
//!
//! For clients whose questions the demo model is too small to answer: agents that want a tool
//! called, libraries that want a certain object. Everything but the forward pass is real: the wire,
//! the demo's chat template, constraints, the parser of thinking and calls. The script is
//!
//! ```json
//! {"model": "scripted", "rules": [{"has": ["A"], "lacks": ["B"], "think": "Hm.", "answer": "TEXT"}]}
//! ```
//!
//! `endless` repeats an answer and `pace_us` slows it down. The first rule whose `has` are all in the rendered prompt, and none of whose `lacks`, gives the
//! answer, in the model's own wire format. Where the prompt opens the thinking block, `think` is
//! written first. Tokens are bytes, so prompts are long; the context is as large.
//!
//! Prints `{"url": …, "base_url": …, "model": …}` like `lily serve --json`, and ends when its
//! standard input does, so that it never outlives the test that started it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a test driver")]

use lily_engine::scripted::{self, Script, ScriptedModel};
use lily_engine::{Engine, EngineConfig, TextModel};
use lily_server::{ServerConfig, serve};
use lily_text::ChatTemplate;
use serde::Deserialize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Agents send up to 100 kB of instructions and tools, and a byte is a token.
const CONTEXT_TOKENS: usize = 1 << 20;
/// Passes of the scripted model cost by their number, not by their tokens.
const CHUNK_TOKENS: usize = 1 << 16;
const TEMPLATE: &str = include_str!("../../lily/demo/chat_template.jinja");
const USAGE: &str = "usage: scripted --script FILE.json [--port PORT]";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// The name to serve under.
    model: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    #[serde(default)]
    think: String,
    answer: String,
    /// Starts over instead of ending.
    #[serde(default)]
    endless: bool,
    /// Microseconds for each token.
    #[serde(default)]
    pace_us: u64,
}

impl Rule {
    fn applies(&self, prompt: &str) -> bool {
        self.has.iter().all(|part| prompt.contains(part))
            && !self.lacks.iter().any(|part| prompt.contains(part))
    }

    fn script(&self, prompt: &str) -> Script {
        let script = if ChatTemplate::opens_thinking(prompt) {
            Script::text(&format!("{}\n</think>\n\n{}", self.think, self.answer))
        } else {
            Script::text(&self.answer)
        };
        let script = script.paced(Duration::from_micros(self.pace_us));
        if self.endless { script.endless() } else { script }
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match Arguments::read(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

struct Arguments {
    script: String,
    port: u16,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut script, mut port) = (None, 0);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or(USAGE)?;
            match flag.as_str() {
                "--script" => script = Some(value),
                "--port" => {
                    port = value.parse().map_err(|e| format!("--port is `{value}`: {e}"))?;
                }
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(Self { script: script.ok_or(USAGE)?, port })
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let file = &arguments.script;
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file} cannot be read: {e}"))?;
    let Rules { model, rules } =
        serde_json::from_str(&text).map_err(|e| format!("{file} is no script: {e}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| format!("the async runtime cannot be started: {e}"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", arguments.port))
            .await
            .map_err(|e| format!("cannot listen on port {}: {e}", arguments.port))?;
        let address = listener.local_addr().map_err(|e| format!("no address: {e}"))?;
        let url = format!("http://{address}");
        let base_url = format!("{url}/v1");
        println!("{}", serde_json::json!({"url": url, "base_url": base_url, "model": model}));
        serve(listener, engine(rules), ServerConfig::new(model), stdin_ends())
            .await
            .map_err(|e| e.to_string())
    })
}

fn engine(rules: Vec<Rule>) -> Engine {
    let tokenizer = scripted::tokenizer();
    let answers = move |tokens: &[u32]| {
        let prompt = tokenizer.decode(tokens);
        if let Some(rule) = rules.iter().find(|rule| rule.applies(&prompt)) {
            return rule.script(&prompt);
        }
        // The test that waits for this answer shows what the script lacks.
        let tail: String = prompt.chars().rev().take(400).collect();
        let tail: String = tail.chars().rev().collect();
        tracing::warn!("no rule applies to the prompt that ends with: {tail}");
        Script::text("No rule applies.")
    };
    let template = ChatTemplate::new(TEMPLATE).expect("the demo's template is tested");
    let text = TextModel { template: Some(Arc::new(template)), ..scripted::text_model() };
    let config = EngineConfig {
        context_tokens: CONTEXT_TOKENS,
        prefill_chunk_tokens: CHUNK_TOKENS,
        ..scripted::config(8, 1024)
    };
    let model = ScriptedModel::by_prompt(answers).max_batch(CHUNK_TOKENS + 8);
    Engine::start(Box::new(model), text, config)
}

async fn stdin_ends() {
    let (ended, end) = tokio::sync::oneshot::channel();
    // A thread of its own: the runtime waits for its blocking tasks, and this one may never end.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
