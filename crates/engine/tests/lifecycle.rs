//! Queue, cancellation, deadlines, failures and the end of the engine.

mod support;

use lily_engine::scripted::{PastStep, Script, ScriptedModel, config, engine};
use lily_engine::{EngineEnd, EngineError, GenerateRequest, SubmitError};
use std::time::{Duration, Instant};
use support::{Answer, eventually, text};

fn endless() -> Script {
    Script::text("x").endless()
}

#[test]
fn the_queue_is_bounded_and_cancelled_requests_leave_it() {
    let (model, gate) = ScriptedModel::new(endless()).gated();
    let engine = engine(model, config(1, 1));
    let running = engine.submit(text("a")).expect("a free place");
    eventually("it runs", || engine.stats().n_running == 1);
    let waiting = engine.submit(text("b")).expect("a free place in the queue");
    assert_eq!(engine.stats().n_queued, 1);
    match engine.submit(text("c")) {
        Err(SubmitError::Busy { n_queued: 1, retry_after_s }) => assert!(retry_after_s >= 1),
        other => panic!("{other:?}"),
    }
    drop(waiting);
    let third = engine.submit(text("c")).expect("the second left");
    assert_eq!(engine.stats().n_cancelled, 1);
    drop((running, third));
    drop(gate);
    eventually("all are gone", || engine.stats().n_cancelled == 3);
    assert_eq!((engine.stats().n_running, engine.stats().n_queued), (0, 0));
    assert_eq!(engine.stats().n_requests, 3);
}

#[test]
fn without_a_queue_free_places_can_be_taken() {
    let (model, _gate) = ScriptedModel::new(endless()).gated();
    let engine = engine(model, config(2, 0));
    let _first = engine.submit(text("a")).expect("a free place");
    let _second = engine.submit(text("b")).expect("another");
    assert!(matches!(engine.submit(text("c")), Err(SubmitError::Busy { .. })));
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let engine = engine(ScriptedModel::new(endless()), config(1, 4));
    let mut leaving = engine.submit(text("a")).expect("accepted");
    assert!(leaving.next_blocking().is_some());
    drop(leaving);
    let next = GenerateRequest { max_tokens: Some(2), ..text("b") };
    assert_eq!(Answer::read(engine.submit(next).expect("accepted")).content(), "xx");
    assert!(engine.stats().n_cancelled <= 1, "it may have been done before it was noticed");
    assert_eq!((engine.stats().n_running, engine.stats().n_queued), (0, 0));
}

#[test]
fn a_client_that_leaves_while_its_prompt_is_read_frees_its_place() {
    let (model, gate) = ScriptedModel::new(endless()).gated();
    let passes = model.passes();
    let engine = engine(model, config(1, 4));
    let leaving = engine.submit(text(&"p".repeat(1_000))).expect("accepted");
    gate.open_for(2);
    eventually("two chunks are read", || passes.list().len() == 2);
    drop(leaving);
    drop(gate);
    eventually("it is gone", || engine.stats().n_cancelled == 1);
    // The pass that was waiting at the gate may still have been its own.
    assert!(passes.list().len() <= 3, "of sixteen chunks: {:?}", passes.list());
    assert_eq!(engine.stats().n_running, 0);
}

#[test]
fn answers_go_on_while_a_prompt_is_read() {
    let (model, gate) = ScriptedModel::new(endless()).gated();
    let passes = model.passes();
    let engine = engine(model, config(4, 4));
    let _decoding = engine.submit(text("a")).expect("accepted");
    gate.open_for(2);
    eventually("it decodes", || passes.list().len() == 2);
    let _reading = engine.submit(text(&"p".repeat(150))).expect("accepted");
    // One more pass may have been planned before the prompt came.
    gate.open_for(5);
    eventually("five passes on", || passes.list().len() == 7);
    let list = passes.list();
    assert!(list[2..].iter().all(|pass| pass[0] == PastStep { sequence: 0, n_tokens: 1 }));
    let chunks: Vec<usize> =
        list.iter().filter_map(|pass| pass.get(1)).map(|step| step.n_tokens).collect();
    assert_eq!(chunks[..4], [64, 64, 22, 1]);
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    let (model, gate) = ScriptedModel::new(endless()).gated();
    let passes = model.passes();
    let engine = engine(model, config(4, 4));
    let _long = engine.submit(text(&"p".repeat(2_000))).expect("accepted");
    gate.open_for(1);
    eventually("one chunk is read", || passes.list().len() == 1);
    let mut short = engine.submit(text(&"q".repeat(70))).expect("accepted");
    gate.open_for(8);
    assert!(short.next_blocking().is_some(), "started within eight of thirty chunks");
}

