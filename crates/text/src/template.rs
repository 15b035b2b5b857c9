//! The checkpoint's chat template: a conversation to text, and to ids that users cannot forge.
//!
//! Templates are Jinja as Python runs it; [`python`] holds what that means.

mod filters;
mod json;
mod methods;
mod python;
mod shield;
mod time;
mod value;

use crate::{Content, Message, Part, RenderOptions, TextError, TokenId, Tokenizer};
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value};
use shield::Shield;
use std::borrow::Cow;

/// Steps of a template, counting 64 bytes written as one. Hundreds of times what a full context
/// takes, and about a second of work.
const STEPS_MAX: u64 = 20_000_000;
/// Nested macros and loops. Real templates nest below ten; each level costs stack.
const NESTING_MAX: usize = 64;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// All characters that the templates write themselves.
    source: String,
    has_tool_use: bool,
    /// `eos_token` and the like of `tokenizer_config.json`.
    named_tokens: Map<String, Value>,
}

impl ChatTemplate {
    /// Compiles the text of a `chat_template.jinja`.
    ///
    /// # Errors
    /// [`TextError::Template`] when it is not valid.
    pub fn new(source: &str) -> Result<Self, TextError> {
        let mut template = Self {
            environment: python::environment(),
            source: String::new(),
            has_tool_use: false,
            named_tokens: Map::new(),
        };
        template.environment.set_fuel(Some(STEPS_MAX));
        template.environment.set_recursion_limit(NESTING_MAX);
        template.add(DEFAULT, source)?;
        Ok(template)
    }

