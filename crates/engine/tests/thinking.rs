//! How long an answer thinks, and answers that go on from what is there.

mod support;

use lily_engine::scripted::{Script, ScriptedModel, config, engine, text_model, tokenizer};
use lily_engine::{ChatPrompt, Constraint, Engine, GenerateRequest, Prompt, Sampling, SubmitError};
use lily_text::{Content, Message, Part, RenderOptions, Role, ToolCall};
use serde_json::Map;
use std::sync::{Arc, Mutex};
use support::{Answer, answer, chat, sampled, text};

fn saying(says: &str) -> Engine {
    engine(ScriptedModel::new(Script::text(says)), config(4, 4))
}

fn thought(says: &str, budget: usize) -> Answer {
    let request =
        GenerateRequest { thinking_budget: Some(budget), max_tokens: Some(60), ..chat(true, &[]) };
    answer(&saying(says), request)
}

fn said(answer: &Answer) -> String {
    tokenizer().decode(&answer.summary().token_ids)
}

/// The scripted model goes on with its script whatever was forced: a token a position.
const LONG: &str = "one two three four five six seven eight</think>\n\nnever said";

#[test]
fn a_budget_closes_the_block_and_the_answer_goes_on() {
    let answer = thought(LONG, 7);
    assert_eq!(answer.reasoning(), "one two");
    assert!(said(&answer).starts_with("one two\n</think>\n\n"), "{}", said(&answer));
    assert_eq!(answer.summary().reasoning_tokens, 8, "the newline before the tag is one");
    // Four tokens were forced instead of " thr".
    assert_eq!(answer.content(), LONG["one two thr".len()..]);
}

#[test]
fn a_budget_of_none_closes_it_at_once() {
    let answer = thought(LONG, 0);
    assert_eq!(answer.reasoning(), "");
    assert!(said(&answer).starts_with("\n</think>\n\n"), "{}", said(&answer));
}

#[test]
fn a_budget_that_is_not_reached_changes_nothing() {
    let says = "so so</think>\n\nyes";
    let answer = thought(says, 6);
    assert_eq!((answer.reasoning().as_str(), answer.content().as_str()), ("so so", "yes"));
    assert_eq!(said(&answer), format!("{says}<|im_end|>"));
    assert_eq!(thought(says, 5).reasoning(), "so so");
    assert_eq!(thought(says, 4).reasoning(), "so s");
}

#[test]
fn answers_without_thinking_have_no_budget() {
    let budget = |request| GenerateRequest { thinking_budget: Some(0), ..request };
    assert_eq!(answer(&saying("yes"), budget(chat(false, &[]))).content(), "yes");
    assert_eq!(answer(&saying("yes"), budget(text("q"))).content(), "yes");
}

#[test]
fn a_budget_holds_with_penalties_and_draws() {
    let sampling =
        Sampling { presence_penalty: Some(1.5), repetition_penalty: Some(1.2), ..sampled(3) };
    let engine = engine(ScriptedModel::hashed(), config(2, 4));
    let request = GenerateRequest {
        sampling,
        thinking_budget: Some(9),
        max_tokens: Some(40),
        logprobs: Some(1),
        ignore_eos: true,
        ..chat(true, &[])
    };
    let answer = answer(&engine, request);
    let ids = &answer.summary().token_ids;
    let closing = tokenizer().encode("\n</think>\n\n").expect("any text");
    let close = tokenizer().token_id("</think>");
    let at = ids.iter().position(|id| Some(*id) == close).expect("it is closed");
    assert!(at <= 10, "after nine tokens and a newline: {ids:?}");
    assert!(at < 10 || ids[9..].starts_with(&closing), "{ids:?}");
    assert_eq!(ids.len(), 40, "the forced tokens count");
    assert_eq!(answer.logprobs.len(), 40);
}

#[test]
fn the_form_follows_the_forced_end() {
    let constraint = Some(Constraint::Regex("[a-z]{3}".to_owned()));
    let request = GenerateRequest {
        constraint,
        thinking_budget: Some(3),
        max_tokens: Some(60),
        ..chat(true, &[])
    };
    let answer = answer(&saying("one two three four"), request);
    assert_eq!(answer.reasoning(), "one");
    assert_eq!(answer.content().len(), 3, "{answer:?}");
}

