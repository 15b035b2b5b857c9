//! A model that answers from a script; for tests of everything above the model.
//!
//! [`ScriptedModel`] implements [`Model`] without computing anything: a [`Script`] says what follows
//! a prompt, token by token, with errors, panics and delays where wanted. [`text_model`] is the
//! text side to go with it: a byte-level tokenizer with the tags of the real one and a small chat
//! template.
//!
//! ```
//! use lily_engine::scripted::{Script, ScriptedModel, config, engine};
//! use lily_engine::{Event, GenerateRequest, Prompt};
//!
//! let engine = engine(ScriptedModel::new(Script::text("Hello!")), config(4, 8));
//! let mut events = engine.submit(GenerateRequest::new(Prompt::Text("Hi".to_owned())))?;
//! while let Some(event) = events.next_blocking() {
//!     if let Event::Finished(summary) = event {
//!         assert_eq!(summary.completion_tokens, 7, "six bytes and the end");
//!     }
//! }
//! # Ok::<(), lily_engine::SubmitError>(())
//! ```

mod text;

pub use text::{END, text_model, tokenizer};

use crate::{Engine, EngineConfig};
use lily_model::{
    Advance, Logits, Model, ModelError, Rows, SeqState, Shape, Snapshot, Step, TokenId,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An engine around a scripted model.
pub fn engine(model: ScriptedModel, config: EngineConfig) -> Engine {
    Engine::start(Box::new(model), text_model(), config)
}

/// A context of 4096 tokens and chunks of 64.
pub fn config(max_running: usize, max_queued: usize) -> EngineConfig {
    EngineConfig {
        context_tokens: 4096,
        max_running,
        max_queued,
        prefill_chunk_tokens: 64,
        cache_bytes: 0,
    }
}

/// What follows a prompt. After its last move an answer ends with [`END`].
#[derive(Clone, Debug, Default)]
pub struct Script {
    moves: Vec<Move>,
    is_endless: bool,
    pace: Duration,
}

#[derive(Clone, Debug)]
enum Move {
    /// Log-probabilities of the tokens that can follow.
    Choice(Vec<(TokenId, f32)>),
    Row(Vec<f32>),
    Fail,
    Panic,
}

impl Script {
    /// Writes a text; tags in it become their tokens.
    pub fn text(text: &str) -> Self {
        Self::tokens(&tokenizer().encode(text).expect("the byte-level tokenizer takes any text"))
    }

    /// Writes tokens.
    pub fn tokens(ids: &[TokenId]) -> Self {
        let moves = ids.iter().map(|&id| Move::Choice(vec![(id, 0.0)])).collect();
        Self { moves, ..Self::default() }
    }

    /// Then lets the sampler choose by these log-probabilities; all other tokens are impossible.
    #[must_use]
    pub fn then_choice(mut self, logprobs: &[(TokenId, f32)]) -> Self {
        self.moves.push(Move::Choice(logprobs.to_vec()));
        self
    }

    /// Then gives exactly these logits, padded with negative infinity.
    #[must_use]
    pub fn then_logits(mut self, row: &[f32]) -> Self {
        self.moves.push(Move::Row(row.to_vec()));
        self
    }

    /// Then fails the forward pass, for ever.
    #[must_use]
    pub fn then_fail(mut self) -> Self {
        self.moves.push(Move::Fail);
        self
    }

    /// Then panics.
    #[must_use]
    pub fn then_panic(mut self) -> Self {
        self.moves.push(Move::Panic);
        self
    }

    /// Starts over instead of ending.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.is_endless = true;
        self
    }

    /// Takes this long for each token.
    #[must_use]
    pub fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    fn at(&self, position: usize) -> Move {
        let end = || Move::Choice(vec![(END, 0.0)]);
        let position = if self.is_endless { position % self.moves.len().max(1) } else { position };
        self.moves.get(position).cloned().unwrap_or_else(end)
    }
}

/// The model of a [`Script`].
pub struct ScriptedModel {
    shape: Shape,
    max_batch_tokens: usize,
    answers: Answers,
    /// By handle. Scripted states have room for one number only, so it is a handle and not their
    /// length; the length is the history's.
    histories: Mutex<Vec<History>>,
    gate: Option<Receiver<()>>,
    /// How many parts an interruptible pass has, and how long each takes.
    parts: (u32, Duration),
    passes: Passes,
    /// Numbers of the states that find no memory, counted from 0.
    refused_states: Vec<usize>,
    n_states_asked: Mutex<usize>,
}

