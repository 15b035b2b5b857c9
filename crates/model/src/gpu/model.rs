//! A checkpoint on a device.

use super::decode::{Decode, DecodeScratch, FEW_TOKENS, Next};
use super::listing;
use super::load::GpuWeights;
use super::ops::{self, AttentionCut};
use super::prefill::{Part, Prefill, PrefillScratch};
use super::state::{GpuState, LayerState, Tentative, too_large};
use super::{Activations, Kernels};
use crate::state::StateInner;
use crate::{
    Advance, DeviceSampling, Logits, Model, ModelError, Rows, SeqState, Snapshot, Step, TokenId,
};
use lily_device::{Commands, Counts, Device, Program, Slice};
use lily_weights::{ModelWeights, Shape};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// How a device computes.
#[derive(Clone, Copy, Debug)]
pub struct GpuOptions {
    /// How activations and KV rows are stored.
    pub activations: Activations,
    /// The most tokens of one forward pass; scratch memory grows with it.
    pub max_batch_tokens: usize,
}

/// A checkpoint computed by a GPU-like device.
#[derive(Debug)]
pub struct GpuModel {
    shape: Arc<Shape>,
    device: Arc<dyn Device>,
    kernels: Kernels,
    weights: GpuWeights,
    weight_bytes: u64,
    options: GpuOptions,
    decode: DecodeScratch,
    /// Made when first needed.
    prefill: Mutex<Option<PrefillScratch>>,
    /// Cosines and sines of the positions that any sequence so far may reach.
    rope: Mutex<Option<Slice>>,
}

impl GpuModel {
    /// Brings the weights to the device and compiles every kernel that they need.
    ///
    /// # Errors
    /// [`ModelError::Device`]: too little memory, or a kernel that does not compile.
    pub fn new(
        device: Arc<dyn Device>,
        shape: Shape,
        weights: &ModelWeights,
        options: GpuOptions,
    ) -> Result<Self, ModelError> {
        let (gpu_weights, weight_bytes) = GpuWeights::upload(&device, weights)?;
        let sources = listing::needed(device.info(), &shape, gpu_weights.clone(), options)?;
        listing::compile(&device, &sources)?;
        Self::from_parts(device, shape, gpu_weights, weight_bytes, options)
    }

