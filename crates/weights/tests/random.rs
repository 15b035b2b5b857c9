//! Random weights are what they claim to be: of the given shape and seed, finite, and of the spread
//! that keeps activations of order one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use lily_weights::{Checkpoint, Matrix, MixerWeights, RandomQuant, Shape, Storage};

fn small() -> Shape {
    Shape {
        hidden: 256,
        n_layers: 4,
        vocab_size: 1024,
        n_experts: 8,
        n_experts_per_token: 4,
        expert_width: 128,
        shared_expert_width: 128,
        ..Shape::qwen36_35b()
    }
}

/// Mean and standard deviation.
fn moments(matrix: &Matrix<'_>) -> (f64, f64) {
    let mut row = vec![0.0; matrix.cols];
    let (mut sum, mut squares) = (0.0, 0.0);
    for i in 0..matrix.rows {
        matrix.row_to_f32(i, &mut row);
        for &x in &row {
            assert!(x.is_finite());
            sum += f64::from(x);
            squares += f64::from(x) * f64::from(x);
        }
    }
    let n = (matrix.rows * matrix.cols) as f64;
    let mean = sum / n;
    (mean, (squares / n - mean * mean).sqrt())
}

fn check_spread(name: &str, matrix: &Matrix<'_>) {
    let (mean, deviation) = moments(matrix);
    let expected = 1.0 / (matrix.cols as f64).sqrt();
    assert!((deviation / expected - 1.0).abs() < 0.1, "{name}: {deviation}, not {expected}");
    assert!(mean.abs() < 0.1 * expected, "{name}: a mean of {mean}");
}

#[test]
fn every_matrix_spreads_as_one_over_root_inputs() {
    for bits in lily_weights::quant::affine::BITS {
        let w = Checkpoint::random(&small(), RandomQuant { bits, group: 64 }, true, 1).weights;
        check_spread("embed_tokens", &w.embed_tokens.view());
        check_spread("lm_head", &w.lm_head.view());
        for layer in &w.layers {
            match &layer.mixer {
                MixerWeights::Attention(w) => {
                    check_spread("q_proj", &w.q_proj.view());
                    check_spread("o_proj", &w.o_proj.view());
                    assert!(w.q_norm.iter().all(|gain| (0.5..2.0).contains(gain)));
                }
                MixerWeights::GatedDeltaNet(w) => {
                    check_spread("in_proj_qkv", &w.in_proj_qkv.view());
                    check_spread("out_proj", &w.out_proj.view());
                    assert!(w.decay.iter().all(|decay| (-5.0..0.0).contains(decay)));
                    assert_eq!(w.conv1d.len(), small().conv_channels() * 4);
                }
            }
            let moe = &layer.moe;
            assert_eq!(moe.expert_gate.n_experts(), 8);
            check_spread("gate", &moe.gate.view());
            check_spread("expert 3", &moe.expert_gate.expert(3));
            check_spread("down of expert 7", &moe.expert_down.expert(7));
            assert!(matches!(moe.gate.view().storage, Storage::Affine(x) if x.bits == 8));
        }
        let Storage::Affine(x) = w.lm_head.view().storage else { panic!("it is quantised") };
        let n_groups = x.codes.len() * 32 / usize::from(bits) / 64;
        let negative = (0..n_groups).filter(|&g| x.scales.get(g) < 0.0).count();
        assert!((n_groups / 3..n_groups * 2 / 3).contains(&negative), "scales of both signs");
        assert!(w.mtp.is_some());
    }
}

#[test]
fn a_seed_is_a_model() {
    let quant = RandomQuant { bits: 4, group: 64 };
    let row = |seed: u64| {
        let w = Checkpoint::random(&small(), quant, false, seed).weights;
        let mut row = vec![0.0; 256];
        w.layers[3].moe.expert_up.expert(5).row_to_f32(17, &mut row);
        (row, w.norm)
    };
    assert_eq!(row(1), row(1));
    assert_ne!(row(1).0, row(2).0);
    assert_ne!(row(1).1, row(2).1);
    let w = Checkpoint::random(&small(), quant, false, 1).weights;
    assert!(w.mtp.is_none());
    let expert = |e: usize| {
        let mut row = vec![0.0; 256];
        w.layers[0].moe.expert_up.expert(e).row_to_f32(0, &mut row);
        row
    };
    assert_ne!(expert(0), expert(1), "experts differ");
}

/// Gigabytes in seconds: `cargo test --release -p lily-weights --test random -- --ignored --nocapture`.
#[test]
#[ignore = "takes some 6 GB of memory"]
fn true_shape_with_32_experts() {
    let shape = Shape { n_experts: 32, ..Shape::qwen36_35b() };
    let start = std::time::Instant::now();
    let checkpoint = Checkpoint::random(&shape, RandomQuant { bits: 4, group: 64 }, false, 1);
    let (bytes, time) = (checkpoint.summary.weight_bytes, start.elapsed());
    println!("{:.2} GB in {:.1} s", bytes as f64 / 1e9, time.as_secs_f64());
    assert!((3_500_000_000..7_000_000_000).contains(&bytes));
}
