//! What the tests of the engine share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use lily_engine::{
    ChatPrompt, Engine, EngineError, Event, Events, GenerateRequest, Prompt, PromptStats, Sampling,
    Summary, TokenLogprob,
};
use lily_text::{Delta, Message, RenderOptions, Role};
use std::time::{Duration, Instant};

/// An answer read to its end.
#[derive(Debug)]
pub struct Answer {
    pub prompt_logprobs: Vec<TokenLogprob>,
    pub started: Option<PromptStats>,
    pub deltas: Vec<Delta>,
    pub logprobs: Vec<TokenLogprob>,
    pub n_steps: usize,
    pub end: Result<Summary, EngineError>,
}

impl Answer {
    /// Reads the events and checks their order.
    pub fn read(mut events: Events) -> Self {
        let (mut prompt_logprobs, mut started) = (Vec::new(), None);
        let (mut deltas, mut logprobs, mut n_steps) = (Vec::new(), Vec::new(), 0);
        let end = loop {
            match events.next_blocking().expect("an end comes before the channel closes") {
                Event::PromptLogprobs(piece) => {
                    assert!(started.is_none(), "the prompt comes before the start");
                    prompt_logprobs.extend(piece);
                }
                Event::Started(stats) => {
                    assert!(started.replace(stats).is_none(), "one start");
                }
                Event::Step { deltas: new, logprobs: more } => {
                    assert!(started.is_some(), "the start comes first");
                    n_steps += 1;
                    deltas.extend(new);
                    logprobs.extend(more);
                }
                Event::Finished(summary) => break Ok(summary),
                Event::Failed(error) => break Err(error),
            }
        };
        assert!(events.next_blocking().is_none(), "nothing follows the end");
        Self { prompt_logprobs, started, deltas, logprobs, n_steps, end }
    }

    pub fn content(&self) -> String {
        self.deltas
            .iter()
            .filter_map(|d| if let Delta::Content(text) = d { Some(text.as_str()) } else { None })
            .collect()
    }

    pub fn reasoning(&self) -> String {
        self.deltas
            .iter()
            .filter_map(|d| if let Delta::Reasoning(text) = d { Some(text.as_str()) } else { None })
            .collect()
    }

    pub fn summary(&self) -> &Summary {
        self.end.as_ref().expect("it finishes")
    }

    pub fn error(&self) -> &EngineError {
        self.end.as_ref().expect_err("it fails")
    }
}

pub fn text(prompt: &str) -> GenerateRequest {
    GenerateRequest::new(Prompt::Text(prompt.to_owned()))
}

/// A question to a model that thinks, or that does not, with these tools.
pub fn chat(enable_thinking: bool, tools: &[serde_json::Value]) -> GenerateRequest {
    let options =
        RenderOptions { enable_thinking: Some(enable_thinking), ..RenderOptions::for_answer() };
    let messages = vec![Message::text(Role::User, "hi")];
    GenerateRequest::new(Prompt::Chat(ChatPrompt::new(messages, tools.to_vec(), options)))
}

pub fn sampled(seed: u64) -> Sampling {
    Sampling { temperature: Some(1.0), seed: Some(seed), ..Sampling::default() }
}

pub fn answer(engine: &Engine, request: GenerateRequest) -> Answer {
    Answer::read(engine.submit(request).expect("accepted"))
}

/// Waits for what another thread brings about.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::yield_now();
    }
}
