//! Which kernels a model needs, without the model.

use super::load::{GpuAttention, GpuDelta, GpuLayer, GpuMixer, GpuWeights};
use super::model::{GpuModel, GpuOptions};
use super::ops::{DeltaVectors, GpuMoe, HeadNorms, conv_channels};
use super::{Activations, Format, GpuExperts, GpuMatrix};
use crate::{Advance, DeviceSampling, Logits, Model, ModelError, Rows, Step};
use lily_device::{Buffer, Device, DeviceError, DeviceInfo, KernelSource, ListingDevice};
use lily_weights::{FloatType, Shape};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tokens of the largest step that is recorded: more than one tile of everything.
const TOKENS: usize = 2048;

/// Every kernel that a model of this shape, quantised to `bits` in groups of `group` (routers to 8
/// bits), asks of a device like `info`: decode, prefill, commit and rollback.
///
/// # Errors
/// [`ModelError::Device`] for a kernel file that breaks the dialect.
pub fn all_kernels(
    info: &DeviceInfo,
    shape: &Shape,
    bits: u8,
    group: usize,
    activations: Activations,
) -> Result<Vec<KernelSource>, ModelError> {
    let shape = Shape { n_layers: shape.full_attention_interval, ..shape.clone() };
    let nothing = ListingDevice::new(info.clone()).alloc(16, "nothing")?;
    let format = |bits| Format { bits, group, dtype: FloatType::Bf16 };
    let maker = Maker { nothing, format: format(bits), router: format(8) };
    let weights = maker.model(&shape);
    needed(info, &shape, weights, GpuOptions { activations, max_batch_tokens: TOKENS })
}

/// The kernels that a model with these weights asks for.
pub(super) fn needed(
    info: &DeviceInfo,
    shape: &Shape,
    weights: GpuWeights,
    options: GpuOptions,
) -> Result<Vec<KernelSource>, ModelError> {
    let listing = Arc::new(ListingDevice::new(info.clone()));
    let device: Arc<dyn Device> = Arc::clone(&listing) as Arc<dyn Device>;
    let mut model = GpuModel::from_parts(device, shape.clone(), weights, 0, options)?;
    let mut state = model.new_state(4 * TOKENS)?;
    let mut out = Logits::default();
    let mut step = |model: &mut GpuModel, n_tokens: usize, rows, advance| {
        let tokens = vec![0; n_tokens.min(model.max_batch_tokens())];
        let step = Step { state: &mut state, tokens: &tokens, rows, advance };
        model.forward(&mut [step], &mut out)?;
        if advance == Advance::Tentative {
            model.commit(&mut state, 1)?;
        }
        Ok::<(), ModelError>(())
    };
    // Tile heights depend on the number of tokens.
    for n_tokens in [1, 2, 8, 16, 32, 64, TOKENS] {
        step(&mut model, n_tokens, Rows::Last, Advance::Commit)?;
    }
    step(&mut model, 4, Rows::All, Advance::Tentative)?;
    model.decode_greedy(&mut state, 0, 1)?;
    // Attention is cut otherwise far behind.
    model.list_step(&state, 4 * TOKENS - 1)?;
    let vocab_size = shape.vocab_size;
    let rules = DeviceSampling { temperature: 1.0, top_k: 1, top_p: 1.0, min_p: 0.0, vocab_size };
    model.decode_sampled(&mut state, 0, &rules, &[0.0])?;
    Ok(listing.listed())
}

/// Compiles them all, several at a time.
pub(super) fn compile(
    device: &Arc<dyn Device>,
    sources: &[KernelSource],
) -> Result<(), ModelError> {
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            device.kernel(source)?;
        }
        Ok::<(), DeviceError>(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("compilers do not panic"))
    })?;
    Ok(())
}

/// Weights without bytes.
struct Maker {
    nothing: Buffer,
    format: Format,
    router: Format,
}

impl Maker {
    fn model(&self, shape: &Shape) -> GpuWeights {
        GpuWeights {
            embed_tokens: self.matrix(shape.vocab_size, shape.hidden),
            layers: (0..shape.n_layers)
                .map(|layer| self.layer(shape, shape.is_attention(layer)))
                .collect(),
            norm: self.nothing.all(),
            lm_head: self.matrix(shape.vocab_size, shape.hidden),
        }
    }

    fn layer(&self, shape: &Shape, is_attention: bool) -> GpuLayer {
        let hidden = shape.hidden;
        let (heads, kv) = (shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim);
        let values = shape.n_v_heads * shape.v_head_dim;
        let mixer = if is_attention {
            GpuMixer::Attention(GpuAttention {
                q_proj: self.matrix(2 * heads, hidden),
                k_proj: self.matrix(kv, hidden),
                v_proj: self.matrix(kv, hidden),
                o_proj: self.matrix(hidden, heads),
                norms: HeadNorms { q: self.nothing.all(), k: self.nothing.all() },
            })
        } else {
            GpuMixer::GatedDeltaNet(GpuDelta {
                in_proj_qkv: self.matrix(conv_channels(shape), hidden),
                in_proj_z: self.matrix(values, hidden),
                in_proj_b: self.matrix(shape.n_v_heads, hidden),
                in_proj_a: self.matrix(shape.n_v_heads, hidden),
                out_proj: self.matrix(hidden, values),
                vectors: DeltaVectors {
                    conv1d: self.nothing.all(),
                    decay: self.nothing.all(),
                    dt_bias: self.nothing.all(),
                    norm: self.nothing.all(),
                },
            })
        };
        let (width, shared) = (shape.expert_width, shape.shared_expert_width);
        let experts = |rows, cols| GpuExperts {
            n_experts: shape.n_experts,
            stride_rows: rows,
            matrix: self.matrix(rows, cols),
        };
        GpuLayer {
            input_norm: self.nothing.all(),
            mixer,
            post_attention_norm: self.nothing.all(),
            moe: GpuMoe {
                router: GpuMatrix { format: self.router, ..self.matrix(shape.n_experts, hidden) },
                gate: experts(width, hidden),
                up: experts(width, hidden),
                down: experts(hidden, width),
                shared_gate: self.matrix(shared, hidden),
                shared_up: self.matrix(shared, hidden),
                shared_down: self.matrix(hidden, shared),
                shared_expert_gate: GpuMatrix { format: self.router, ..self.matrix(1, hidden) },
            },
        }
    }

    fn matrix(&self, rows: usize, cols: usize) -> GpuMatrix {
        let part = || self.nothing.all();
        GpuMatrix { rows, cols, format: self.format, codes: part(), scales: part(), biases: part() }
    }
}
