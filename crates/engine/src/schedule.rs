//! Which tokens the next forward pass takes.
//!
//! Every sequence that decodes takes part in every pass, so nobody's answer stalls while another
//! prompt is read. Prompts share what is left, in chunks, in turn: the prompt that has waited
//! longest comes first, so a long one delays others by a chunk and not by its length.
//!
//! Chunks of a prompt always end at multiples of the chunk length from its start, or from the place
//! before that its state is kept at. The arithmetic of a prompt therefore does not depend on what else
//! runs, and neither does its answer, but for what a kept beginning was computed in.

use crate::limits::SCORED_ROWS_MAX;

/// What a sequence needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// One token after the last.
    Decode,
    /// The rest of its prompt.
    Prefill {
        /// Tokens of the prompt not computed yet, at least one.
        n_left: usize,
        /// The tick of its last chunk or, before the first, of its admission.
        waiting_since: u64,
        /// Logits of all its tokens are wanted.
        is_scored: bool,
    },
}

/// A part of the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Position of the sequence in the list given to [`Schedule::plan`].
    pub(crate) sequence: usize,
    /// `None` decodes; otherwise the length of the chunk.
    pub(crate) chunk_len: Option<usize>,
}

/// The sizes of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Sequences at the same time.
    pub(crate) max_running: usize,
    /// Tokens of a full chunk.
    pub(crate) chunk_tokens: usize,
    max_batch_tokens: usize,
}

impl Schedule {
    /// Fits the wishes of the configuration into the passes of the model: all sequences but one
    /// decoding and a full chunk of the last must fit into one.
    pub(crate) fn new(
        max_running: usize,
        prefill_chunk_tokens: usize,
        max_batch_tokens: usize,
    ) -> Self {
        let max_batch_tokens = max_batch_tokens.max(1);
        let max_running = max_running.clamp(1, max_batch_tokens);
        let chunk_tokens = prefill_chunk_tokens.clamp(1, max_batch_tokens - max_running + 1);
        Self { max_running, chunk_tokens, max_batch_tokens }
    }

