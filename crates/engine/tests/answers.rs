//! What comes out for what the model says.

mod support;

use lily_engine::scripted::{END, Script, ScriptedModel, config, engine, text_model, tokenizer};
use lily_engine::{
    Engine, EngineError, FinishReason, GenerateRequest, Prompt, Sampling, SamplingDefaults,
    SubmitError,
};
use lily_text::Delta;
use serde_json::json;
use support::{Answer, answer, chat, sampled, text};

fn saying(script: Script) -> Engine {
    engine(ScriptedModel::new(script), config(4, 4))
}

fn ask(says: &str, request: GenerateRequest) -> Answer {
    answer(&saying(Script::text(says)), request)
}

#[test]
fn text_comes_in_whole_characters_and_the_end_has_none() {
    let answer = ask("héllo 🌷", text("Say hello"));
    assert_eq!(answer.content(), "héllo 🌷");
    assert!(
        answer.deltas.iter().all(|d| matches!(d, Delta::Content(c) if !c.contains('\u{fffd}')))
    );
    let summary = answer.summary();
    assert_eq!(summary.finish_reason, FinishReason::Stop);
    assert_eq!(summary.completion_tokens, "héllo 🌷".len() + 1);
    assert_eq!(summary.token_ids.last(), Some(&END));
    assert_eq!(summary.reasoning_tokens, 0);
    assert_eq!(summary.stop_string, None);
    assert_eq!(summary.prompt.prompt_tokens, "Say hello".len());
    assert_eq!(answer.started.expect("it started").prompt_tokens, 9);
    assert_eq!(answer.n_steps, summary.completion_tokens, "one step a token");
    for seconds in [summary.prompt.queued_s, summary.prompt.prefill_s, summary.decode_s] {
        assert!((0.0..20.0).contains(&seconds));
    }
}

#[test]
fn token_prompts_are_taken_as_they_are() {
    let answer = ask("x", GenerateRequest::new(Prompt::Tokens(vec![1, END, 3])));
    assert_eq!(answer.summary().prompt.prompt_tokens, 3);
    assert_eq!(answer.content(), "x");
}

#[test]
fn a_character_cut_by_the_limit_is_replaced() {
    let answer = ask("a🌷", GenerateRequest { max_tokens: Some(3), ..text("x") });
    assert_eq!(answer.content(), "a\u{fffd}");
    assert_eq!(answer.summary().finish_reason, FinishReason::Length);
    assert_eq!(answer.summary().completion_tokens, 3);
}

#[test]
fn special_tokens_have_no_text() {
    assert_eq!(ask("a<|im_start|>b", text("x")).content(), "ab");
    assert_eq!(ask("a<think>b", text("x")).content(), "a<think>b", "the tag is not special");
}

#[test]
fn reasoning_is_told_apart_and_counted() {
    let answer = ask("so so</think>\n\nyes", chat(true, &[]));
    assert_eq!((answer.reasoning().as_str(), answer.content().as_str()), ("so so", "yes"));
    assert_eq!(answer.summary().reasoning_tokens, 5, "without the tag");
    let answer = ask("no thoughts", chat(false, &[]));
    assert_eq!((answer.reasoning().as_str(), answer.content().as_str()), ("", "no thoughts"));
    assert_eq!(answer.summary().reasoning_tokens, 0);
}

#[test]
fn reasoning_without_an_end_is_all_there_is() {
    let answer = ask("hmm hmm", GenerateRequest { max_tokens: Some(4), ..chat(true, &[]) });
    assert_eq!((answer.reasoning().as_str(), answer.content().as_str()), ("hmm", ""));
    assert_eq!(answer.summary().finish_reason, FinishReason::Length);
}

const CALL: &str =
    "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";

fn add_tool() -> serde_json::Value {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    json!({"type": "function", "function": {"name": "add", "parameters": parameters}})
}

#[test]
fn tool_calls_are_parsed_and_end_the_answer_as_such() {
    let answer = ask(&format!("Adding.\n\n{CALL}"), chat(false, &[add_tool()]));
    assert_eq!(answer.content().trim_end(), "Adding.");
    let name = |d: &Delta| matches!(d, Delta::ToolCallStart { index: 0, name } if name == "add");
    assert_eq!(answer.deltas.iter().filter(|d| name(d)).count(), 1);
    let arguments: String = answer
        .deltas
        .iter()
        .filter_map(|d| {
            if let Delta::ToolCallArguments { json, .. } = d { Some(json.as_str()) } else { None }
        })
        .collect();
    let arguments: serde_json::Value = serde_json::from_str(&arguments).expect("valid JSON");
    assert_eq!(arguments, json!({"a": 1}));
    assert_eq!(answer.summary().finish_reason, FinishReason::ToolCalls);
}