type PromptScript = dyn Fn(&[TokenId]) -> Script + Send;

enum Answers {
    Scripts(Box<PromptScript>),
    /// Logits are a hash of everything before.
    Hashed,
    /// The same, but texts that were begun are likely to be ended.
    Babbling {
        seed: u64,
        habits: Vec<Vec<u8>>,
        opening: Vec<u8>,
    },
}

/// The tokens of a sequence.
#[derive(Clone, Debug)]
struct History {
    tokens: Vec<TokenId>,
    capacity: usize,
    /// Known when the first logits are asked for.
    prompt: Option<(usize, Script)>,
    n_tentative: usize,
}

/// A step of a past forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastStep {
    /// Number of the sequence, in the order of creation.
    pub sequence: usize,
    /// How many tokens it took.
    pub n_tokens: usize,
}

/// Forward passes so far, each with its steps.
#[derive(Clone, Debug, Default)]
pub struct Passes(Arc<Mutex<Vec<Vec<PastStep>>>>);

impl Passes {
    /// A copy of the list.
    pub fn list(&self) -> Vec<Vec<PastStep>> {
        lock(&self.0).clone()
    }
}

/// Lets forward passes through. After its end they are free.
#[derive(Debug)]
pub struct Gate(Sender<()>);

impl Gate {
    /// Lets this many more passes through.
    pub fn open_for(&self, n_passes: usize) {
        for _ in 0..n_passes {
            // A model that is gone needs no permission.
            let _ = self.0.send(());
        }
    }
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedModel").field("passes", &self.passes).finish_non_exhaustive()
    }
}

impl ScriptedModel {
    /// Answers every prompt in the same way.
    pub fn new(script: Script) -> Self {
        Self::by_prompt(move |_| script.clone())
    }

    /// Answers by the tokens of the prompt.
    pub fn by_prompt(script: impl Fn(&[TokenId]) -> Script + Send + 'static) -> Self {
        Self::with(Answers::Scripts(Box::new(script)))
    }

    /// Answers with logits that look random but only depend on the tokens before.
    pub fn hashed() -> Self {
        Self::with(Answers::Hashed)
    }

    /// Says random things, but likes to write these texts: it often begins one, and mostly ends what
    /// it has begun. The more of them close something, the shorter the answers.
    pub fn babbling(seed: u64, habits: &[&str]) -> Self {
        let habits = habits.iter().map(|habit| habit.as_bytes().to_vec()).collect();
        Self::with(Answers::Babbling { seed, habits, opening: Vec::new() })
    }

    /// Lets a babbling model begin its answers with this text, where it may.
    #[must_use]
    pub fn opening(mut self, text: &str) -> Self {
        if let Answers::Babbling { opening, .. } = &mut self.answers {
            *opening = text.as_bytes().to_vec();
        }
        self
    }

    fn with(answers: Answers) -> Self {
        // Like the real embedding table, which has rows without a token.
        let n_padding = 7;
        let vocab_size = tokenizer().vocab_size() + n_padding;
        Self {
            shape: Shape { vocab_size, ..Shape::qwen36_35b() },
            max_batch_tokens: 512,
            answers,
            histories: Mutex::default(),
            gate: None,
            parts: (0, Duration::ZERO),
            passes: Passes::default(),
            refused_states: Vec::new(),
            n_states_asked: Mutex::default(),
        }
    }

    /// Takes at most this many tokens a pass instead of 512.
    #[must_use]
    pub fn max_batch(mut self, n_tokens: usize) -> Self {
        self.max_batch_tokens = n_tokens;
        self
    }

    /// Refuses memory to these states, counted from 0 in the order in which they are asked for.
    #[must_use]
    pub fn out_of_memory_for(mut self, states: &[usize]) -> Self {
        self.refused_states = states.to_vec();
        self
    }

    /// Takes this long for each of so many parts of a pass that reads much of a prompt; such a pass
    /// can be interrupted between them.
    #[must_use]
    pub fn in_parts(mut self, n_parts: u32, time: Duration) -> Self {
        self.parts = (n_parts, time);
        self
    }

    /// Waits for permission before each pass.
    #[must_use]
    pub fn gated(mut self) -> (Self, Gate) {
        let (sender, receiver) = channel();
        self.gate = Some(receiver);
        (self, Gate(sender))
    }

    /// What the passes are made of, now and later.
    pub fn passes(&self) -> Passes {
        self.passes.clone()
    }