    pub(super) fn from_parts(
        device: Arc<dyn Device>,
        shape: Shape,
        weights: GpuWeights,
        weight_bytes: u64,
        options: GpuOptions,
    ) -> Result<Self, ModelError> {
        let decode = DecodeScratch::new(&device, &shape)?;
        let kernels = Kernels::new(Arc::clone(&device), &shape, options.activations);
        let options = GpuOptions { max_batch_tokens: options.max_batch_tokens.max(1), ..options };
        Ok(Self {
            shape: Arc::new(shape),
            device,
            kernels,
            weights,
            weight_bytes,
            options,
            decode,
            prefill: Mutex::new(None),
            rope: Mutex::new(None),
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes of the weights on the device.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// A step of `n_tokens` behind `position` others.
    fn decode(&self, position: usize, n_tokens: usize) -> Decode<'_> {
        Decode {
            cut: AttentionCut::of(position + n_tokens - 1),
            kernels: &self.kernels,
            shape: &self.shape,
            weights: &self.weights,
            s: &self.decode,
            n_tokens,
        }
    }

    /// Asks the device for the kernels of a step at `position`.
    pub(super) fn list_step(&self, state: &SeqState, position: usize) -> Result<(), ModelError> {
        let state = gpu_state(state, &self.shape, &self.device)?;
        self.decode(position, 1).step(state, Next::Host, &[])?;
        Ok(())
    }

    /// Refuses a batch before anything of it is computed.
    fn check(&self, batch: &[Step<'_>]) -> Result<(), ModelError> {
        let n_tokens: usize = batch.iter().map(|step| step.tokens.len()).sum();
        let max = self.options.max_batch_tokens;
        if n_tokens > max {
            return Err(ModelError::BatchTooLarge { n_tokens, max });
        }
        for step in batch {
            let state = gpu_state(step.state, &self.shape, &self.device)?;
            if step.tokens.is_empty() {
                return Err(ModelError::EmptyStep);
            }
            state.check_room(step.tokens.len())?;
            let tentative_max = FEW_TOKENS;
            if step.advance == Advance::Tentative && step.tokens.len() > tentative_max {
                let n_tokens = step.tokens.len();
                return Err(ModelError::BatchTooLarge { n_tokens, max: tentative_max });
            }
            let vocab_size = self.shape.vocab_size;
            if let Some(&id) = step.tokens.iter().find(|&&id| id as usize >= vocab_size) {
                return Err(ModelError::TokenOutOfRange { id, vocab_size });
            }
        }
        Ok(())
    }

    /// The recorded decode step of a sequence, for the token at `position`.
    fn program(
        &self,
        state: &mut GpuState,
        position: usize,
        next: Next,
    ) -> Result<Arc<Program>, ModelError> {
        let decode = self.decode(position, 1);
        let idx = usize::from(decode.cut.is_short());
        let programs = &state.programs[idx];
        let recorded = match &next {
            Next::Sampled(rules) => {
                programs.sampled.as_ref().filter(|(of, _)| of == rules).map(|(_, program)| program)
            }
            Next::Greedy => programs.greedy.as_ref(),
            Next::Host | Next::Tentative => programs.step.as_ref(),
        };
        if let Some(program) = recorded {
            return Ok(Arc::clone(program));
        }
        let commands = decode.step(state, next, &[])?;
        let program = Arc::new(self.device.prepare(commands)?);
        let kept = Arc::clone(&program);
        match next {
            Next::Sampled(rules) => state.programs[idx].sampled = Some((rules, kept)),
            Next::Greedy => state.programs[idx].greedy = Some(kept),
            Next::Host | Next::Tentative => state.programs[idx].step = Some(kept),
        }
        Ok(program)
    }

    /// Feeds a token and then what the device chooses, `n_tokens` times in all.
    fn run_ahead(
        &self,
        state: &mut GpuState,
        token: TokenId,
        n_tokens: usize,
        next: Next,
    ) -> Result<Vec<TokenId>, ModelError> {
        state.check_room(n_tokens)?;
        let vocab_size = self.shape.vocab_size;
        if token as usize >= vocab_size {
            return Err(ModelError::TokenOutOfRange { id: token, vocab_size });
        }
        self.device.write(&self.decode.ids, bytemuck::bytes_of(&token))?;
        let mut chosen = Vec::with_capacity(n_tokens);
        let history = self.decode.noted.len / 4;
        while chosen.len() < n_tokens {
            // Several steps in flight: the device never waits for the host.
            let n = (n_tokens - chosen.len()).min(history / 2);
            for i in 0..n {
                let program = self.program(state, state.len + i, next)?;
                self.device.replay(&program)?;
            }
            let mut noted = vec![0_u32; history];
            self.device.read(&self.decode.noted, bytemuck::cast_slice_mut(&mut noted))?;
            chosen.extend((1..=n).map(|i| noted[(state.len + i) % history]));
            state.len += n;
        }
        Ok(chosen)
    }

    /// A few tokens of one sequence.
    fn few(&self, step: &mut Step<'_>, out: &mut Logits) -> Result<(), ModelError> {
        let state = gpu_state_mut(step.state, &self.shape, &self.device)?;
        let n_tokens = step.tokens.len();
        self.device.write(&self.decode.ids, bytemuck::cast_slice(step.tokens))?;
        match step.advance {
            Advance::Commit if n_tokens == 1 => {
                let program = self.program(state, state.len, Next::Host)?;
                self.device.replay(&program)?;
                state.len += 1;
            }
            Advance::Commit => {
                let commands = self.decode(state.len, n_tokens).step(state, Next::Host, &[])?;
                self.device.submit(&commands)?;
                state.len += n_tokens;
            }
            Advance::Tentative => {
                let stashes = state.new_stashes(n_tokens)?;
                let commands =
                    self.decode(state.len, n_tokens).step(state, Next::Tentative, &stashes)?;
                self.device.submit(&commands)?;
                state.tentative = Some(Tentative { n_tokens, stashes });
            }
        }
        self.read_logits(rows_wanted(step.rows, n_tokens), out)
    }

    /// Committed steps with many tokens in all.
    fn many(&self, run: &mut [Step<'_>], out: &mut Logits) -> Result<(), ModelError> {
        let mut parts = Vec::with_capacity(run.len());
        let mut ids: Vec<TokenId> = Vec::new();
        let mut wanted = Vec::new();
        for step in run.iter() {
            let state = gpu_state(step.state, &self.shape, &self.device)?;
            let start = ids.len();
            ids.extend_from_slice(step.tokens);
            wanted.extend(rows_wanted(step.rows, step.tokens.len()).map(|row| start + row));
            parts.push(Part { state, rows: start..ids.len() });
        }
        let mut scratch = self.prefill.lock().unwrap_or_else(PoisonError::into_inner);
        let s = match &mut *scratch {
            Some(s) if s.ids.len >= ids.len() * 4 => s,
            held => {
                // As large as any step can be: a chunk of a prompt is the usual case.
                *held = None;
                let (max, acts) = (self.options.max_batch_tokens, self.options.activations);
                held.insert(PrefillScratch::new(&self.device, &self.shape, acts, max)?)
            }
        };
        let ids_slice = s.ids.buffer.slice(s.ids.offset..s.ids.offset + ids.len() * 4);
        self.device.write(&ids_slice, bytemuck::cast_slice(&ids))?;
        let prefill = Prefill {
            kernels: &self.kernels,
            shape: &self.shape,
            weights: &self.weights,
            s,
            parts: &parts,
            n_tokens: ids.len(),
        };
        // Logits in groups: a row of the 35B's vocabulary is a megabyte.
        let (first, others) = wanted.split_at(wanted.len().min(FEW_TOKENS));
        let commands = prefill.step(first, &self.decode.x, &self.decode.logits)?;
        self.device.submit(&commands)?;
        self.read_logits(0..first.len(), out)?;
        for wanted in others.chunks(FEW_TOKENS) {
            let commands = prefill.logits(wanted, &self.decode.x, &self.decode.logits)?;
            self.device.submit(&commands)?;
            self.read_logits(0..wanted.len(), out)?;
        }
        drop(parts);
        for step in run {
            let n_tokens = step.tokens.len();
            gpu_state_mut(step.state, &self.shape, &self.device)?.len += n_tokens;
        }
        Ok(())
    }

    /// Rows of the logits that the last submission left on the device.
    fn read_logits(&self, rows: Range<usize>, out: &mut Logits) -> Result<(), ModelError> {
        if rows.is_empty() {
            return Ok(());
        }
        let vocab_size = self.shape.vocab_size;
        let start = out.values.len();
        out.values.resize(start + rows.len() * vocab_size, 0.0);
        let logits = &self.decode.logits;
        let at = logits.offset + rows.start * vocab_size * 4;
        let rows = logits.buffer.slice(at..at + rows.len() * vocab_size * 4);
        self.device.read(&rows, bytemuck::cast_slice_mut(&mut out.values[start..]))?;
        Ok(())
    }

    fn rope(&self, positions: usize) -> Result<Slice, ModelError> {
        let row_bytes = self.shape.rotary_dim * 4;
        // Whoever panicked here left the old table or a whole new one.
        let mut held = self.rope.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = held.as_ref().filter(|table| table.len >= positions * row_bytes) {
            return Ok(table.clone());
        }
        let positions = positions.max(1).next_multiple_of(4096);
        let table = rope_table(&self.shape, positions);
        let slice = self
            .device
            .alloc(positions * row_bytes, "rotary table")
            .map_err(|error| too_large(error, &self.shape, self.options.activations, positions, 0))?
            .all();
        self.device.write(&slice, bytemuck::cast_slice(&table))?;
        *held = Some(slice.clone());
        Ok(slice)
    }
}

/// The rows of a step of `n_tokens` whose logits are wanted.
fn rows_wanted(rows: Rows, n_tokens: usize) -> Range<usize> {
    match rows {
        Rows::None => 0..0,
        Rows::Last => n_tokens - 1..n_tokens,
        Rows::All => 0..n_tokens,
    }
}

/// `[positions, 2, rotary_dim / 2]`: cosines, then sines, rounded once from f64 as on the CPU.
fn rope_table(shape: &Shape, positions: usize) -> Vec<f32> {
    let half = shape.rotary_dim / 2;
    let exponent = |j: usize| -2.0 * j as f64 / shape.rotary_dim as f64;
    let inv_freq: Vec<f64> = (0..half).map(|j| shape.rope_theta.powf(exponent(j))).collect();
    let row = |position: usize| {
        let angles = inv_freq.iter().map(move |inv_freq| position as f64 * inv_freq);
        angles.clone().map(f64::cos).chain(angles.map(f64::sin))
    };
    #[expect(clippy::cast_possible_truncation, reason = "the table is f32, rounded once")]
    (0..positions).flat_map(row).map(|value| value as f32).collect()
}

impl Model for GpuModel {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn max_batch_tokens(&self) -> usize {
        self.options.max_batch_tokens
    }

    fn new_state(&self, capacity_tokens: usize) -> Result<SeqState, ModelError> {
        let rope = self.rope(capacity_tokens)?;
        let (shape, activations) = (Arc::clone(&self.shape), self.options.activations);
        let state = GpuState::new(&self.device, shape, activations, capacity_tokens, rope)?;
        Ok(SeqState { inner: StateInner::Gpu(Box::new(state)) })
    }

    fn state_bytes(&self, capacity_tokens: usize) -> usize {
        GpuState::bytes_needed(&self.shape, self.options.activations, capacity_tokens)
    }

    fn forward(&mut self, batch: &mut [Step<'_>], out: &mut Logits) -> Result<(), ModelError> {
        self.check(batch)?;
        out.vocab_size = self.shape.vocab_size;
        out.values.clear();
        // Runs of committed steps with many tokens in all go together, what is tentative or short
        // by itself; the logits come in the order of the batch.
        let mut rest = batch;
        while !rest.is_empty() {
            let n_committed =
                rest.iter().take_while(|step| step.advance == Advance::Commit).count();
            let n_tokens: usize = rest[..n_committed].iter().map(|step| step.tokens.len()).sum();
            let (run, after) = if n_tokens > 1 && (n_committed > 1 || n_tokens > FEW_TOKENS) {
                rest.split_at_mut(n_committed)
            } else {
                rest.split_at_mut(1)
            };
            match run {
                [step] if step.tokens.len() <= FEW_TOKENS => self.few(step, out)?,
                run => self.many(run, out)?,
            }
            rest = after;
        }
        Ok(())
    }

    fn decode_greedy(
        &mut self,
        state: &mut SeqState,
        token: TokenId,
        n_tokens: usize,
    ) -> Result<Vec<TokenId>, ModelError> {
        let state = gpu_state_mut(state, &self.shape, &self.device)?;
        self.run_ahead(state, token, n_tokens, Next::Greedy)
    }

    fn samples(&self) -> bool {
        true
    }

    fn decode_sampled(
        &mut self,
        state: &mut SeqState,
        token: TokenId,
        rules: &DeviceSampling,
        draws: &[f32],
    ) -> Result<Option<Vec<TokenId>>, ModelError> {
        let state = gpu_state_mut(state, &self.shape, &self.device)?;
        let history = self.decode.draws.len / 4;
        if rules.top_k == 0 || rules.top_k > ops::TOP_K_MAX || draws.len() > history / 2 {
            return Ok(None);
        }
        state.check_room(draws.len())?;
        // The draw for position p lies in p % history: at most two pieces.
        let first = (state.len + 1) % history;
        let (end, start) = draws.split_at(draws.len().min(history - first));
        for (at, piece) in [(first, end), (0, start)] {
            if !piece.is_empty() {
                let offset = self.decode.draws.offset + at * 4;
                let slice = self.decode.draws.buffer.slice(offset..offset + piece.len() * 4);
                self.device.write(&slice, bytemuck::cast_slice(piece))?;
            }
        }
        self.run_ahead(state, token, draws.len(), Next::Sampled(*rules)).map(Some)
    }

    fn decode_counts(&self, state: &SeqState) -> Option<Counts> {
        let state = gpu_state(state, &self.shape, &self.device).ok()?;
        Some(self.decode(state.len, 1).step(state, Next::Greedy, &[]).ok()?.counts())
    }

    fn commit(&mut self, state: &mut SeqState, n_kept: usize) -> Result<(), ModelError> {
        let state = gpu_state_mut(state, &self.shape, &self.device)?;
        let n_tentative = state.tentative.as_ref().map_or(0, |tentative| tentative.n_tokens);
        if n_kept > n_tentative {
            return Err(ModelError::CommitOutOfRange { n_kept, n_tentative });
        }
        let Some(tentative) = state.tentative.take() else { return Ok(()) };
        if n_kept > 0 {
            let mut commands = Commands::new();
            let mut stashes = tentative.stashes.iter();
            for layer in &state.layers {
                let LayerState::GatedDeltaNet(layer) = layer else { continue };
                let stash = stashes.next().expect("a tentative step stashes every delta layer");
                let (kernels, shape) = (&self.kernels, &self.shape);
                ops::delta_commit(kernels, &mut commands, shape, n_kept, stash, layer)?;
            }
            self.device.submit(&commands)?;
        }
        state.len += n_kept;
        state.write_len()
    }

    fn snapshot(&self, state: &SeqState) -> Result<Snapshot, ModelError> {
        let state = gpu_state(state, &self.shape, &self.device)?;
        let snapshot = state.snapshot(self.options.activations)?;
        Ok(Snapshot { inner: StateInner::GpuSnapshot(Box::new(snapshot)) })
    }

    fn restore(&self, state: &mut SeqState, snapshot: &Snapshot) -> Result<(), ModelError> {
        let state = gpu_state_mut(state, &self.shape, &self.device)?;
        match &snapshot.inner {
            StateInner::GpuSnapshot(source) if source.fits(&self.shape, &self.device) => {
                state.restore(source, self.options.activations)
            }
            _ => Err(ModelError::ForeignState),
        }
    }
}

fn gpu_state<'a>(
    state: &'a SeqState,
    shape: &Shape,
    device: &Arc<dyn Device>,
) -> Result<&'a GpuState, ModelError> {
    match &state.inner {
        StateInner::Gpu(state) if *state.shape == *shape && Arc::ptr_eq(&state.device, device) => {
            Ok(state)
        }
        _ => Err(ModelError::ForeignState),
    }
}

fn gpu_state_mut<'a>(
    state: &'a mut SeqState,
    shape: &Shape,
    device: &Arc<dyn Device>,
) -> Result<&'a mut GpuState, ModelError> {
    match &mut state.inner {
        StateInner::Gpu(state) if *state.shape == *shape && Arc::ptr_eq(&state.device, device) => {
            Ok(state)
        }
        _ => Err(ModelError::ForeignState),
    }
}