#[test]
fn a_call_cut_by_the_limit_is_not_an_end_by_calls() {
    let request = GenerateRequest { max_tokens: Some(30), ..chat(false, &[add_tool()]) };
    assert_eq!(ask(CALL, request).summary().finish_reason, FinishReason::Length);
}

#[test]
fn without_tools_a_call_is_text() {
    let answer = ask(CALL, chat(false, &[]));
    assert_eq!(answer.content(), CALL);
    assert_eq!(answer.summary().finish_reason, FinishReason::Stop);
    assert_eq!(ask(CALL, text("x")).content(), CALL);
}

fn stopped_by(says: &str, stop: &[&str], request: GenerateRequest) -> (String, Option<String>) {
    let stop = stop.iter().map(ToString::to_string).collect();
    let answer = ask(says, GenerateRequest { stop, ..request });
    assert_eq!(answer.summary().finish_reason, FinishReason::Stop);
    (answer.content(), answer.summary().stop_string.clone())
}

#[test]
fn stop_strings_end_the_answer_before_them() {
    let yes = |text: &str, stop: &str| (text.to_owned(), Some(stop.to_owned()));
    let no = |text: &str| (text.to_owned(), None);
    assert_eq!(stopped_by("one STOP two", &["STOP"], text("x")), yes("one ", "STOP"));
    assert_eq!(stopped_by("one STO", &["STOP"], text("x")), no("one STO"));
    assert_eq!(stopped_by("a🌷b", &["zz", "🌷"], text("x")), yes("a", "🌷"));
    assert_eq!(stopped_by("a<think>b", &["<think>"], text("x")), yes("a", "<think>"));
}

#[test]
fn a_stop_string_can_name_a_special_token() {
    let found = stopped_by("one <|im_start|>two", &["<|im_start|>", "one  "], text("x"));
    assert_eq!(found, ("one ".to_owned(), Some("<|im_start|>".to_owned())));
    let found = stopped_by("one<|im_end|>two", &["<|im_end|>"], text("x"));
    assert_eq!(found, ("one".to_owned(), None), "the end of every answer");
}

#[test]
fn stop_strings_are_looked_for_in_content_only() {
    let says = "STOP</think>\n\nfirst STOP";
    let found = stopped_by(says, &["STOP"], chat(true, &[]));
    assert_eq!(found, ("first ".to_owned(), Some("STOP".to_owned())));
    let found = stopped_by("</think>a", &["</think>"], text("x"));
    assert_eq!(found, (String::new(), Some("</think>".to_owned())), "text prompts: in all");
}

#[test]
fn a_stop_string_inside_a_call_is_an_argument() {
    let request =
        GenerateRequest { stop: vec!["parameter".to_owned()], ..chat(false, &[add_tool()]) };
    let answer = ask(CALL, request);
    assert_eq!(answer.summary().finish_reason, FinishReason::ToolCalls);
    assert_eq!(answer.summary().stop_string, None);
}

#[test]
fn a_stop_string_at_the_length_limit_is_a_stop() {
    let request = GenerateRequest { max_tokens: Some(4), stop: vec!["cd".to_owned()], ..text("x") };
    let answer = ask("abcdef", request);
    assert_eq!(answer.content(), "ab");
    assert_eq!(answer.summary().finish_reason, FinishReason::Stop);
    assert_eq!(answer.summary().completion_tokens, 4);
}

#[test]
fn the_context_limits_an_answer_without_a_limit() {
    let engine = saying(Script::text("x").endless());
    let answer = answer(&engine, text(&"p".repeat(4_000)));
    assert_eq!(answer.summary().finish_reason, FinishReason::Length);
    assert_eq!(answer.summary().completion_tokens, 96);
    let full = answer_of_limits(&engine, 4_095);
    assert_eq!(full.expect("one token fits"), 1);
    assert!(matches!(
        answer_of_limits(&engine, 4_096),
        Err(SubmitError::TooLong { prompt_tokens: 4_096, context_tokens: 4_096 })
    ));
}

fn answer_of_limits(engine: &Engine, prompt_len: usize) -> Result<usize, SubmitError> {
    let events = engine.submit(text(&"p".repeat(prompt_len)))?;
    Ok(Answer::read(events).summary().completion_tokens)
}

#[test]
fn ignored_ends_have_no_text_either() {
    let request = GenerateRequest { ignore_eos: true, max_tokens: Some(10), ..text("x") };
    let answer = ask("ab", request);
    assert_eq!(answer.content(), "ab");
    assert_eq!(answer.summary().token_ids[2..], [END; 8]);
    assert_eq!(answer.summary().finish_reason, FinishReason::Length);
}

#[test]
fn every_end_token_ends() {
    let answer = ask("ab<|endoftext|>c", text("x"));
    assert_eq!(answer.content(), "ab");
    assert_eq!(answer.summary().completion_tokens, 3);
}

