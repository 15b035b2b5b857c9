//! The engine with a real forward pass: a tiny checkpoint of random weights on the CPU.

mod support;

use lily_engine::scripted::text_model;
use lily_engine::{Engine, EngineConfig, GenerateRequest, Sampling};
use lily_fixtures::{Variant, write_hf, write_mlx4};
use lily_model::{CpuModel, CpuOptions, Precision};
use lily_weights::Checkpoint;
use std::path::Path;
use support::{Answer, sampled, text};

type Write = fn(&Path, Variant, u64) -> std::io::Result<()>;

fn engine(write: Write, precision: Precision, max_running: usize) -> Engine {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write(dir.path(), Variant::Small, 1).expect("the checkpoint is written");
    // The mapping outlives the directory entry.
    let checkpoint = Checkpoint::open(dir.path()).expect("the fixture opens");
    let options = CpuOptions { n_threads: 2, precision, max_batch_tokens: 40 };
    let model = CpuModel::new(checkpoint.shape, checkpoint.weights, options);
    let config = EngineConfig {
        context_tokens: 400,
        max_running,
        max_queued: 100,
        prefill_chunk_tokens: 32,
        cache_bytes: 0,
    };
    Engine::start(Box::new(model), text_model(), config)
}

fn requests() -> Vec<GenerateRequest> {
    [1usize, 5, 31, 32, 33, 100, 7, 64]
        .into_iter()
        .zip(0u64..)
        .map(|(prompt_len, seed)| GenerateRequest {
            sampling: if seed % 3 == 0 { Sampling::default() } else { sampled(seed) },
            max_tokens: Some(12 + prompt_len % 5),
            ignore_eos: true,
            ..text(&"A prompt of the right length. ".repeat(4)[..prompt_len])
        })
        .collect()
}

/// The chunks are the same in both, so each row is computed from the same numbers; a row does not
/// depend on which others share its pass.
fn check_batch_equals_singles(write: Write, precision: Precision) {
    let run = |max_running| {
        let engine = engine(write, precision, max_running);
        let events: Vec<_> =
            requests().into_iter().map(|r| engine.submit(r).expect("accepted")).collect();
        let ids = |events| Answer::read(events).summary().token_ids.clone();
        events.into_iter().map(ids).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(5), "{precision:?}");
}

#[test]
fn a_batch_equals_singles_in_f32() {
    check_batch_equals_singles(write_hf, Precision::F32);
    check_batch_equals_singles(write_mlx4, Precision::F32);
}

#[test]
fn a_batch_equals_singles_in_int8() {
    check_batch_equals_singles(write_mlx4, Precision::Int8);
}

/// A request that leaves while its prompt shares passes with others does them no harm.
#[test]
fn an_interrupted_pass_does_not_change_the_others() {
    let engine = engine(write_mlx4, Precision::F32, 5);
    let ids = |answer: Answer| answer.summary().token_ids.clone();
    let alone: Vec<_> = requests().into_iter().map(|r| ids(support::answer(&engine, r))).collect();
    for round in 0..20u64 {
        let staying: Vec<_> =
            requests().into_iter().map(|r| engine.submit(r).expect("accepted")).collect();
        let leaving = engine.submit(text(&"p".repeat(300))).expect("accepted");
        std::thread::sleep(std::time::Duration::from_micros(700 * round));
        drop(leaving);
        let together: Vec<_> = staying.into_iter().map(|e| ids(Answer::read(e))).collect();
        assert_eq!(alone, together, "round {round}");
    }
}