fn continued(messages: Vec<Message>) -> GenerateRequest {
    let options = RenderOptions { enable_thinking: Some(true), ..RenderOptions::for_answer() };
    let chat = ChatPrompt {
        continue_final_message: true,
        ..ChatPrompt::new(messages, Vec::new(), options)
    };
    GenerateRequest::new(Prompt::Chat(chat))
}

fn turns(last: &str) -> Vec<Message> {
    vec![Message::text(Role::User, "hi"), Message::text(Role::Assistant, last)]
}

/// The prompt that the model saw, and the answer.
fn seen(request: GenerateRequest) -> (String, Answer) {
    let prompt = Arc::new(Mutex::new(String::new()));
    let copy = Arc::clone(&prompt);
    let model = ScriptedModel::by_prompt(move |ids| {
        *copy.lock().expect("not poisoned") = tokenizer().decode(ids);
        Script::text(" and more")
    });
    let answer = answer(&engine(model, config(1, 1)), request);
    let prompt = prompt.lock().expect("not poisoned").clone();
    (prompt, answer)
}

#[test]
fn an_answer_goes_on_from_the_last_turn() {
    let start = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    for last in ["Once upon", "Once upon \n", "a <b", "é <|im_end|> é", "x\u{e000}"] {
        let (prompt, answer) = seen(continued(turns(last)));
        assert_eq!(prompt, format!("{start}{}", last.trim_end()));
        assert_eq!(answer.content(), " and more", "only the continuation");
        assert_eq!(answer.reasoning(), "");
        assert_eq!(answer.summary().prompt.prompt_tokens, {
            let template = text_model().template.expect("there is one");
            let ids = template
                .encode_continued(&tokenizer(), &turns(last), &[], &RenderOptions::for_answer())
                .expect("it renders");
            assert!(!ids.contains(&258) || ids.iter().filter(|id| **id == 258).count() == 1);
            ids.len()
        });
    }
}

#[test]
fn parts_of_the_last_turn_are_continued_after_the_last() {
    let template = lily_text::ChatTemplate::new(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for p in m.content %}{{ p.text | trim }}\
         {% endfor %}<|im_end|>\n{% endfor %}",
    )
    .expect("valid");
    let mut last = Message::text(Role::Assistant, "");
    last.content = Content::Parts(vec![Part::Text("a ".into()), Part::Text("b ".into())]);
    let ids = template
        .encode_continued(&tokenizer(), &[last], &[], &RenderOptions::for_answer())
        .expect("it renders");
    assert_eq!(tokenizer().decode(&ids), "<|im_start|>assistant\nab");
}

#[test]
fn the_block_of_an_earlier_thinking_is_before_what_is_continued() {
    let template = lily_text::ChatTemplate::new(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n\
         {% if m.role == 'assistant' %}{% set parts = m.content.split('</think>') %}\
         <think>\n{{ m.reasoning_content or parts[0] if parts | length > 1 else '' }}\n</think>\n\n\
         {{ parts[-1] | trim }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}",
    )
    .expect("valid");
    let render = |last: &str| {
        let messages = turns(last);
        let options = RenderOptions::for_answer();
        let ids = template.encode_continued(&tokenizer(), &messages, &[], &options);
        tokenizer().decode(&ids.expect("it renders"))
    };
    assert!(render("Once").ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\nOnce"));
    assert!(render("hm</think>Once").ends_with("<think>\nhm\n</think>\n\nOnce"));
}

#[test]
fn only_text_of_the_assistant_can_be_continued() {
    let engine = saying("x");
    let check = |messages: Vec<Message>, part: &str| match engine.submit(continued(messages)) {
        Err(error @ SubmitError::Invalid { field: "messages", .. }) => {
            assert!(error.to_string().contains(part), "{error}");
        }
        other => panic!("{other:?}"),
    };
    check(vec![], "nothing");
    check(vec![Message::text(Role::User, "hi")], "user");
    check(turns(" \n"), "empty");
    let call = ToolCall { id: None, name: "f".into(), arguments: Map::new() };
    let mut calling = turns("text");
    calling[1].tool_calls.push(call);
    check(calling, "tool call");
    let mut picture = turns("text");
    picture[1].content = Content::Parts(vec![Part::Text("a".into()), Part::Image]);
    check(picture, "part");
}