#[test]
fn draining_finishes_what_was_accepted() {
    let (model, gate) = ScriptedModel::new(Script::text("all of it")).gated();
    let engine = engine(model, config(1, 4));
    let accepted: Vec<_> = (0..3).map(|_| engine.submit(text("a")).expect("accepted")).collect();
    let handle = engine.clone();
    let draining = std::thread::spawn(move || handle.drain());
    eventually("it drains", || matches!(engine.submit(text("b")), Err(SubmitError::Stopped)));
    assert!(engine.is_alive());
    drop(gate);
    for events in accepted {
        assert_eq!(Answer::read(events).content(), "all of it");
    }
    draining.join().expect("it drains");
    assert_eq!(engine.wait(), EngineEnd::Drained);
    assert!(!engine.is_alive());
}

#[test]
fn stopping_fails_everything() {
    let engine =
        engine(ScriptedModel::new(endless().paced(Duration::from_micros(100))), config(1, 4));
    let accepted: Vec<_> = (0..3).map(|_| engine.submit(text("a")).expect("accepted")).collect();
    eventually("one runs", || engine.stats().n_generated_tokens > 0);
    engine.stop();
    for events in accepted {
        assert!(matches!(Answer::read(events).error(), EngineError::Stopped));
    }
    assert!(matches!(engine.submit(text("b")), Err(SubmitError::Stopped)));
    assert_eq!(engine.wait(), EngineEnd::Stopped);
    assert_eq!((engine.stats().n_running, engine.stats().n_queued), (0, 0));
    engine.drain();
    engine.stop();
}

#[test]
fn answers_outlive_the_last_handle() {
    let engine = engine(ScriptedModel::new(Script::text("still here")), config(1, 4));
    let events = engine.submit(text("a")).expect("accepted");
    drop(engine);
    assert_eq!(Answer::read(events).content(), "still here");
}

#[test]
fn a_panic_fails_everything_and_ends_the_engine() {
    let engine = engine(
        ScriptedModel::by_prompt(|prompt| match prompt.first() {
            Some(33) => Script::text("ab").then_panic(),
            _ => endless(),
        }),
        config(2, 4),
    );
    let accepted: Vec<_> =
        ["x", "!", "y"].map(|p| engine.submit(text(p)).expect("accepted")).into_iter().collect();
    for events in accepted {
        let answer = Answer::read(events);
        assert!(matches!(answer.error(), EngineError::Panicked), "{:?}", answer.end);
    }
    assert_eq!(engine.wait(), EngineEnd::Panicked);
    assert!(!engine.is_alive());
    assert!(matches!(engine.submit(text("z")), Err(SubmitError::Stopped)));
    assert_eq!((engine.stats().n_running, engine.stats().n_queued), (0, 0));
}

#[test]
fn an_error_fails_its_request_only() {
    let (model, gate) = ScriptedModel::by_prompt(|prompt| match prompt.first() {
        Some(33) => Script::text("ab").then_fail(),
        _ => Script::text("good answer"),
    })
    .gated();
    let engine = engine(model, config(3, 4));
    let accepted = ["x", "!", "y"].map(|p| engine.submit(text(p)).expect("accepted"));
    drop(gate);
    let [x, bad, y] = accepted.map(Answer::read);
    assert_eq!(bad.content(), "ab");
    assert!(matches!(bad.error(), EngineError::Model(_)), "{:?}", bad.end);
    assert_eq!((x.content().as_str(), y.content().as_str()), ("good answer", "good answer"));
    assert!(engine.is_alive());
}

#[test]
fn a_deadline_counts_while_waiting_and_while_running() {
    let engine =
        engine(ScriptedModel::new(endless().paced(Duration::from_micros(100))), config(1, 4));
    let within = |limit| GenerateRequest { deadline: Some(limit), ..text("a") };
    let running = engine.submit(within(Duration::from_millis(30))).expect("accepted");
    let waiting = engine.submit(within(Duration::from_millis(5))).expect("accepted");
    for events in [waiting, running] {
        let answer = Answer::read(events);
        assert!(
            matches!(answer.error(), EngineError::DeadlineExceeded { limit_s: 1 }),
            "rounded up: {:?}",
            answer.end
        );
    }
    let late = engine.submit(within(Duration::ZERO)).expect("accepted");
    assert!(matches!(Answer::read(late).error(), EngineError::DeadlineExceeded { limit_s: 0 }));
    assert_eq!(engine.stats().n_cancelled, 0);
}