    /// The `chat_template` of a `tokenizer_config.json`: text, or a list of named texts, of which
    /// `default` and `tool_use` count. `None` if the file has none.
    ///
    /// # Errors
    /// [`TextError::Template`] when the file is not valid JSON or the template not valid.
    pub fn from_tokenizer_config(json: &[u8]) -> Result<Option<Self>, TextError> {
        let fail = |problem: String| TextError::Template { problem };
        let config: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|e| fail(format!("tokenizer_config.json is not valid: {e}")))?;
        let mut template = match config.get("chat_template") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(source)) => Self::new(source)?,
            Some(Value::Array(list)) => Self::from_list(list)?,
            Some(_) => return Err(fail("`chat_template` is neither text nor a list".to_string())),
        };
        for (name, value) in &config {
            let text = match value {
                Value::Object(token) => token.get("content").and_then(Value::as_str),
                other => other.as_str(),
            };
            if let Some(text) = text.filter(|_| name.ends_with("_token")) {
                template.named_tokens.insert(name.clone(), text.into());
            }
        }
        Ok(Some(template))
    }

    fn from_list(list: &[Value]) -> Result<Self, TextError> {
        let named = |name: &str| {
            list.iter()
                .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))
                .and_then(|entry| entry.get("template"))
                .and_then(Value::as_str)
        };
        let default = named(DEFAULT).ok_or_else(|| TextError::Template {
            problem: "the list of templates has no `default`".to_string(),
        })?;
        let mut template = Self::new(default)?;
        if let Some(source) = named(TOOL_USE) {
            template.add(TOOL_USE, source)?;
            template.has_tool_use = true;
        }
        Ok(template)
    }

    fn add(&mut self, name: &'static str, source: &str) -> Result<(), TextError> {
        let unified = source.replace("\r\n", "\n").replace('\r', "\n");
        let unified = python::without_generation_tags(&unified);
        self.source.push_str(&unified);
        self.environment
            .add_template_owned(name, unified)
            .map_err(|e| TextError::Template { problem: describe(&e) })
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// [`TextError::Refused`] when the template refuses it, [`TextError::Render`] and
    /// [`TextError::RenderTooLong`] when it fails.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        let messages = messages.iter().map(Message::to_value).collect();
        self.render_variables(&self.variables(messages, tools.to_vec(), options))
    }

    /// The text of a template with exactly these variables, which need not be a valid
    /// conversation. For comparing with other implementations.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_variables(&self, variables: &Map<String, Value>) -> Result<String, TextError> {
        let with_tools = variables.get("tools").is_some_and(|tools| !tools.is_null());
        let name = if with_tools && self.has_tool_use { TOOL_USE } else { DEFAULT };
        let render = || {
            let template = self.environment.get_template(name)?;
            template.render(value::from_variables(variables))
        };
        // The engine has overflows at extreme numbers (`x[::-9223372036854775808]`), which a
        // hostile template must not turn into the end of the server. Nothing is left half done:
        // rendering changes only what it creates.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(render)) {
            Ok(rendered) => rendered.map_err(|e| render_error(&e)),
            Err(_) => Err(TextError::Render { problem: "the template engine gave up".to_string() }),
        }
    }

    /// The ids of a conversation. Added tokens that the template writes become their ids; the same
    /// strings in what people and tools say are encoded as ordinary text, so a document that
    /// contains `<|im_end|>` does not end the turn. Where nobody says such strings the result is
    /// that of [`Tokenizer::encode`] on [`Self::render`].
    ///
    /// Three strings stay visible to the template because it acts on them: `</think>` in an
    /// assistant turn without `reasoning`, with the `<think>` before it, since the template cuts
    /// the reasoning out there; and `<tool_response>` with its partner around a whole user turn,
    /// which is how some clients send results.
    ///
    /// # Errors
    /// As [`Self::render`] and [`Tokenizer::encode`].
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
    ) -> Result<Vec<TokenId>, TextError> {
        let shield = Shield::new(tokenizer, [self.source.as_str()], messages, tools, options);
        let messages = messages.iter().map(|m| shield.message(m)).collect();
        let tools = tools.iter().map(|tool| shield.value(tool)).collect();
        let options = RenderOptions { extra: shield.map(&options.extra), ..options.clone() };
        let text = self.render_variables(&self.variables(messages, tools, &options))?;
        let mut ids = Vec::new();
        tokenizer.encode_with(&text, |plain| shield.reveal(plain), &mut ids)?;
        Ok(ids)
    }

    /// The ids of a conversation whose last turn is the start of the answer: up to the last visible
    /// character of its text, so that the model goes on from there. Whatever the template writes
    /// before that text stays, such as the block of an earlier thinking.
    ///
    /// # Errors
    /// As [`Self::encode`], and [`TextError::Render`] when the last turn has no text of its own or
    /// the template does not show it.
    pub fn encode_continued(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
    ) -> Result<Vec<TokenId>, TextError> {
        let fail = |problem: &str| TextError::Render { problem: problem.to_string() };
        let shield = Shield::new(tokenizer, [self.source.as_str()], messages, tools, options);
        // A character that nobody else writes shows where the text ends, even if the template also
        // writes it elsewhere or cuts something out of it.
        let end = shield.mark().ok_or_else(|| fail("it uses every private character"))?;
        let mut messages = messages.to_vec();
        let last = messages.last_mut().and_then(last_text);
        let last = last.filter(|text| !text.trim().is_empty());
        let last = last.ok_or_else(|| fail("the last turn has no text to continue"))?;
        last.truncate(last.trim_end().len());
        last.push(end);
        let messages = messages.iter().map(|m| shield.message(m)).collect();
        let tools = tools.iter().map(|tool| shield.value(tool)).collect();
        let options = RenderOptions {
            add_generation_prompt: false,
            extra: shield.map(&options.extra),
            ..options.clone()
        };
        let text = self.render_variables(&self.variables(messages, tools, &options))?;
        let at = text.rfind(end).ok_or_else(|| fail("it does not show the last turn"))?;
        let mut ids = Vec::new();
        tokenizer.encode_with(&text[..at], |plain| shield.reveal(plain), &mut ids)?;
        Ok(ids)
    }

    fn variables(
        &self,
        messages: Vec<Value>,
        tools: Vec<Value>,
        options: &RenderOptions,
    ) -> Map<String, Value> {
        let mut variables = self.named_tokens.clone();
        variables.extend(options.extra.clone());
        variables.insert("messages".into(), Value::Array(messages));
        let tools = if tools.is_empty() { Value::Null } else { Value::Array(tools) };
        variables.insert("tools".into(), tools);
        variables.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        if let Some(on) = options.enable_thinking {
            variables.insert("enable_thinking".into(), on.into());
        }
        variables
    }

    /// Whether a rendered prompt ends inside an open `<think>`, so that the answer starts with
    /// reasoning.
    pub fn opens_thinking(rendered: &str) -> bool {
        let turn = rendered.rfind("<|im_start|>").map_or(rendered, |at| &rendered[at..]);
        turn.rfind("<think>") > turn.rfind("</think>")
    }

    /// As [`Self::opens_thinking`], for ids: what people say cannot deceive it.
    pub fn ids_open_thinking(tokenizer: &Tokenizer, ids: &[TokenId]) -> bool {
        let [turn, open, close] =
            ["<|im_start|>", "<think>", "</think>"].map(|text| tokenizer.token_id(text));
        let last = ids.iter().rev().find(|id| [turn, open, close].contains(&Some(**id)));
        last.is_some() && last.copied() == open
    }
}

/// The text that a turn ends with.
fn last_text(message: &mut Message) -> Option<&mut String> {
    match &mut message.content {
        Content::Text(text) => Some(text),
        Content::Parts(parts) => match parts.last_mut() {
            Some(Part::Text(text)) => Some(text),
            _ => None,
        },
    }
}

fn render_error(error: &minijinja::Error) -> TextError {
    if let Some(message) = python::raised(error) {
        return TextError::Refused { message: message.to_string() };
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return TextError::RenderTooLong { steps_max: STEPS_MAX };
    }
    TextError::Render { problem: describe(error) }
}

/// One line with the innermost cause, which names what went wrong.
fn describe(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Cow::from(text).replace('\n', " ")
}