    /// The history after a step and the rows asked for. Nothing is changed.
    fn after(&self, step: &Step<'_>) -> Result<(History, Vec<Move>), ModelError> {
        let mut history = lock(&self.histories)[step.state.len()].clone();
        if history.n_tentative > 0 {
            return Err(ModelError::Uncommitted { n_tentative: history.n_tentative });
        }
        let (len, added) = (history.tokens.len(), step.tokens.len());
        if added == 0 {
            return Err(ModelError::EmptyStep);
        }
        if len + added > history.capacity {
            return Err(ModelError::ContextFull { len, added, capacity: history.capacity });
        }
        let vocab_size = self.shape.vocab_size;
        if let Some(&id) = step.tokens.iter().find(|id| **id as usize >= vocab_size) {
            return Err(ModelError::TokenOutOfRange { id, vocab_size });
        }
        history.tokens.extend_from_slice(step.tokens);
        if step.advance == Advance::Tentative {
            history.n_tentative = added;
        }
        let end = history.tokens.len();
        let positions = match step.rows {
            Rows::None => end + 1..=end,
            Rows::Last => end..=end,
            Rows::All => len + 1..=end,
        };
        let moves = positions.map(|position| self.next_move(&mut history, position)).collect();
        Ok((history, moves))
    }

    /// What follows the first `position` tokens.
    fn next_move(&self, history: &mut History, position: usize) -> Move {
        let tokens = &history.tokens[..position];
        match &self.answers {
            Answers::Hashed => {
                Move::Row((0..self.shape.vocab_size).map(|id| hashed_logit(tokens, id)).collect())
            }
            Answers::Babbling { seed, habits, opening } => {
                let (prompt_len, _) =
                    history.prompt.get_or_insert_with(|| (position, Script::default()));
                let mut row = babble(*seed, habits, tokens, self.shape.vocab_size);
                if let Some(byte) = opening.get(position - *prompt_len) {
                    row[usize::from(*byte)] += OPENING;
                }
                Move::Row(row)
            }
            Answers::Scripts(script) => {
                let (prompt_len, script) =
                    history.prompt.get_or_insert_with(|| (position, script(tokens)));
                let next = script.at(position - *prompt_len);
                std::thread::sleep(script.pace);
                next
            }
        }
    }
}

impl Model for ScriptedModel {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn max_batch_tokens(&self) -> usize {
        self.max_batch_tokens
    }

    fn new_state(&self, capacity_tokens: usize) -> Result<SeqState, ModelError> {
        let mut n_asked = lock(&self.n_states_asked);
        *n_asked += 1;
        if self.refused_states.contains(&(*n_asked - 1)) {
            let bytes = self.state_bytes(capacity_tokens);
            return Err(ModelError::OutOfMemory { bytes, capacity: capacity_tokens, fits: None });
        }
        let mut histories = lock(&self.histories);
        histories.push(History {
            tokens: Vec::new(),
            capacity: capacity_tokens,
            prompt: None,
            n_tentative: 0,
        });
        Ok(SeqState::scripted(histories.len() - 1))
    }

    fn state_bytes(&self, capacity_tokens: usize) -> usize {
        capacity_tokens * size_of::<TokenId>()
    }

