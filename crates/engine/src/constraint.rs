//! Forms that an answer must have: from the request to the set of tokens that may come next.
//!
//! Grammars are `llguidance`'s. They are compiled where the request is submitted; the engine thread
//! only asks for masks. Whatever a client sends costs a bounded time and memory: its size is
//! limited here, the work by `llguidance` itself.
//!
//! An answer that thinks is free until its `</think>`; then the form begins, with up to two
//! newlines before it, which is what the model writes there.

mod cost;
mod schema;
mod tools;

use crate::limits::{
    COMPILER_STACK_BYTES, GRAMMAR_BYTES_MAX, GRAMMAR_PROBLEM_BYTES_MAX, LEXER_STATES_MAX,
    REGEX_BYTES_MAX, ROW_ITEMS_MAX,
};
use crate::{Constraint, SubmitError, ToolRule};
use lily_text::{TokenId, Tokenizer};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use schema::Strictness;
use serde_json::Value;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use tools::ToolGrammar;

/// Compiles the forms of all requests of an engine.
pub(crate) struct Grammars {
    tokenizer: Arc<Tokenizer>,
    eos_token_ids: Vec<TokenId>,
    vocab_size: usize,
    /// The trie of all tokens, made for the first request that needs it.
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").field("vocab_size", &self.vocab_size).finish_non_exhaustive()
    }
}

/// What the form of an answer depends on.
#[derive(Debug, Default)]
pub(crate) struct Form<'a> {
    pub(crate) constraint: Option<&'a Constraint>,
    /// Definitions in `OpenAI`'s form.
    pub(crate) tools: &'a [Value],
    pub(crate) tool_rule: ToolRule,
    /// The form begins after a think block.
    pub(crate) after_thinking: bool,
}

impl Grammars {
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        eos_token_ids: &[TokenId],
        vocab_size: usize,
    ) -> Self {
        let in_vocabulary = |id: &TokenId| (*id as usize) < vocab_size;
        let eos_token_ids = eos_token_ids.iter().copied().filter(in_vocabulary).collect();
        Self { tokenizer, eos_token_ids, vocab_size, factory: OnceLock::new() }
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// What guides an answer of this form; `None` if it is free.
    ///
    /// # Errors
    /// [`SubmitError::Constraint`] if the form cannot be enforced.
    pub(crate) fn guide(&self, form: &Form<'_>) -> Result<Option<Guide>, SubmitError> {
        let calls = ToolGrammar::new(form.tools, &form.tool_rule, form.constraint.is_some())?;
        let (field, grammar) = match (calls, form.constraint) {
            (None, None) => return Ok(None),
            (None, Some(constraint)) => {
                let (field, body) = body(constraint)?;
                (field, after(form.after_thinking, "@body", "", Some(body)))
            }
            (Some(calls), Some(constraint)) if !calls.is_required => {
                let (field, body) = body(constraint)?;
                let start = "(@body | calls)";
                (field, after(form.after_thinking, start, &calls.rules, Some(body)))
            }
            (Some(calls), _) if calls.is_required => {
                ("tools", after(form.after_thinking, "calls", &calls.rules, None))
            }
            // Newlines after the thinking are part of the free text.
            (Some(calls), _) => ("tools", after(false, "text_or_calls", &calls.rules, None)),
        };
        let factory = self.factory.get_or_init(|| self.factory()).as_ref();
        let fail =
            |problem: &str| Err(SubmitError::Constraint { field, problem: shortened(problem) });
        let factory = match factory {
            Ok(factory) => factory,
            Err(problem) => return fail(problem),
        };
        let compile = || factory.create_parser(grammar).map_err(|error| error.to_string());
        match on_large_stack(compile) {
            Ok(parser) => Ok(Some(Guide { matcher: Matcher::new(Ok(parser)) })),
            Err(problem) => fail(&problem),
        }
    }

    fn factory(&self) -> Result<ParserFactory, String> {
        let ids = 0..TokenId::try_from(self.vocab_size).unwrap_or(TokenId::MAX);
        // Special tokens are no text, so no form contains them. Tags such as `<think>` are text.
        let words: Vec<Vec<u8>> = ids
            .map(|id| {
                let bytes = self.tokenizer.token_bytes(id);
                if self.tokenizer.is_special(id) { Vec::new() } else { bytes.to_vec() }
            })
            .collect();
        let Some(&eos) = self.eos_token_ids.first() else {
            return Err("the checkpoint names no token that ends an answer".to_owned());
        };
        let info = TokRxInfo::new(u32::try_from(words.len()).unwrap_or(u32::MAX), eos);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&self.eos_token_ids);
        // "Approximate" means that bytes are never forced as tokens: the model chooses how it cuts
        // what the grammar forces.
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
                .map_err(|error| error.to_string())?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_items_in_row = ROW_ITEMS_MAX;
        limits.max_lexer_states = LEXER_STATES_MAX;
        limits.verbose_errors = false;
        Ok(factory)
    }
}

