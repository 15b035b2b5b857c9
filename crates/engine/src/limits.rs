//! Every bound of the engine and its reason.

use std::ops::RangeInclusive;

/// Above this all tokens are practically equally likely; a larger number is a mistake.
pub(crate) const TEMPERATURE: RangeInclusive<f32> = 0.0..=100.0;

/// `OpenAI`'s range of presence and frequency penalty.
pub(crate) const PENALTY: RangeInclusive<f32> = -2.0..=2.0;

/// A logit of this model is a few dozen at most: a hundredfold division or multiplication already
/// forces or forbids a token, and larger factors would overflow.
pub(crate) const REPETITION_PENALTY_MAX: f32 = 100.0;

/// `OpenAI`'s range; 100 forces or forbids a token.
pub(crate) const LOGIT_BIAS: RangeInclusive<f32> = -100.0..=100.0;

/// Entries of `logit_bias`: each costs time for every token.
pub(crate) const LOGIT_BIAS_ENTRIES_MAX: usize = 1_024;

/// Alternatives of a position, as `OpenAI` allows.
pub(crate) const LOGPROBS_MAX: u8 = 20;

/// Stop strings: `OpenAI` takes 4, agents send some more; each costs a comparison for every byte.
pub(crate) const STOP_STRINGS_MAX: usize = 16;

/// Bytes of a stop string: the answer is held back by up to as many.
pub(crate) const STOP_STRING_BYTES_MAX: usize = 1_024;

/// Bytes of a value from a request that an error repeats.
pub(crate) const QUOTED_BYTES_MAX: usize = 64;

/// A client that was refused should not come back later than this, however long the queue is: the
/// estimate is rough.
pub(crate) const RETRY_AFTER_S_MAX: u64 = 600;

/// A longer deadline is none; it also keeps the sum of time and deadline in range.
pub(crate) const DEADLINE_S_MAX: u64 = 365 * 24 * 3600;

/// Bytes of a schema or of the grammar of a request's tools: compilation takes up to a microsecond
/// and some hundred bytes of stack for each.
pub(crate) const CONSTRAINT_BYTES_MAX: usize = 256 * 1_024;

/// Bytes of a grammar: its rules are compiled one inside the other.
pub(crate) const GRAMMAR_BYTES_MAX: usize = 64 * 1_024;

/// Stack of the thread that compiles a form: thrice what the largest that is let through takes
/// without optimisation.
pub(crate) const COMPILER_STACK_BYTES: usize = 128 * 1_024 * 1_024;

/// Levels of all schemas that are referred to: as many are compiled one inside the other.
pub(crate) const REFERRED_LEVELS_MAX: usize = 2_000;

/// Combinations of branches of patterns that apply to the same text, about a microsecond each.
pub(crate) const PATTERN_PRODUCT_MAX: f64 = 1e5;

/// Patterns for names: they are compared in pairs, which takes up to a millisecond.
pub(crate) const PATTERN_PROPERTIES_MAX: usize = 24;

/// Bytes of a regular expression: its states grow faster than its length.
pub(crate) const REGEX_BYTES_MAX: usize = 16 * 1_024;

/// Levels of a schema, a value inside another being one: real ones nest below twenty. Compilation
/// recurses, and takes a few kilobytes of stack a level.
pub(crate) const SCHEMA_DEPTH_MAX: usize = 64;

/// States of the lexer of one answer, with 1 to 2 kB each.
pub(crate) const LEXER_STATES_MAX: usize = 50_000;

/// Bytes of a message about a grammar.
pub(crate) const GRAMMAR_PROBLEM_BYTES_MAX: usize = 400;

/// Rows of logits that a pass computes for prompts whose log-probabilities are wanted: 64 MB for a
/// vocabulary of 250,000.
pub(crate) const SCORED_ROWS_MAX: usize = 64;

/// Pairs of properties of the same object, about a tenth of a microsecond each.
pub(crate) const PROPERTY_PAIRS_MAX: usize = 4_000_000;

/// Rules that may go on at one place: unions of fifty objects of twenty properties need half as many.
pub(crate) const ROW_ITEMS_MAX: usize = 10_000;