    fn forward(&mut self, batch: &mut [Step<'_>], out: &mut Logits) -> Result<(), ModelError> {
        if self.gate.as_ref().is_some_and(|gate| gate.recv().is_err()) {
            self.gate = None;
        }
        let n_tokens = batch.iter().map(|step| step.tokens.len()).sum();
        if n_tokens > self.max_batch_tokens {
            return Err(ModelError::BatchTooLarge { n_tokens, max: self.max_batch_tokens });
        }
        let after: Vec<_> = batch.iter().map(|step| self.after(step)).collect::<Result<_, _>>()?;
        out.vocab_size = self.shape.vocab_size;
        out.values.clear();
        for next in after.iter().flat_map(|(_, moves)| moves) {
            match next {
                Move::Choice(logprobs) => push_choice(logprobs, out),
                Move::Row(row) => {
                    let end = out.values.len() + out.vocab_size;
                    out.values.extend_from_slice(row);
                    out.values.resize(end, f32::NEG_INFINITY);
                }
                Move::Fail => {
                    return Err(ModelError::ContextFull { len: 0, added: 1, capacity: 0 });
                }
                Move::Panic => panic!("the script says so"),
            }
        }
        let steps = batch
            .iter()
            .map(|step| PastStep { sequence: step.state.len(), n_tokens: step.tokens.len() })
            .collect();
        lock(&self.passes.0).push(steps);
        let mut histories = lock(&self.histories);
        for (step, (history, _)) in batch.iter().zip(after) {
            histories[step.state.len()] = history;
        }
        Ok(())
    }

    fn forward_interruptible(
        &mut self,
        batch: &mut [Step<'_>],
        out: &mut Logits,
        interrupt: &dyn Fn() -> bool,
    ) -> Result<(), ModelError> {
        for _ in 0..self.parts.0 {
            if interrupt() {
                return Err(ModelError::Interrupted);
            }
            std::thread::sleep(self.parts.1);
        }
        self.forward(batch, out)
    }

    fn commit(&mut self, state: &mut SeqState, n_kept: usize) -> Result<(), ModelError> {
        let history = &mut lock(&self.histories)[state.len()];
        let n_tentative = history.n_tentative;
        let n_dropped = n_tentative
            .checked_sub(n_kept)
            .ok_or(ModelError::CommitOutOfRange { n_kept, n_tentative })?;
        history.tokens.truncate(history.tokens.len() - n_dropped);
        history.n_tentative = 0;
        Ok(())
    }

    fn snapshot(&self, state: &SeqState) -> Result<Snapshot, ModelError> {
        let mut histories = lock(&self.histories);
        let history = histories[state.len()].clone();
        if history.n_tentative > 0 {
            return Err(ModelError::Uncommitted { n_tentative: history.n_tentative });
        }
        histories.push(history);
        Ok(Snapshot::scripted(histories.len() - 1))
    }

    fn restore(&self, state: &mut SeqState, snapshot: &Snapshot) -> Result<(), ModelError> {
        let mut histories = lock(&self.histories);
        let old = histories[snapshot.len()].clone();
        let history = &mut histories[state.len()];
        let (added, capacity) = (old.tokens.len(), history.capacity);
        if added > capacity {
            return Err(ModelError::ContextFull { len: 0, added, capacity });
        }
        *history = History { capacity, ..old };
        Ok(())
    }
}

/// Impossible tokens are far below, and padding rows far above: nobody may ever choose them.
fn push_choice(logprobs: &[(TokenId, f32)], out: &mut Logits) {
    const IMPOSSIBLE: f32 = -1_000.0;
    const PADDING: f32 = 1_000.0;
    let start = out.values.len();
    out.values.resize(start + tokenizer().vocab_size(), IMPOSSIBLE);
    out.values.resize(start + out.vocab_size, PADDING);
    for &(id, logprob) in logprobs {
        out.values[start + id as usize] = logprob;
    }
}

/// Between -4 and 4, in 256 steps, so that equal logits occur.
fn hashed_logit(tokens: &[TokenId], id: usize) -> f32 {
    let mut hasher = DefaultHasher::new();
    (tokens, id).hash(&mut hasher);
    f32::from(hasher.finish().to_le_bytes()[0]) / 32.0 - 4.0
}

/// More than all that else makes a babbling model like a token.
const OPENING: f32 = 60.0;

/// Hashed logits, and above them what follows in a text that was begun.
fn babble(seed: u64, habits: &[Vec<u8>], tokens: &[TokenId], vocab_size: usize) -> Vec<f32> {
    const BEGIN: f32 = 5.0;
    const GO_ON: f32 = 9.0;
    const END_AT_ONCE: f32 = 11.0;
    let mut hasher = DefaultHasher::new();
    (seed, tokens).hash(&mut hasher);
    let before = hasher.finish();
    let mut row: Vec<f32> =
        (0..vocab_size).map(|id| hashed_logit(&[], id ^ mixed(before))).collect();
    let tokenizer = tokenizer();
    let n_tail = tokens.len().min(32);
    let tail: Vec<u8> = tokens[tokens.len() - n_tail..]
        .iter()
        .flat_map(|id| tokenizer.token_bytes(*id))
        .copied()
        .collect();
    for habit in habits {
        let n_begun = (0..habit.len()).rev().find(|n| tail.ends_with(&habit[..*n])).unwrap_or(0);
        row[usize::from(habit[n_begun])] += if n_begun == 0 { BEGIN } else { GO_ON };
    }
    row[END as usize] += END_AT_ONCE;
    row
}

fn mixed(hash: u64) -> usize {
    usize::try_from(hash >> 16).unwrap_or(usize::MAX)
}

/// A panicking script leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