    /// The next pass, in the order of the sequences.
    pub(crate) fn plan(&self, needs: &[Need]) -> Vec<Work> {
        assert!(needs.len() <= self.max_running, "no more sequences are admitted than fit a pass");
        let mut prompts = Vec::new();
        let mut works = Vec::with_capacity(needs.len());
        for (sequence, need) in needs.iter().enumerate() {
            match *need {
                Need::Decode => works.push(Work { sequence, chunk_len: None }),
                Need::Prefill { n_left, waiting_since, is_scored } => {
                    let most = if is_scored { SCORED_ROWS_MAX } else { usize::MAX };
                    let chunk_len = n_left.min(self.chunk_tokens).min(most);
                    prompts.push((waiting_since, sequence, chunk_len, is_scored));
                }
            }
        }
        prompts.sort_unstable();
        // What decodes may fill the pass beyond a chunk, but prompts together stay within one.
        let mut n_left = self.chunk_tokens.min(self.max_batch_tokens - works.len());
        let mut n_scored = 0;
        for (_, sequence, chunk_len, is_scored) in prompts {
            if chunk_len > n_left {
                break;
            }
            if is_scored {
                // Its turn comes: in the next pass it has waited longer than those that overtake it.
                if n_scored + chunk_len > SCORED_ROWS_MAX {
                    continue;
                }
                n_scored += chunk_len;
            }
            n_left -= chunk_len;
            works.push(Work { sequence, chunk_len: Some(chunk_len) });
        }
        works.sort_unstable_by_key(|work| work.sequence);
        works
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(sequence: usize) -> Work {
        Work { sequence, chunk_len: None }
    }

    fn chunk(sequence: usize, len: usize) -> Work {
        Work { sequence, chunk_len: Some(len) }
    }

    fn prefill(n_left: usize, waiting_since: u64) -> Need {
        Need::Prefill { n_left, waiting_since, is_scored: false }
    }

    fn check(needs: &[Need], expected: &[Work]) {
        assert_eq!(Schedule::new(4, 8, 64).plan(needs), expected, "{needs:?}");
    }

    #[test]
    fn all_decode_and_one_chunk_is_read() {
        check(&[], &[]);
        check(&[Need::Decode, Need::Decode], &[decode(0), decode(1)]);
        check(&[Need::Decode, prefill(100, 1), Need::Decode], &[decode(0), chunk(1, 8), decode(2)]);
        check(&[prefill(100, 2), prefill(100, 1)], &[chunk(1, 8)]);
        check(&[prefill(100, 1), prefill(100, 1)], &[chunk(0, 8)]);
    }

    #[test]
    fn short_prompts_share_a_chunk() {
        check(&[prefill(3, 1), prefill(4, 2), prefill(2, 3)], &[chunk(0, 3), chunk(1, 4)]);
    }

    #[test]
    fn nobody_overtakes_a_prompt_that_does_not_fit() {
        check(&[prefill(3, 1), prefill(100, 2), prefill(2, 3)], &[chunk(0, 3)]);
    }

    #[test]
    fn a_small_model_bounds_everything() {
        assert_eq!(Schedule::new(9, 100, 4), Schedule::new(4, 1, 4));
        assert_eq!(Schedule::new(0, 0, 0), Schedule::new(1, 1, 1));
        let schedule = Schedule::new(2, 100, 4);
        assert_eq!(schedule.plan(&[Need::Decode, prefill(9, 1)]), [decode(0), chunk(1, 3)]);
    }

    #[test]
    fn rows_of_scored_prompts_are_few() {
        let scored =
            |n_left, waiting_since| Need::Prefill { n_left, waiting_since, is_scored: true };
        let schedule = Schedule::new(4, 200, 512);
        assert_eq!(schedule.plan(&[scored(300, 1)]), [chunk(0, SCORED_ROWS_MAX)]);
        let plan = schedule.plan(&[scored(40, 1), scored(40, 2), prefill(50, 3), scored(24, 4)]);
        assert_eq!(plan, [chunk(0, 40), chunk(2, 50), chunk(3, 24)]);
    }

    fn needs() -> impl Strategy<Value = Vec<Need>> {
        let need =
            prop_oneof![Just(Need::Decode), (1usize..40, 0u64..9).prop_map(|(n, t)| prefill(n, t))];
        prop::collection::vec(need, 1..8)
    }

    proptest! {
        #[test]
        fn passes_fit_and_move_on(
            needs in needs(),
            chunk_tokens in 1usize..20,
            max_batch_tokens in 8usize..40,
        ) {
            let schedule = Schedule::new(needs.len(), chunk_tokens, max_batch_tokens);
            let works = schedule.plan(&needs);
            let n_tokens: usize = works.iter().map(|w| w.chunk_len.unwrap_or(1)).sum();
            prop_assert!(n_tokens <= max_batch_tokens);
            let n_decoding = needs.iter().filter(|n| **n == Need::Decode).count();
            prop_assert_eq!(works.iter().filter(|w| w.chunk_len.is_none()).count(), n_decoding);
            let n_chunks = works.iter().filter(|w| w.chunk_len.is_some()).count();
            prop_assert_eq!(n_chunks == 0, n_decoding == needs.len());
            for work in works {
                if let (Some(len), Need::Prefill { n_left, .. }) = (work.chunk_len, needs[work.sequence]) {
                    prop_assert_eq!(len, n_left.min(schedule.chunk_tokens));
                }
            }
        }

        /// Every prompt is read to its end however the others are.
        #[test]
        fn no_prompt_starves(lengths in prop::collection::vec(1usize..200, 1..6)) {
            let schedule = Schedule::new(lengths.len(), 16, 64);
            let mut left: Vec<(usize, u64)> = lengths.iter().map(|n| (*n, 0)).collect();
            let mut n_chunks = vec![0usize; left.len()];
            for tick in 1..=lengths.iter().map(|n| n.div_ceil(16)).sum::<usize>() as u64 {
                let needs: Vec<Need> = left
                    .iter()
                    .map(|(n, t)| if *n == 0 { Need::Decode } else { prefill(*n, *t) })
                    .collect();
                for work in schedule.plan(&needs) {
                    if let Some(len) = work.chunk_len {
                        left[work.sequence] = (left[work.sequence].0 - len, tick);
                        n_chunks[work.sequence] += 1;
                    }
                }
                let waiting = (0..left.len()).filter(|i| left[*i].0 > 0);
                let (min, max) = waiting.fold((usize::MAX, 0), |(min, max), i| {
                    (min.min(n_chunks[i]), max.max(n_chunks[i]))
                });
                prop_assert!(max <= min.saturating_add(1), "in turn: {:?}", n_chunks);
            }
            prop_assert!(left.iter().all(|(n, _)| *n == 0));
        }
    }
}
