//! The kernels of one model on one device, compiled for its shape.

use lily_device::{Device, DeviceError, Kernel, KernelSource};
use lily_weights::Shape;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What activations between kernels and rows of the KV cache are stored as. Sums are f32 always,
/// and so are the residual stream, the delta-rule state, the router and the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activations {
    /// The exact mode.
    F32,
    /// What the model was trained with, and half the traffic.
    Bf16,
}

impl Activations {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// The relative error of storing a value: half a unit of 24 or 8 significant bits.
    pub(crate) fn rounding(self) -> f64 {
        match self {
            Self::F32 => 2.0_f64.powi(-24),
            Self::Bf16 => 2.0_f64.powi(-8),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::Bf16 => "bfloat",
        }
    }
}

/// Compiled kernels, by source. Each is compiled once, when first asked for.
#[derive(Debug)]
pub struct Kernels {
    device: Arc<dyn Device>,
    activations: Activations,
    constants: Vec<(&'static str, String)>,
    compiled: Mutex<HashMap<KernelSource, Kernel>>,
}

impl Kernels {
    /// Nothing compiled yet. Every kernel sees the sizes of `shape` as constants.
    pub fn new(device: Arc<dyn Device>, shape: &Shape, activations: Activations) -> Self {
        let tile = device.info().tile.define().to_owned();
        let mut constants = vec![("LILY_ACT", activations.name().to_owned()), ("LILY_TILE", tile)];
        constants.extend(shape_constants(shape));
        Self { device, activations, constants, compiled: Mutex::new(HashMap::new()) }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How activations are stored.
    pub fn activations(&self) -> Activations {
        self.activations
    }

    /// A kernel with further constants.
    ///
    /// # Errors
    /// [`DeviceError::Compile`].
    pub fn get(
        &self,
        file: &'static str,
        entry: &'static str,
        defines: &[(&'static str, String)],
    ) -> Result<Kernel, DeviceError> {
        let mut source = KernelSource::new(file, entry);
        source.defines.clone_from(&self.constants);
        source.defines.extend_from_slice(defines);
        // A poisoned map holds whole kernels or none.
        let lock = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = lock().get(&source) {
            return Ok(kernel.clone());
        }
        let kernel = self.device.kernel(&source)?;
        lock().insert(source, kernel.clone());
        Ok(kernel)
    }
}

fn shape_constants(shape: &Shape) -> [(&'static str, String); 16] {
    let n = |n: usize| n.to_string();
    [
        ("HIDDEN", n(shape.hidden)),
        ("VOCAB", n(shape.vocab_size)),
        ("N_HEADS", n(shape.n_heads)),
        ("N_KV_HEADS", n(shape.n_kv_heads)),
        ("HEAD_DIM", n(shape.head_dim)),
        ("ROTARY_DIM", n(shape.rotary_dim)),
        ("N_K_HEADS", n(shape.n_k_heads)),
        ("N_V_HEADS", n(shape.n_v_heads)),
        ("K_HEAD_DIM", n(shape.k_head_dim)),
        ("V_HEAD_DIM", n(shape.v_head_dim)),
        ("CONV_KERNEL", n(shape.conv_kernel)),
        ("N_EXPERTS", n(shape.n_experts)),
        ("TOP_K", n(shape.n_experts_per_token)),
        ("EXPERT_WIDTH", n(shape.expert_width)),
        ("SHARED_WIDTH", n(shape.shared_expert_width)),
        ("RMS_EPS", format!("{:e}f", shape.rms_eps)),
    ]
}
