//! Prompts that another request has read already.

mod support;

use lily_engine::scripted::{Script, ScriptedModel, config, engine, text_model};
use lily_engine::{ChatPrompt, Engine, EngineConfig, GenerateRequest, Prompt};
use lily_fixtures::{Variant, write_mlx4};
use lily_model::{CpuModel, CpuOptions, Precision};
use lily_text::{Message, RenderOptions, Role, TokenId};
use lily_weights::Checkpoint;
use proptest::prelude::*;
use support::{Answer, answer, text};

const MB: usize = 1 << 20;

fn scripted(script: Script, cache_bytes: usize) -> Engine {
    engine(ScriptedModel::new(script), EngineConfig { cache_bytes, ..config(4, 8) })
}

fn cached(answer: &Answer) -> usize {
    answer.summary().prompt.cached_tokens
}

fn conversation(turns: &[(Role, &str)]) -> GenerateRequest {
    let messages = turns.iter().map(|(role, text)| Message::text(*role, *text)).collect();
    let options = RenderOptions { enable_thinking: Some(false), ..RenderOptions::for_answer() };
    GenerateRequest::new(Prompt::Chat(ChatPrompt::new(messages, Vec::new(), options)))
}

#[test]
fn a_conversation_goes_on_where_it_was() {
    let engine = scripted(Script::text("Hello!"), MB);
    let system = (Role::System, "You answer in very few words, and always kindly.");
    let first = answer(&engine, conversation(&[system, (Role::User, "Good morning to you.")]));
    assert_eq!(cached(&first), 0);
    let n_first = first.summary().prompt.prompt_tokens;
    // The same again: all but the beginning of the answer.
    let again = answer(&engine, conversation(&[system, (Role::User, "Good morning to you.")]));
    let n_cached = cached(&again);
    assert!(n_cached > n_first - 40 && n_cached < n_first, "{n_cached} of {n_first}");
    // Another question to the same instructions.
    let other = answer(&engine, conversation(&[system, (Role::User, "What is the time?")]));
    assert!(cached(&other) > 40 && cached(&other) < n_cached, "{}", cached(&other));
    // The next turn: nothing that was read is read again but what the template changes.
    let next = [
        system,
        (Role::User, "Good morning to you."),
        (Role::Assistant, "Hello!"),
        (Role::User, "And now?"),
    ];
    let next = answer(&engine, conversation(&next));
    assert!(cached(&next) >= n_cached, "{} after {n_cached}", cached(&next));
    let stats = engine.stats();
    assert!(stats.n_cache_entries >= 4, "{stats:?}");
}

#[test]
fn text_goes_on_behind_its_answer() {
    let engine = scripted(Script::text("and so on, for quite some time"), MB);
    let prompt = "Once upon a time. ".repeat(10);
    let first = answer(&engine, text(&prompt));
    let n_first = first.summary().prompt.prompt_tokens;
    let longer = format!("{prompt}and so on, for quite some time, they lived");
    let second = answer(&engine, text(&longer));
    assert!(cached(&second) > n_first, "{} behind {n_first}", cached(&second));
    // Only a beginning in common.
    let fork = format!("{}A dragon came.", &prompt[..prompt.len() - 20]);
    assert_eq!(cached(&answer(&engine, text(&fork))), 128);
    // Every row of a scored prompt is computed.
    let scored = GenerateRequest { prompt_logprobs: Some(0), ..text(&longer) };
    assert_eq!(cached(&answer(&engine, scored)), 0);
}

#[test]
fn nothing_is_kept_without_a_budget() {
    let engine = scripted(Script::text("Hello!"), 0);
    let prompt = "Once upon a time. ".repeat(10);
    answer(&engine, text(&prompt));
    assert_eq!(cached(&answer(&engine, text(&prompt))), 0);
    assert_eq!(engine.stats().n_cache_entries, 0);
}

/// A failing pass keeps nothing wrong: what follows is read anew.
#[test]
fn a_failed_request_leaves_nothing_behind() {
    let engine = scripted(Script::text("He").then_fail(), MB);
    let prompt = "Once upon a time. ".repeat(10);
    for _ in 0..3 {
        let failed = answer(&engine, text(&prompt));
        assert!(failed.end.is_err());
    }
}

