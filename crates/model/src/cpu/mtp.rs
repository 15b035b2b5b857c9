//! The multi-token-prediction head: one attention block that guesses the token after the next.

use super::forward::Context;
use super::{CpuModel, MtpState};
use crate::{Logits, ModelError, TokenId};
use lily_cpu::{MatmulJob, matmul, rms_norm};
use lily_weights::MixerWeights;

impl CpuModel {
    /// An empty KV cache for the MTP head of one sequence.
    pub fn new_mtp_state(&self, capacity_tokens: usize) -> MtpState {
        MtpState::new(&self.shape, self.kv_dtype(), capacity_tokens)
    }

    /// Runs the MTP head over consecutive positions.
    ///
    /// `hidden`, `[n, hidden]`, is the trunk's final-normed hidden of each position, or the
    /// `feedback` of the head itself for a deeper draft; `next_ids[i]` is the token after
    /// position `i`. `out` predicts the token after that; `feedback`, `[n, hidden]`, is the
    /// head's own hidden after `mtp.norm`.
    ///
    /// # Errors
    /// [`ModelError::NoMtp`], or a token or batch that [`crate::Model::forward`] would refuse.
    pub fn mtp(
        &mut self,
        hidden: &[f32],
        next_ids: &[TokenId],
        state: &mut MtpState,
        out: &mut Logits,
        feedback: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let shape = &*self.shape;
        let n_tokens = next_ids.len();
        let w = self.weights.mtp.as_ref().ok_or(ModelError::NoMtp)?;
        let MixerWeights::Attention(mixer) = &w.layer.mixer else { return Err(ModelError::NoMtp) };
        if n_tokens == 0 || hidden.len() != n_tokens * shape.hidden {
            return Err(ModelError::EmptyStep);
        }
        if n_tokens > self.options.max_batch_tokens {
            return Err(ModelError::BatchTooLarge { n_tokens, max: self.options.max_batch_tokens });
        }
        state.check_room(n_tokens)?;
        let vocab_size = shape.vocab_size;
        if let Some(&id) = next_ids.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ModelError::TokenOutOfRange { id, vocab_size });
        }

        let pool = &self.pool;
        let s = &mut self.scratch;
        let width = shape.hidden;
        // [norm(embedding) | norm(hidden)] per token: the embedding half comes first.
        s.x.resize(n_tokens * width, 0.0);
        s.h.resize(n_tokens * width, 0.0);
        s.mixed.resize(n_tokens * 2 * width, 0.0);
        let embed_tokens = self.weights.embed_tokens.view();
        for (row, &id) in s.x.chunks_exact_mut(width).zip(next_ids) {
            embed_tokens.row_to_f32(id as usize, row);
        }
        for (half, (input, gain)) in
            [(&s.x[..], &w.pre_fc_norm_embedding), (hidden, &w.pre_fc_norm_hidden)]
                .into_iter()
                .enumerate()
        {
            rms_norm(pool, input, gain, shape.rms_eps, &mut s.h);
            let pairs = s.mixed.chunks_exact_mut(2 * width).zip(s.h.chunks_exact(width));
            for (pair, row) in pairs {
                pair[half * width..][..width].copy_from_slice(row);
            }
        }
        s.output.set(pool, &s.mixed, n_tokens, 2 * width);
        let fc = MatmulJob { weight: w.fc.view(), out: &mut s.x, accumulate: false };
        matmul(pool, &s.output, &mut [fc]);

        let mut cx = Context { shape, pool, rope: &self.rope, s, n_tokens };
        cx.norm(&w.layer.input_norm);
        cx.project_qkv(mixer);
        cx.attend(mixer, 0..n_tokens, state.len(), &mut state.cache);
        cx.project_out(mixer.o_proj.view(), shape.n_heads * shape.head_dim);
        cx.norm(&w.layer.post_attention_norm);
        cx.moe(&w.layer.moe);

        feedback.resize(n_tokens * width, 0.0);
        rms_norm(pool, &cx.s.x, &w.norm, shape.rms_eps, feedback);
        cx.s.output.set(pool, feedback, n_tokens, width);
        out.vocab_size = vocab_size;
        out.values.resize(n_tokens * vocab_size, 0.0);
        let lm_head = self.weights.lm_head.view();
        let mut jobs = [MatmulJob { weight: lm_head, out: &mut out.values, accumulate: false }];
        matmul(pool, &cx.s.output, &mut jobs);
        Ok(())
    }
}