/// Compilation recurses along schemas and rules, and threads of callers may have small stacks.
fn on_large_stack<T: Send>(
    compile: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("lily-grammar".to_owned());
        let thread = builder.stack_size(COMPILER_STACK_BYTES).spawn_scoped(scope, compile);
        let thread = thread.map_err(|error| format!("no thread to compile it: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the compiler of grammars panicked".to_owned()))
    })
}

/// The field of the request and the grammar of its value.
fn body(constraint: &Constraint) -> Result<(&'static str, GrammarWithLexer), SubmitError> {
    let check = |field: &'static str, bytes: usize, max: usize| {
        if bytes <= max {
            return Ok(());
        }
        let problem = format!("it has {bytes} bytes, but at most {max} are taken");
        Err(SubmitError::Constraint { field, problem })
    };
    let json = |schema: &Value| {
        let prepared = Strictness::Exact.prepare(schema, &Value::Null);
        prepared
            .map(GrammarWithLexer::from_json_schema)
            .map_err(|problem| SubmitError::Constraint { field: "json_schema", problem })
    };
    let (field, mut grammar) = match constraint {
        Constraint::JsonObject => ("json_schema", json(&serde_json::json!({"type": "object"}))?),
        Constraint::JsonSchema(schema) => ("json_schema", json(schema)?),
        Constraint::Lark(text) => {
            check("grammar", text.len(), GRAMMAR_BYTES_MAX)?;
            cost::check_grammar(text)
                .map_err(|problem| SubmitError::Constraint { field: "grammar", problem })?;
            ("grammar", GrammarWithLexer::from_lark(text.clone()))
        }
        Constraint::Regex(text) => {
            check("regex", text.len(), REGEX_BYTES_MAX)?;
            ("regex", GrammarWithLexer::from_regex(text))
        }
    };
    grammar.name = Some("body".to_owned());
    Ok((field, grammar))
}

/// A grammar that starts with `start`, after the newlines that follow a think block.
fn after(
    thinking: bool,
    start: &str,
    rules: &str,
    body: Option<GrammarWithLexer>,
) -> TopLevelGrammar {
    if let Some(body) = body.clone().filter(|_| !thinking && rules.is_empty()) {
        return TopLevelGrammar::from_grammar(body);
    }
    let mut text = String::new();
    let gap = if thinking { "GAP? " } else { "" };
    let _ = writeln!(text, "start: {gap}{start}");
    if thinking {
        text.push_str("GAP: /\\n{1,2}/\n");
    }
    text.push_str(rules);
    let mut grammar = TopLevelGrammar::from_lark(text);
    grammar.grammars.extend(body);
    grammar
}

/// One line that a client can be told.
fn shortened(problem: &str) -> String {
    // What is left of panics that the compiler catches: they are limits that it does not name.
    if problem.starts_with("panic:") {
        return "it is too large or too complex".to_owned();
    }
    let problem = problem.replace("<non-verbose/>", "");
    let mut line = problem.split_whitespace().collect::<Vec<_>>().join(" ");
    line.truncate(line.floor_char_boundary(GRAMMAR_PROBLEM_BYTES_MAX));
    line
}

/// Follows one answer and says which tokens may come next.
pub(crate) struct Guide {
    matcher: Matcher,
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guide").field("stop_reason", &self.matcher.stop_reason()).finish()
    }
}

impl Guide {
    /// Copies a row of logits without the tokens that the form forbids. The tokens that end an
    /// answer are allowed exactly if it may end here, and alone if it can only end.
    ///
    /// # Errors
    /// Says why the answer cannot go on.
    pub(crate) fn mask(&mut self, row: &[f32], out: &mut Vec<f32>) -> Result<(), String> {
        let allowed: SimpleVob =
            self.matcher.compute_mask_or_eos().map_err(|error| shortened(&error.to_string()))?;
        out.clear();
        out.resize(row.len(), f32::NEG_INFINITY);
        let mut n_allowed = 0;
        allowed.iter_set_entries(|id| {
            if let (Some(to), Some(from)) = (out.get_mut(id), row.get(id)) {
                *to = *from;
                n_allowed += 1;
            }
        });
        if n_allowed == 0 { Err("no token can follow".to_owned()) } else { Ok(()) }
    }

    /// Goes on by a token that is part of the form.
    ///
    /// # Errors
    /// Says why the token cannot be part of it.
    pub(crate) fn push(&mut self, id: TokenId) -> Result<(), String> {
        // After its last byte only the end can come, which is no part of it.
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(());
        }
        self.matcher.consume_token(id).map_err(|error| shortened(&error.to_string()))
    }

    /// Goes on by bytes that came in the same token as the end of the thinking.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let environment = self.matcher.tok_env().map_err(|error| shortened(&error.to_string()))?;
        let ids = environment.tok_trie().greedy_tokenize(bytes);
        ids.into_iter().try_for_each(|id| self.push(id))
    }
}

#[cfg(test)]
mod tests;
