//! The turns of a conversation.

use super::{check_depth, kind_of, tools};
use crate::error::{ApiError, quoted};
use crate::limits::{MESSAGES_MAX, PARTS_MAX, TOOL_CALLS_MAX};
use crate::openai::{ChatMessage, ContentField, ContentPart, Object, ToolCallField};
use lily_text::{Content, Message, Role, ToolCall};
use serde_json::{Map, Value};

/// Checks the turns and brings them into the form of the template: instructions first and in one
/// turn, results of calls in the order of the calls.
pub(super) fn messages(list: Vec<Object<ChatMessage>>) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "is empty; send at least one message"));
    }
    if list.len() > MESSAGES_MAX {
        let problem = format!("has {} entries, but {MESSAGES_MAX} are allowed", list.len());
        return Err(ApiError::invalid("messages", problem));
    }
    let mut turns = Turns::default();
    for (i, Object(message)) in list.into_iter().enumerate() {
        turns.push(&format!("messages[{i}]"), message)?;
    }
    turns.sort_results();
    Ok(turns.messages)
}

/// The conversation as it is read.
#[derive(Default)]
struct Turns {
    messages: Vec<Message>,
    /// Ids of the calls of the last assistant turn, in order.
    call_ids: Vec<Option<String>>,
    /// Results after it.
    n_results: usize,
}

impl Turns {
    fn push(&mut self, param: &str, message: ChatMessage) -> Result<(), ApiError> {
        if message.audio.is_some() {
            let problem = "is not served: this server reads text only";
            return Err(ApiError::unsupported(format!("{param}.audio"), problem));
        }
        if message.function_call.is_some() {
            let problem = "is the old form; send `tool_calls`";
            return Err(ApiError::unsupported(format!("{param}.function_call"), problem));
        }
        match message.role.as_str() {
            "system" | "developer" => self.push_system(param, message),
            "user" => self.push_user(param, message),
            "assistant" => self.push_assistant(param, message),
            "tool" => self.push_result(param, message),
            other => {
                let problem = format!(
                    "is `{}`, but must be system, developer, user, assistant or tool",
                    quoted(other)
                );
                Err(ApiError::invalid(format!("{param}.role"), problem))
            }
        }
    }

    /// The template knows one system turn, at the start; several in a row become one.
    fn push_system(&mut self, param: &str, message: ChatMessage) -> Result<(), ApiError> {
        let text = required_text(param, message.content)?;
        match self.messages.as_mut_slice() {
            [] => self.messages.push(Message::text(Role::System, text)),
            [Message { role: Role::System, content: Content::Text(first), .. }] => {
                first.push_str("\n\n");
                first.push_str(&text);
            }
            _ => {
                let problem =
                    format!("is `{}`, but instructions come before all other turns", message.role);
                return Err(ApiError::invalid(format!("{param}.role"), problem));
            }
        }
        Ok(())
    }

    fn push_user(&mut self, param: &str, message: ChatMessage) -> Result<(), ApiError> {
        let text = required_text(param, message.content)?;
        self.sort_results();
        self.messages.push(Message::text(Role::User, text));
        Ok(())
    }

    fn push_assistant(&mut self, param: &str, message: ChatMessage) -> Result<(), ApiError> {
        let content = optional_text(param, message.content)?.or(message.refusal);
        let calls = message.tool_calls.unwrap_or_default();
        if calls.len() > TOOL_CALLS_MAX {
            let problem = format!("has {} entries, but {TOOL_CALLS_MAX} are allowed", calls.len());
            return Err(ApiError::invalid(format!("{param}.tool_calls"), problem));
        }
        self.sort_results();
        self.call_ids = calls.iter().map(|call| call.0.id.clone()).collect();
        let tool_calls = calls
            .into_iter()
            .enumerate()
            .map(|(i, Object(call))| tool_call(&format!("{param}.tool_calls[{i}]"), call))
            .collect::<Result<_, _>>()?;
        let mut turn = Message::text(Role::Assistant, content.unwrap_or_default());
        turn.reasoning = message.reasoning_content.or(message.reasoning);
        turn.tool_calls = tool_calls;
        self.messages.push(turn);
        Ok(())
    }

    fn push_result(&mut self, param: &str, message: ChatMessage) -> Result<(), ApiError> {
        let text = required_text(param, message.content)?;
        if !matches!(self.messages.last().map(|m| m.role), Some(Role::Assistant | Role::Tool)) {
            let problem = "is `tool`, but a result comes after an assistant turn that calls";
            return Err(ApiError::invalid(format!("{param}.role"), problem));
        }
        self.n_results += 1;
        let turn = Message::text(Role::Tool, text);
        self.messages.push(Message { tool_call_id: message.tool_call_id, ..turn });
        Ok(())
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

fn required_text(param: &str, content: Option<ContentField>) -> Result<String, ApiError> {
    optional_text(param, content)?
        .ok_or_else(|| ApiError::invalid(format!("{param}.content"), "is missing"))
}

fn optional_text(param: &str, content: Option<ContentField>) -> Result<Option<String>, ApiError> {
    let param = format!("{param}.content");
    match content {
        None => Ok(None),
        Some(ContentField::Text(text)) => Ok(Some(text)),
        Some(ContentField::Parts(parts)) if parts.is_empty() => {
            Err(ApiError::invalid(param, "is an empty array; send at least one part"))
        }
        Some(ContentField::Parts(parts)) if parts.len() > PARTS_MAX => {
            let problem = format!("has {} parts, but {PARTS_MAX} are allowed", parts.len());
            Err(ApiError::invalid(param, problem))
        }
        Some(ContentField::Parts(parts)) => parts
            .into_iter()
            .enumerate()
            .map(|(i, Object(part))| part_text(&format!("{param}[{i}]"), part))
            .collect::<Result<String, _>>()
            .map(Some),
    }
}

/// Text parts join without a separator, as the template does.
fn part_text(param: &str, part: ContentPart) -> Result<String, ApiError> {
    let (field, text) = match part.kind.as_str() {
        "text" => ("text", part.text),
        "refusal" => ("refusal", part.refusal),
        "image_url" | "image" | "input_image" => {
            let problem = "is an image, but this server reads no images yet";
            return Err(ApiError::unsupported(param, problem));
        }
        "video_url" | "video" | "input_audio" | "audio" | "audio_url" | "file" => {
            let problem = format!("is of type `{}`, but this server reads text only", part.kind);
            return Err(ApiError::unsupported(param, problem));
        }
        other => {
            let problem = format!("is `{}`, but must be `text`", quoted(other));
            return Err(ApiError::invalid(format!("{param}.type"), problem));
        }
    };
    text.ok_or_else(|| ApiError::invalid(format!("{param}.{field}"), "is missing"))
}

fn tool_call(param: &str, call: ToolCallField) -> Result<ToolCall, ApiError> {
    if let Some(kind) = call.kind.as_deref()
        && kind != "function"
    {
        let problem = format!("is `{}`; this server knows only `function`", quoted(kind));
        return Err(ApiError::unsupported(format!("{param}.type"), problem));
    }
    let function = call.function.0;
    tools::check_name(&format!("{param}.function.name"), &function.name)?;
    let arguments = arguments(&format!("{param}.function.arguments"), function.arguments)?;
    Ok(ToolCall { id: call.id, name: function.name, arguments })
}

/// `OpenAI` writes the object as a string; no arguments are often written as an empty one.
fn arguments(param: &str, field: Option<Value>) -> Result<Map<String, Value>, ApiError> {
    let value = match field {
        None => return Ok(Map::new()),
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
