//! What holds for all requests.

mod support;

use lily_engine::scripted::{Script, ScriptedModel, config, engine, tokenizer};
use lily_engine::{Engine, GenerateRequest, Sampling};
use lily_text::TokenId;
use proptest::prelude::*;
use support::{Answer, answer, sampled, text};

fn sampling() -> impl Strategy<Value = Sampling> {
    (0.0f32..2.0, 0u32..30, 0.1f32..=1.0, 0.0f32..0.3, -1.0f32..1.0, 0.8f32..1.5, any::<u64>())
        .prop_map(|(temperature, top_k, top_p, min_p, penalty, repetition, seed)| Sampling {
            temperature: Some(temperature),
            top_k: Some(top_k),
            top_p: Some(top_p),
            min_p: Some(min_p),
            presence_penalty: Some(penalty),
            frequency_penalty: Some(-penalty),
            repetition_penalty: Some(repetition),
            logit_bias: vec![(97, penalty)],
            seed: Some(seed),
        })
}

fn request() -> impl Strategy<Value = GenerateRequest> {
    (sampling(), 1usize..40, prop_oneof![1usize..20, 60usize..200], prop::option::of(0u8..5))
        .prop_map(|(sampling, max_tokens, prompt_len, logprobs)| GenerateRequest {
            sampling,
            max_tokens: Some(max_tokens),
            logprobs,
            stop: vec!["\n".to_owned(), "ab".to_owned()],
            ..text(&"prompt ".repeat(30)[..prompt_len])
        })
}

/// Everything of an answer but its times.
fn essence(answer: &Answer) -> String {
    let summary = answer.summary();
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        answer.content(),
        summary.token_ids,
        summary.finish_reason,
        summary.stop_string,
        answer.logprobs,
    )
}

fn hashed(max_running: usize, max_batch: usize) -> Engine {
    engine(ScriptedModel::hashed().max_batch(max_batch), config(max_running, 100))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// An answer depends on the request and not on what else runs, nor on the sizes of passes.
    #[test]
    fn a_batch_equals_singles(requests in prop::collection::vec(request(), 1..10), places in 1usize..6) {
        let single = hashed(1, 512);
        let singles: Vec<_> =
            requests.iter().map(|r| essence(&answer(&single, r.clone()))).collect();
        let together = hashed(places, 20);
        let events: Vec<_> =
            requests.iter().map(|r| together.submit(r.clone()).expect("room in the queue")).collect();
        let batch: Vec<_> = events.into_iter().map(|e| essence(&Answer::read(e))).collect();
        prop_assert_eq!(singles, batch);
    }

    /// The pieces joined are the text of all tokens.
    #[test]
    fn the_stream_equals_the_whole(ids in prop::collection::vec(0..256 as TokenId, 0..60)) {
        let engine = engine(ScriptedModel::new(Script::tokens(&ids)), config(1, 1));
        let answer = answer(&engine, text("x"));
        prop_assert_eq!(answer.content(), tokenizer().decode(&ids));
        prop_assert_eq!(&answer.summary().token_ids[..ids.len()], &ids[..]);
    }

    /// Stop strings cut the text where a search in the whole text says.
    #[test]
    fn stop_strings_cut_the_whole(says in "[ab🌷]{0,30}", stop in "[ab🌷]{1,3}") {
        let engine = engine(ScriptedModel::new(Script::text(&says)), config(1, 1));
        let answer =
            answer(&engine, GenerateRequest { stop: vec![stop.clone()], ..text("x") });
        let expected = says.find(&stop).map_or(says.as_str(), |at| &says[..at]);
        prop_assert_eq!(answer.content(), expected);
        prop_assert_eq!(answer.summary().stop_string.is_some(), says.contains(&stop));
    }
}

#[test]
fn seeds_repeat_and_their_absence_does_not() {
    let engine = hashed(1, 512);
    let ids = |sampling: Sampling| {
        let request = GenerateRequest { sampling, max_tokens: Some(30), ..text("x") };
        answer(&engine, request).summary().token_ids.clone()
    };
    assert_eq!(ids(sampled(1)), ids(sampled(1)));
    assert_ne!(ids(sampled(1)), ids(sampled(2)));
    let free = || Sampling { seed: None, ..sampled(0) };
    assert_ne!(ids(free()), ids(free()), "among more than 200^30");
}