fn tiny(cache_bytes: usize, max_running: usize) -> Engine {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write_mlx4(dir.path(), Variant::Small, 1).expect("the checkpoint is written");
    let checkpoint = Checkpoint::open(dir.path()).expect("the fixture opens");
    let options = CpuOptions { n_threads: 2, precision: Precision::F32, max_batch_tokens: 80 };
    let model = CpuModel::new(checkpoint.shape, checkpoint.weights, options);
    let config = EngineConfig {
        context_tokens: 1000,
        max_running,
        max_queued: 100,
        prefill_chunk_tokens: 64,
        cache_bytes,
    };
    Engine::start(Box::new(model), text_model(), config)
}

fn greedy(prompt: Vec<TokenId>) -> GenerateRequest {
    let mut request = GenerateRequest::new(Prompt::Tokens(prompt));
    request.sampling.temperature = Some(0.0);
    GenerateRequest { max_tokens: Some(24), ignore_eos: true, ..request }
}

/// Conversations that grow, together and with too little room for all, say what they say alone and
/// without any cache. A row computed in other pieces differs by some 1e-6, the two best tokens of
/// random weights by far more.
#[test]
fn kept_equals_fresh() {
    let turn = text_model().tokenizer.token_id("<|im_start|>").expect("a tag");
    let noise = |seed: u32, n: u32| (0..n).map(move |i| 40 + (seed * 31 + i * 17 + i * i % 7) % 60);
    // Enough for all six conversations, for some, and for hardly one.
    for (cache_bytes, max_running, n_least) in
        [(64 * MB, 3, 1000), (3 * MB, 3, 300), (3 * MB / 2, 1, 50)]
    {
        let (kept, fresh) = (tiny(cache_bytes, max_running), tiny(0, 1));
        let mut histories: Vec<Vec<TokenId>> =
            (0..6).map(|seed| [turn].into_iter().chain(noise(seed % 2, 70)).collect()).collect();
        let mut n_cached = 0;
        for round in 0..3 {
            for (seed, history) in (0..).zip(&mut histories) {
                history.push(turn);
                history.extend(noise(10 + seed * 7 + round, 20 + 13 * seed));
                history.extend([turn, 50, 51]);
            }
            let events: Vec<_> = histories
                .iter()
                .map(|history| kept.submit(greedy(history.clone())).expect("accepted"))
                .collect();
            for (events, history) in events.into_iter().zip(&mut histories) {
                let got = Answer::read(events);
                let expected = answer(&fresh, greedy(history.clone()));
                assert_eq!(got.summary().token_ids, expected.summary().token_ids);
                n_cached += cached(&got);
                // Every other answer comes back otherwise than it was written.
                let said = &got.summary().token_ids;
                history.extend(&said[..if round % 2 == 0 { said.len() } else { 9 }]);
            }
        }
        assert!(n_cached >= n_least, "{n_cached} tokens from a cache of {cache_bytes}");
        assert!(kept.stats().cache_bytes <= cache_bytes);
        assert_eq!(fresh.stats().cache_bytes, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Prompts that share beginnings of any length, in any order.
    #[test]
    fn forks_equal_fresh(
        lengths in prop::collection::vec((1usize..200, 0usize..40), 2..6),
        turns in prop::collection::vec(1usize..200, 0..3),
    ) {
        let turn = text_model().tokenizer.token_id("<|im_start|>").expect("a tag");
        let mut line: Vec<TokenId> = (0..200).map(|i| 40 + (i * 29) % 71).collect();
        for at in turns {
            line[at] = turn;
        }
        let (kept, fresh) = (tiny(MB, 1), tiny(0, 1));
        for (len, n_other) in lengths {
            let mut prompt = line[..len].to_vec();
            prompt.extend((0..n_other).map(|i| 45 + TokenId::try_from(i).expect("small")));
            let (got, expected) =
                (answer(&kept, greedy(prompt.clone())), answer(&fresh, greedy(prompt)));
            prop_assert_eq!(&got.summary().token_ids, &expected.summary().token_ids);
        }
    }
}