#[test]
fn a_request_without_memory_waits_for_another_to_end() {
    let (model, gate) = ScriptedModel::new(Script::text("abc")).out_of_memory_for(&[1]).gated();
    let passes = model.passes();
    let engine = engine(model, config(4, 4));
    let first = engine.submit(text("a")).expect("accepted");
    eventually("it runs", || engine.stats().n_running == 1);
    let later = ["b", "c"].map(|p| engine.submit(text(p)).expect("accepted"));
    drop(gate);
    assert_eq!(Answer::read(first).content(), "abc");
    for events in later {
        assert_eq!(Answer::read(events).content(), "abc");
    }
    assert!(passes.list()[..4].iter().all(|pass| pass.len() == 1), "the first ran alone");
}

#[test]
fn a_request_that_fits_into_no_memory_fails() {
    let engine =
        engine(ScriptedModel::new(Script::text("abc")).out_of_memory_for(&[0]), config(4, 4));
    let too_large = engine.submit(text("a")).expect("accepted");
    assert!(matches!(Answer::read(too_large).error(), EngineError::Model(_)));
    let next = engine.submit(text("b")).expect("accepted");
    assert_eq!(Answer::read(next).content(), "abc");
}

#[test]
fn counters_count() {
    let engine = engine(ScriptedModel::new(Script::text("abc")), config(2, 2));
    assert_eq!(engine.context_tokens(), 4096);
    assert!(engine.text().template.is_some());
    for _ in 0..2 {
        Answer::read(engine.submit(text("12345")).expect("accepted"));
    }
    let stats = engine.stats();
    assert_eq!((stats.n_requests, stats.n_cancelled), (2, 0));
    assert_eq!((stats.n_prompt_tokens, stats.n_generated_tokens), (10, 8));
    assert!(stats.prefill_s > 0.0 && stats.decode_s > 0.0);
}

#[test]
fn a_model_of_small_passes_serves_many() {
    let engine = engine(ScriptedModel::new(Script::text("abc")).max_batch(3), config(8, 8));
    let accepted: Vec<_> =
        (0..8).map(|_| engine.submit(text(&"p".repeat(40))).expect("accepted")).collect();
    for events in accepted {
        assert_eq!(Answer::read(events).content(), "abc");
    }
}

/// A pass of five seconds.
fn slow() -> ScriptedModel {
    ScriptedModel::new(Script::text("fine")).in_parts(500, Duration::from_millis(10))
}

fn reading(engine: &lily_engine::Engine, request: GenerateRequest) -> lily_engine::Events {
    let events = engine.submit(request).expect("accepted");
    eventually("it is read", || engine.stats().n_running > 0);
    std::thread::sleep(Duration::from_millis(30));
    events
}

/// Ten times what the parts of a pass take, for a machine that does other things as well.
const SOON: Duration = Duration::from_millis(100);

#[test]
fn a_client_that_leaves_ends_the_pass_that_reads_its_prompt() {
    let engine = engine(slow(), config(4, 4));
    let leaving = reading(&engine, text(&"p".repeat(60)));
    let start = Instant::now();
    drop(leaving);
    eventually("it is gone", || engine.stats().n_cancelled == 1);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(engine.stats().n_running, 0);
}

#[test]
fn a_deadline_ends_the_pass_that_reads_the_prompt() {
    let engine = engine(slow(), config(4, 4));
    let start = Instant::now();
    let limit = Duration::from_millis(200);
    let late = GenerateRequest { deadline: Some(limit), ..text(&"p".repeat(60)) };
    let answer = Answer::read(engine.submit(late).expect("accepted"));
    assert!(matches!(answer.error(), EngineError::DeadlineExceeded { .. }));
    assert!(start.elapsed() < limit + SOON, "{:?}", start.elapsed());
}

#[test]
fn a_stop_ends_the_pass_that_reads_a_prompt() {
    let engine = engine(slow(), config(4, 4));
    let events = reading(&engine, text(&"p".repeat(60)));
    let start = Instant::now();
    engine.stop();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(matches!(Answer::read(events).error(), EngineError::Stopped));
}

#[test]
fn an_interrupted_pass_is_repeated_for_the_others() {
    let model = ScriptedModel::new(Script::text("fine")).in_parts(20, Duration::from_millis(10));
    let passes = model.passes();
    let engine = engine(model, config(4, 4));
    let leaving = reading(&engine, text(&"p".repeat(30)));
    let staying = engine.submit(text(&"q".repeat(20))).expect("accepted");
    drop(leaving);
    let answer = Answer::read(staying);
    assert_eq!(answer.content(), "fine");
    assert_eq!(engine.stats().n_cancelled, 1);
    let list = passes.list();
    assert!(list.iter().flatten().all(|step| step.sequence == 1), "{list:?}");
}
