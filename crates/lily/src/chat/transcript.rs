//! A conversation as a file, in the form of `OpenAI`'s messages.

use anyhow::{Context, Result, bail};
use lily_text::{Content, Message, Role, ToolCall};
use serde_json::{Map, Value, json};

pub(super) fn to_json(messages: &[Message]) -> String {
    let messages: Vec<Value> = messages.iter().map(message_to_json).collect();
    format!("{:#}\n", json!({ "messages": messages }))
}

fn message_to_json(message: &Message) -> Value {
    let content = match &message.content {
        Content::Text(text) => text.as_str(),
        // Chat never makes any.
        Content::Parts(_) => "",
    };
    let mut value = json!({"role": message.role.as_str(), "content": content});
    if let Some(reasoning) = &message.reasoning {
        value["reasoning_content"] = json!(reasoning);
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &ToolCall| {
            let arguments = Value::Object(call.arguments.clone()).to_string();
            json!({"type": "function", "function": {"name": call.name, "arguments": arguments}})
        };
        value["tool_calls"] = message.tool_calls.iter().map(call).collect();
    }
    value
}

pub(super) fn from_json(text: &str) -> Result<Vec<Message>> {
    let value: Value = serde_json::from_str(text).context("it is not JSON")?;
    let messages = value["messages"].as_array().context("it has no list `messages`")?;
    messages.iter().map(message_from_json).collect()
}

fn message_from_json(value: &Value) -> Result<Message> {
    let role = match value["role"].as_str() {
        Some("system") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => bail!("the role {} is none of system, user, assistant, tool", value["role"]),
    };
    let content = match &value["content"] {
        Value::String(text) => text.as_str(),
        Value::Null => "",
        _ => bail!("the content of a message is not text"),
    };
    let mut message = Message::text(role, content);
    message.reasoning = value["reasoning_content"].as_str().map(str::to_owned);
    for call in value["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let name = function["name"].as_str().context("a tool call has no name")?;
        message.tool_calls.push(tool_call(name, function["arguments"].as_str().unwrap_or("{}"))?);
    }
    Ok(message)
}

/// A call with its arguments as JSON text.
pub(super) fn tool_call(name: &str, arguments: &str) -> Result<ToolCall> {
    let arguments: Map<String, Value> = serde_json::from_str(arguments)
        .with_context(|| format!("the arguments of `{name}` are no JSON object"))?;
    Ok(ToolCall { id: None, name: name.to_owned(), arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_conversation_is_loaded_as_it_was() {
        let mut answer = Message::text(Role::Assistant, "Hello \"you\"\n");
        answer.reasoning = Some("A greeting.".to_owned());
        answer.tool_calls = vec![tool_call("now", r#"{"zone": "UTC"}"#).expect("valid")];
        let messages = vec![
            Message::text(Role::System, "Be brief."),
            Message::text(Role::User, "Hi 🌸"),
            answer,
        ];
        assert_eq!(from_json(&to_json(&messages)).expect("valid"), messages);
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        for (text, expected) in [
            ("hello", "not JSON"),
            ("{}", "`messages`"),
            (r#"{"messages": [{"role": "robot", "content": ""}]}"#, "robot"),
            (r#"{"messages": [{"role": "user", "content": 1}]}"#, "not text"),
            (r#"{"messages": [{"role": "assistant", "tool_calls": [{}]}]}"#, "no name"),
        ] {
            let error = from_json(text).expect_err(text);
            assert!(format!("{error:#}").contains(expected), "{text}: {error:#}");
        }
    }
}