#[test]
fn logprobs_are_those_of_the_model() {
    let (a, b) = (u32::from(b'a'), u32::from(b'b'));
    let choice = [(a, 0.25f32.ln()), (b, 0.75f32.ln())];
    let engine = saying(Script::default().then_choice(&choice));
    let sampling =
        Sampling { temperature: Some(0.0), logit_bias: vec![(a, 50.0)], ..Sampling::default() };
    let answer = answer(&engine, GenerateRequest { logprobs: Some(2), sampling, ..text("x") });
    let [first, end] = &answer.logprobs[..] else { panic!("one a token: {:?}", answer.logprobs) };
    assert_eq!((first.id, end.id), (a, END));
    // A rounding of f32 for the logarithm and one for the normalisation.
    let close = |x: f32, p: f32| (x - p.ln()).abs() < 4.0 * f32::EPSILON;
    assert!(close(first.logprob, 0.25), "before the bias: {first:?}");
    assert_eq!([first.top[0].0, first.top[1].0], [b, a]);
    assert!(close(first.top[0].1, 0.75) && close(first.top[1].1, 0.25));
    assert!(close(end.logprob, 1.0));
}

#[test]
fn no_logprobs_unless_asked_for() {
    assert!(ask("ab", text("x")).logprobs.is_empty());
    let answer = ask("ab", GenerateRequest { logprobs: Some(0), ..text("x") });
    assert_eq!(answer.logprobs.len(), 3);
    assert!(answer.logprobs.iter().all(|l| l.top.is_empty()));
}

#[test]
fn rows_without_a_token_are_never_chosen() {
    let vocab_size = u32::try_from(tokenizer().vocab_size()).expect("small");
    let engine = engine(ScriptedModel::hashed(), config(4, 4));
    for sampling in [Sampling::default(), sampled(1)] {
        let request =
            GenerateRequest { sampling, ignore_eos: true, max_tokens: Some(300), ..text("x") };
        let answer = answer(&engine, request);
        assert!(answer.summary().token_ids.iter().all(|id| *id < vocab_size));
    }
}

#[test]
fn bad_logits_fail_their_request_only() {
    let model = ScriptedModel::by_prompt(|prompt| match prompt {
        [first, ..] if *first == u32::from(b'!') => Script::text("ab").then_logits(&[f32::NAN]),
        _ => Script::text("fine"),
    });
    let engine = engine(model, config(4, 4));
    let bad = engine.submit(text("!")).expect("accepted");
    let good = engine.submit(text("x")).expect("accepted");
    let bad = Answer::read(bad);
    assert_eq!(bad.content(), "ab");
    assert!(matches!(bad.error(), EngineError::Logits { .. }), "{:?}", bad.end);
    assert_eq!(Answer::read(good).content(), "fine");
}

#[test]
fn defaults_follow_the_thinking_mode() {
    let biased = |byte: u8| Sampling {
        temperature: Some(0.0),
        logit_bias: vec![(u32::from(byte), 50.0)],
        ..Sampling::default()
    };
    let mut side = text_model();
    side.defaults = SamplingDefaults { thinking: biased(b't'), plain: biased(b'p') };
    let script = Script::default().then_choice(&[(u32::from(b't'), 0.0), (u32::from(b'p'), 0.0)]);
    let engine = Engine::start(Box::new(ScriptedModel::new(script)), side, config(4, 4));
    assert_eq!(answer(&engine, chat(true, &[])).reasoning(), "t");
    assert_eq!(answer(&engine, chat(false, &[])).content(), "p");
    assert_eq!(answer(&engine, text("x")).content(), "p");
    assert_eq!(answer(&engine, text("<think>")).content(), "t");
}

#[test]
fn senseless_requests_are_refused() {
    let engine = saying(Script::text("x"));
    let refused = |request: GenerateRequest| engine.submit(request).expect_err("senseless");
    let invalid = |request| match refused(request) {
        SubmitError::Invalid { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(invalid(text("")), "prompt");
    assert_eq!(invalid(GenerateRequest::new(Prompt::Tokens(vec![265]))), "prompt");
    assert_eq!(invalid(GenerateRequest { max_tokens: Some(0), ..text("x") }), "max_tokens");
    let hot = Sampling { temperature: Some(1e9), ..Sampling::default() };
    assert_eq!(invalid(GenerateRequest { sampling: hot, ..text("x") }), "temperature");
    assert_eq!(engine.stats().n_requests, 0);

    let side = lily_engine::TextModel { template: None, ..text_model() };
    let bare = Engine::start(Box::new(ScriptedModel::hashed()), side, config(1, 1));
    assert!(matches!(bare.submit(chat(true, &[])), Err(SubmitError::NoTemplate)));
}
