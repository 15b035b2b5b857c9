//! Log-probabilities of what was given.

mod support;

use lily_engine::scripted::{ScriptedModel, config, engine};
use lily_engine::{Event, FinishReason, GenerateRequest, SubmitError};
use lily_text::TokenId;
use support::{Answer, answer, chat, sampled, text};

fn hashed() -> lily_engine::Engine {
    engine(ScriptedModel::hashed(), config(4, 8))
}

fn scored(prompt: &str, n_top: u8, max_tokens: usize) -> GenerateRequest {
    GenerateRequest { prompt_logprobs: Some(n_top), max_tokens: Some(max_tokens), ..text(prompt) }
}

/// What the model says of a token after a prompt, taken from an answer that must choose it.
fn by_generating(prompt: &str, next: TokenId) -> f32 {
    let mut request = GenerateRequest { logprobs: Some(0), max_tokens: Some(1), ..text(prompt) };
    request.sampling = sampled(1);
    request.sampling.logit_bias = vec![(next, 100.0)];
    let answer = answer(&hashed(), request);
    assert_eq!(answer.logprobs[0].id, next);
    answer.logprobs[0].logprob
}

#[test]
fn every_token_but_the_first_has_its_own() {
    // Three chunks of 64 or less.
    let prompt = "What is given. ".repeat(10);
    let answer = answer(&hashed(), scored(&prompt, 3, 2));
    let ids: Vec<TokenId> = answer.prompt_logprobs.iter().map(|token| token.id).collect();
    let bytes: Vec<TokenId> = prompt.bytes().map(TokenId::from).collect();
    assert_eq!(ids, bytes[1..]);
    for at in [1, 2, 63, 64, 65, 127, 128, 149] {
        let token = &answer.prompt_logprobs[at - 1];
        let expected = by_generating(&prompt[..at], bytes[at]);
        // Rounded twice to f32.
        assert!((token.logprob - expected).abs() < 1e-5, "{at}: {token:?}, not {expected}");
        assert_eq!(token.top.len(), 3);
        assert!(token.top.iter().all(|(_, logprob)| *logprob <= token.top[0].1));
    }
    assert_eq!(answer.summary().completion_tokens, 2, "and the answer follows");
}

#[test]
fn a_prompt_can_be_scored_alone() {
    let engine = hashed();
    let request = scored("What is given.", 0, 0);
    let alone = answer(&engine, request);
    assert_eq!(alone.prompt_logprobs.len(), 13);
    assert_eq!(alone.started.expect("it started").prompt_tokens, 14);
    assert_eq!((alone.n_steps, alone.summary().completion_tokens), (0, 0));
    assert_eq!(alone.summary().finish_reason, FinishReason::Length);
    let one = answer(&engine, scored("a", 5, 0));
    assert!(one.prompt_logprobs.is_empty(), "nothing comes before the first");
    assert_eq!(engine.stats().n_generated_tokens, 0);
    // The context has no room for a token more, and needs none.
    let small = lily_engine::EngineConfig { context_tokens: 100, ..config(1, 1) };
    let engine = lily_engine::scripted::engine(ScriptedModel::hashed(), small);
    let full = answer(&engine, scored(&"x".repeat(100), 0, 0));
    assert_eq!(full.prompt_logprobs.len(), 99);
}

#[test]
fn pieces_are_small_and_come_first() {
    let model = ScriptedModel::hashed();
    let passes = model.passes();
    let engine =
        engine(model, lily_engine::EngineConfig { prefill_chunk_tokens: 256, ..config(4, 8) });
    let running: Vec<_> =
        (0..3).map(|_| engine.submit(scored(&"x".repeat(150), 1, 1)).expect("accepted")).collect();
    for mut events in running {
        let mut n = 0;
        while let Some(event) = events.next_blocking() {
            match event {
                Event::PromptLogprobs(piece) => {
                    assert!(piece.len() <= 64);
                    n += piece.len();
                }
                Event::Started(_) => assert_eq!(n, 149),
                _ => {}
            }
        }
    }
    let most =
        passes.list().iter().map(|pass| pass.iter().map(|s| s.n_tokens).sum::<usize>()).max();
    assert!(most <= Some(64 + 2), "{most:?}");
}

#[test]
fn scores_do_not_depend_on_what_else_runs() {
    let prompts: Vec<String> = (1..8).map(|n| "abc defg".repeat(n * 3)).collect();
    let of = |answer: &Answer| {
        answer.prompt_logprobs.iter().map(|t| t.logprob.to_bits()).collect::<Vec<_>>()
    };
    let engine = hashed();
    let alone: Vec<_> =
        prompts.iter().map(|prompt| of(&answer(&engine, scored(prompt, 0, 3)))).collect();
    let together: Vec<_> = prompts
        .iter()
        .map(|prompt| engine.submit(scored(prompt, 0, 3)).expect("accepted"))
        .collect();
    assert_eq!(alone, together.into_iter().map(|e| of(&Answer::read(e))).collect::<Vec<_>>());
}

#[test]
fn conversations_are_not_scored() {
    let request = GenerateRequest { prompt_logprobs: Some(1), ..chat(false, &[]) };
    match hashed().submit(request) {
        Err(SubmitError::Invalid { field: "prompt_logprobs", .. }) => {}
        other => panic!("{other:?}"),
    }
}
