//! The turns of a conversation, whatever dialect they came in, in the form of the template.
//!
//! The template knows one system turn, at the start, and links results to calls by their order.
//! Clients send more than that: instructions between turns, results in any order or without their
//! call, turns without words. All of it has one meaning here, so that no dialect differs.

use crate::error::ApiError;
use crate::json::{check_depth, kind_of};
use crate::limits::{MESSAGES_MAX, TOOL_CALLS_MAX};
use crate::tools;
use lily_text::{Content, Message, Role, ToolCall};
use serde_json::{Map, Value};

/// Who says what in one turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Instructions.
    System(String),
    User(String),
    Assistant {
        content: String,
        reasoning: Option<String>,
        calls: Vec<ToolCall>,
    },
    /// What a call returned.
    Result {
        call_id: Option<String>,
        text: String,
    },
}

/// A conversation as it is read.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    messages: Vec<Message>,
    /// Ids of the calls of the last assistant turn, in order.
    call_ids: Vec<Option<String>>,
    /// Results after it.
    n_results: usize,
}

impl Conversation {
    /// Refuses lists that are empty or longer than any context.
    ///
    /// # Errors
    /// 400 for `param`.
    pub(crate) fn check_len(param: &str, n: usize) -> Result<(), ApiError> {
        if n == 0 {
            return Err(ApiError::invalid(param, "is empty; send at least one message"));
        }
        if n > MESSAGES_MAX {
            let problem = format!("has {n} entries, but {MESSAGES_MAX} are allowed");
            return Err(ApiError::invalid(param, problem));
        }
        Ok(())
    }

    /// Refuses more calls in one turn than any answer has.
    ///
    /// # Errors
    /// 400 for `param`.
    pub(crate) fn check_calls(param: &str, n: usize) -> Result<(), ApiError> {
        if n > TOOL_CALLS_MAX {
            let problem = format!("has {n} entries, but {TOOL_CALLS_MAX} are allowed");
            return Err(ApiError::invalid(param, problem));
        }
        Ok(())
    }

    /// Adds the next turn.
    pub(crate) fn push(&mut self, turn: Turn) {
        match turn {
            Turn::System(text) => self.push_system(text),
            Turn::User(text) => {
                self.sort_results();
                self.messages.push(Message::text(Role::User, text));
            }
            Turn::Assistant { content, reasoning, calls } => {
                self.sort_results();
                self.call_ids = calls.iter().map(|call| call.id.clone()).collect();
                let turn = Message::text(Role::Assistant, content);
                self.messages.push(Message { reasoning, tool_calls: calls, ..turn });
            }
            Turn::Result { call_id, text } => {
                self.n_results += 1;
                let turn = Message::text(Role::Tool, text);
                self.messages.push(Message { tool_call_id: call_id, ..turn });
            }
        }
    }

    /// Instructions at the start join into the one turn that the template has for them. Later ones
    /// stay where they were said, as words of the user: moved to the start they would change the
    /// beginning of the prompt, and with it everything that was computed for it.
    fn push_system(&mut self, text: String) {
        match self.messages.as_mut_slice() {
            [] => self.messages.push(Message::text(Role::System, text)),
            [Message { role: Role::System, content: Content::Text(first), .. }] => {
                first.push_str("\n\n");
                first.push_str(&text);
            }
            _ => {
                self.sort_results();
                self.messages.push(Message::text(Role::User, text));
            }
        }
    }

    /// The turns in the form of the template.
    pub(crate) fn finish(mut self) -> Vec<Message> {
        self.sort_results();
        self.messages
    }

    /// The template links results to calls by order, the wire by id. Results stay as they came
    /// when an id is absent, unknown or named twice.
    fn sort_results(&mut self) {
        let call_ids = std::mem::take(&mut self.call_ids);
        let start = self.messages.len() - std::mem::take(&mut self.n_results);
        let results = &mut self.messages[start..];
        let place = |id: &Option<String>| call_ids.iter().position(|c| c.is_some() && c == id);
        let places: Option<Vec<_>> = results.iter().map(|r| place(&r.tool_call_id)).collect();
        let Some(mut places) = places else { return };
        places.sort_unstable();
        places.dedup();
        if places.len() == results.len() {
            results.sort_by_key(|r| place(&r.tool_call_id));
        }
    }
}

/// A call of an earlier answer. `name_param` and `arguments_param` are the paths of its fields.
///
/// # Errors
/// 400 for a name that no call can have, and for arguments that hold no object.
pub(crate) fn earlier_call(
    (name_param, name): (&str, String),
    (arguments_param, arguments): (&str, Option<Value>),
    id: Option<String>,
) -> Result<ToolCall, ApiError> {
    tools::check_name(name_param, &name)?;
    let arguments = call_arguments(arguments_param, arguments)?;
    Ok(ToolCall { id, name, arguments })
}

/// `OpenAI` writes the object as a string; no arguments are often written as an empty one.
fn call_arguments(param: &str, field: Option<Value>) -> Result<Map<String, Value>, ApiError> {
    let value = match field {
        None | Some(Value::Null) => return Ok(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(Map::new()),
        Some(Value::String(text)) => serde_json::from_str(&text)
            .map_err(|e| ApiError::invalid(param, format!("is not valid JSON: {e}")))?,
        Some(value) => value,
    };
    check_depth(param, &value)?;
    match value {
        Value::Object(arguments) => Ok(arguments),
        other => {
            let problem = format!("holds {}, but must hold an object", kind_of(&other));
            Err(ApiError::invalid(param, problem))
        }
    }
}
