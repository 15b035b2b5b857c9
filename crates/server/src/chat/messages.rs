//! The turns of a chat request.

use super::wire::{ChatMessage, ContentField, ContentPart, ToolCallField};
use crate::conversation::{Conversation, Turn, earlier_call};
use crate::error::{ApiError, quoted};
use crate::json::Object;
use crate::limits::PARTS_MAX;
use lily_text::{Message, ToolCall};

/// Checks the turns and brings them into the form of the template.
pub(super) fn messages(list: Vec<Object<ChatMessage>>) -> Result<Vec<Message>, ApiError> {
    Conversation::check_len("messages", list.len())?;
    let mut conversation = Conversation::default();
    for (i, Object(message)) in list.into_iter().enumerate() {
        conversation.push(turn(&format!("messages[{i}]"), message)?);
    }
    Ok(conversation.finish())
}

fn turn(param: &str, message: ChatMessage) -> Result<Turn, ApiError> {
    if message.audio.is_some() {
        let problem = "is not served: this server reads text only";
        return Err(ApiError::unsupported(format!("{param}.audio"), problem));
    }
    if message.function_call.is_some() {
        let problem = "is the old form; send `tool_calls`";
        return Err(ApiError::unsupported(format!("{param}.function_call"), problem));
    }
    let role = message.role.as_str();
    if !["system", "developer", "user", "assistant", "tool"].contains(&role) {
        let problem = format!(
            "is `{}`, but must be system, developer, user, assistant or tool",
            quoted(role)
        );
        return Err(ApiError::invalid(format!("{param}.role"), problem));
    }
    let text = text(&format!("{param}.content"), message.content)?;
    Ok(match role {
        "system" | "developer" => Turn::System(text.unwrap_or_default()),
        "user" => Turn::User(text.unwrap_or_default()),
        "tool" => Turn::Result { call_id: message.tool_call_id, text: text.unwrap_or_default() },
        _ => Turn::Assistant {
            content: text.or(message.refusal).unwrap_or_default(),
            reasoning: message.reasoning_content.or(message.reasoning),
            calls: calls(&format!("{param}.tool_calls"), message.tool_calls)?,
        },
    })
}

/// The words of a turn; `None` if it has none.
fn text(param: &str, content: Option<ContentField>) -> Result<Option<String>, ApiError> {
    match content {
        None => Ok(None),
        Some(ContentField::Text(text)) => Ok(Some(text)),
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

fn calls(param: &str, list: Option<Vec<Object<ToolCallField>>>) -> Result<Vec<ToolCall>, ApiError> {
    let list = list.unwrap_or_default();
    Conversation::check_calls(param, list.len())?;
    let call = |(i, Object(call))| tool_call(&format!("{param}[{i}]"), call);
    list.into_iter().enumerate().map(call).collect()
}

fn tool_call(param: &str, call: ToolCallField) -> Result<ToolCall, ApiError> {
    if let Some(kind) = call.kind.as_deref()
        && kind != "function"
    {
        let problem = format!("is `{}`; this server knows only `function`", quoted(kind));
        return Err(ApiError::unsupported(format!("{param}.type"), problem));
    }
    let function = call.function.0;
    earlier_call(
        (&format!("{param}.function.name"), function.name),
        (&format!("{param}.function.arguments"), function.arguments),
        call.id,
    )
}
