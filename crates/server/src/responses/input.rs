//! The items of a conversation: what they mean, and the form in which they are kept.

use super::custom;
use super::store::{Stored, StoredItem};
use super::tools::{flat_name, text};
use super::wire::Fields;
use crate::App;
use crate::conversation::{Conversation, Turn, earlier_call};
use crate::error::{ApiError, quoted};
use crate::json::{Object, TextOr, wrong_type};
use crate::limits::PARTS_MAX;
use lily_text::{Message, ToolCall};
use serde_json::{Value, json};
use std::collections::HashSet;

/// What our reasoning starts with where clients keep it as `encrypted_content`, which hides
/// nothing here: what others wrote there cannot be read.
pub(super) const OWN_REASONING: &str = "lily:";

/// The items of a request, those before them and new ones, in the form in which they are kept.
///
/// # Errors
/// 400 for an item that has no form, 404 for one that is not kept.
pub(super) fn items(
    app: &App,
    previous: Option<&Stored>,
    input: Option<TextOr<Fields>>,
) -> Result<Vec<StoredItem>, ApiError> {
    let mut items: Vec<_> = previous.into_iter().flat_map(Stored::items).cloned().collect();
    let new = match input {
        None if previous.is_none() => return Err(ApiError::invalid("input", "is missing")),
        None => Vec::new(),
        Some(TextOr::Text(text)) => vec![user_message(&text)],
        Some(TextOr::Parts(list)) => list.into_iter().map(|Object(item)| item).collect(),
    };
    Conversation::check_len("input", items.len() + new.len())?;
    let ids: HashSet<_> = new.iter().filter_map(reference).collect();
    let kept = app.responses.items(&ids);
    for (i, item) in new.iter().enumerate() {
        let param = format!("input[{i}]");
        match reference(item) {
            Some(id) => items.push(kept.get(id).cloned().ok_or_else(|| {
                let problem = format!("refers to `{}`, which is not stored", quoted(id));
                ApiError::invalid(format!("{param}.id"), problem)
            })?),
            None => items.push(normal(app, &param, item.clone())?),
        }
    }
    Ok(items)
}

fn user_message(text: &str) -> Fields {
    let message = json!({"type": "message", "role": "user", "content": text});
    message.as_object().cloned().unwrap_or_default()
}

/// The id that an item stands for.
fn reference(item: &Fields) -> Option<&str> {
    let is_reference = match item.get("type") {
        None | Some(Value::Null) => !item.contains_key("role"),
        Some(kind) => kind == "item_reference",
    };
    item.get("id").and_then(Value::as_str).filter(|_| is_reference)
}

/// An item with the fields that clients may leave out.
fn normal(app: &App, param: &str, mut item: Fields) -> Result<StoredItem, ApiError> {
    let kind = match text(param, &item, "type")? {
        Some("item_reference") => {
            return Err(ApiError::invalid(format!("{param}.id"), "is missing"));
        }
        Some(kind) => kind.to_owned(),
        None if item.contains_key("role") => {
            item.insert("type".to_owned(), "message".into());
            "message".to_owned()
        }
        None => return Err(ApiError::invalid(format!("{param}.type"), "is missing")),
    };
    let id = match text(param, &item, "id")? {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => app.ids.next(prefix(&kind)),
    };
    item.insert("id".to_owned(), id.as_str().into());
    if kind == "reasoning" {
        item.entry("summary").or_insert_with(|| json!([]));
    } else if matches!(item.get("status"), None | Some(Value::Null)) {
        item.insert("status".to_owned(), "completed".into());
    }
    if let (true, Some(content)) = (kind == "message", item.get("content"))
        && content.is_string()
    {
        let part = if item.get("role").is_some_and(|role| role == "assistant") {
            json!({"type": "output_text", "text": content, "annotations": []})
        } else {
            json!({"type": "input_text", "text": content})
        };
        item.insert("content".to_owned(), json!([part]));
    }
    let json = Value::Object(item).to_string();
    Ok(StoredItem { id: id.into(), json: json.into() })
}

fn prefix(kind: &str) -> &'static str {
    match kind {
        "message" => "msg_",
        "reasoning" => "rs_",
        "function_call" => "fc_",
        "function_call_output" => "fco_",
        "custom_tool_call" => "ctc_",
        "custom_tool_call_output" => "ctco_",
        _ => "item_",
    }
}

/// The turns that the items are, after the instructions. `n_before` items come from an earlier
/// response.
///
/// # Errors
/// 400 for what is meaningless or not served.
pub(super) fn messages(
    instructions: Option<&str>,
    items: &[StoredItem],
    n_before: usize,
) -> Result<Vec<Message>, ApiError> {
    let mut turns = Turns::default();
    if let Some(instructions) = instructions.filter(|text| !text.is_empty()) {
        turns.conversation.push(Turn::System(instructions.to_owned()));
    }
    for (i, item) in items.iter().enumerate() {
        let param = match i.checked_sub(n_before) {
            Some(i) => format!("input[{i}]"),
            None => "previous_response_id".to_owned(),
        };
        let item: Fields = serde_json::from_str(&item.json)
            .map_err(|e| ApiError::invalid(&param, format!("cannot be read: {e}")))?;
        turns.push(&param, &item)?;
    }
    turns.end_answer()?;
    Ok(turns.conversation.finish())
}

/// Turns in the making: an answer of the model is several items, but one turn.
#[derive(Debug, Default)]
struct Turns {
    conversation: Conversation,
    reasoning: Option<String>,
    content: Option<String>,
    calls: Vec<ToolCall>,
}

impl Turns {
    fn end_answer(&mut self) -> Result<(), ApiError> {
        let (reasoning, content) = (self.reasoning.take(), self.content.take());
        let calls = std::mem::take(&mut self.calls);
        if reasoning.is_none() && content.is_none() && calls.is_empty() {
            return Ok(());
        }
        Conversation::check_calls("input", calls.len())?;
        let content = content.unwrap_or_default();
        self.conversation.push(Turn::Assistant { content, reasoning, calls });
        Ok(())
    }

    fn push(&mut self, param: &str, item: &Fields) -> Result<(), ApiError> {
        let call_id = || text(param, item, "call_id").map(|id| id.map(str::to_owned));
        let field = |name: &str| item.get(name).cloned().filter(|value| !value.is_null());
        match text(param, item, "type")?.unwrap_or_default() {
            "message" => self.push_message(param, item),
            "reasoning" => self.push_reasoning(param, item),
            "function_call" => {
                let name = name(param, item)?;
                self.push_call(param, name, ("arguments", field("arguments")), call_id()?)
            }
            "custom_tool_call" => {
                let input = text(param, item, "input")?
                    .ok_or_else(|| ApiError::invalid(format!("{param}.input"), "is missing"))?;
                let arguments = json!({custom::PARAMETER: input});
                self.push_call(param, name(param, item)?, ("input", Some(arguments)), call_id()?)
            }
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                let output = content(&format!("{param}.output"), item.get("output"))?;
                let id = text(param, item, "id")?.map(str::to_owned);
                self.push_result(call_id()?.or(id), output)
            }
            // Calls that others served: what was called and what came of it stays.
            kind @ ("local_shell_call" | "shell_call") => {
                let name = kind.trim_end_matches("_call").to_owned();
                self.push_call(param, name, ("action", field("action")), call_id()?)
            }
            "apply_patch_call" => {
                let arguments = ("operation", field("operation"));
                self.push_call(param, "apply_patch".to_owned(), arguments, call_id()?)
            }
            "shell_call_output" | "apply_patch_call_output" => {
                let output = field("output").or_else(|| field("status")).unwrap_or_default();
                self.push_result(call_id()?, as_text(output))
            }
            "web_search_call" => {
                let arguments = ("action", field("action"));
                self.push_call(param, "web_search".to_owned(), arguments, None)
            }
            "file_search_call" => {
                let arguments = json!({"queries": item.get("queries")});
                let name = "file_search".to_owned();
                self.push_call(param, name, ("queries", Some(arguments)), None)?;
                field("results").map_or(Ok(()), |r| self.push_result(None, as_text(r)))
            }
            "code_interpreter_call" => {
                let arguments = json!({"code": item.get("code")});
                let name = "code_interpreter".to_owned();
                self.push_call(param, name, ("code", Some(arguments)), None)?;
                field("outputs").map_or(Ok(()), |r| self.push_result(None, as_text(r)))
            }
            "mcp_call" => {
                let arguments = ("arguments", field("arguments"));
                self.push_call(param, name(param, item)?, arguments, None)?;
                let result = field("output").or_else(|| field("error"));
                result.map_or(Ok(()), |r| self.push_result(None, as_text(r)))
            }
            other => {
                let problem =
                    format!("is `{}`, which this server cannot tell its model", quoted(other));
                Err(ApiError::unsupported(format!("{param}.type"), problem))
            }
        }
    }

    fn push_message(&mut self, param: &str, item: &Fields) -> Result<(), ApiError> {
        let role = text(param, item, "role")?
            .ok_or_else(|| ApiError::invalid(format!("{param}.role"), "is missing"))?;
        let words = content(&format!("{param}.content"), item.get("content"))?;
        let turn = match role {
            "assistant" => {
                if self.content.is_some() || !self.calls.is_empty() {
                    self.end_answer()?;
                }
                self.content = Some(words);
                return Ok(());
            }
            "user" => Turn::User(words),
            "system" | "developer" => Turn::System(words),
            other => {
                let problem = format!(
                    "is `{}`, but must be user, assistant, system or developer",
                    quoted(other)
                );
                return Err(ApiError::invalid(format!("{param}.role"), problem));
            }
        };
        self.end_answer()?;
        self.conversation.push(turn);
        Ok(())
    }

    /// Of the forms that a reasoning has, the most complete.
    fn push_reasoning(&mut self, param: &str, item: &Fields) -> Result<(), ApiError> {
        let own =
            text(param, item, "encrypted_content")?.and_then(|e| e.strip_prefix(OWN_REASONING));
        let content = parts(param, item, "content")?;
        let summary = parts(param, item, "summary")?;
        let words = own.map(str::to_owned).or(content).or(summary);
        let Some(words) = words else { return Ok(()) };
        if self.content.is_some() || !self.calls.is_empty() {
            self.end_answer()?;
        }
        match &mut self.reasoning {
            Some(reasoning) => {
                reasoning.push('\n');
                reasoning.push_str(&words);
            }
            None => self.reasoning = Some(words),
        }
        Ok(())
    }

    fn push_call(
        &mut self,
        param: &str,
        name: String,
        (field, arguments): (&str, Option<Value>),
        call_id: Option<String>,
    ) -> Result<(), ApiError> {
        let (name_param, field_param) = (format!("{param}.name"), format!("{param}.{field}"));
        let call = earlier_call((&name_param, name), (&field_param, arguments), call_id)?;
        self.calls.push(call);
        Ok(())
    }

    fn push_result(&mut self, call_id: Option<String>, text: String) -> Result<(), ApiError> {
        self.end_answer()?;
        self.conversation.push(Turn::Result { call_id, text });
        Ok(())
    }
}

/// The name by which the model knows what an item calls.
fn name(param: &str, item: &Fields) -> Result<String, ApiError> {
    let name = text(param, item, "name")?
        .ok_or_else(|| ApiError::invalid(format!("{param}.name"), "is missing"))?;
    Ok(flat_name(text(param, item, "namespace")?, name))
}

fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The parts of a reasoning, each a paragraph; `None` if there are none.
fn parts(param: &str, item: &Fields, name: &str) -> Result<Option<String>, ApiError> {
    let param = format!("{param}.{name}");
    let list = match item.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong_type(&param, other, "an array")),
    };
    let texts = list
        .iter()
        .enumerate()
        .map(|(i, part)| part_text(&format!("{param}[{i}]"), part))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Some(texts.join("\n\n")).filter(|text| !text.is_empty()))
}

/// The words of a message or of a result; parts join without a separator.
fn content(param: &str, value: Option<&Value>) -> Result<String, ApiError> {
    match value {
        None => Err(ApiError::invalid(param, "is missing")),
        Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(list)) if list.len() > PARTS_MAX => {
            let problem = format!("has {} parts, but {PARTS_MAX} are allowed", list.len());
            Err(ApiError::invalid(param, problem))
        }
        Some(Value::Array(list)) => list
            .iter()
            .enumerate()
            .map(|(i, part)| part_text(&format!("{param}[{i}]"), part))
            .collect(),
        Some(other) => Err(wrong_type(param, other, "a string or an array of parts")),
    }
}

fn part_text<'a>(param: &str, part: &'a Value) -> Result<&'a str, ApiError> {
    let Value::Object(part) = part else { return Err(wrong_type(param, part, "an object")) };
    let kind = text(param, part, "type")?
        .ok_or_else(|| ApiError::invalid(format!("{param}.type"), "is missing"))?;
    let field = match kind {
        "input_text" | "output_text" | "text" | "reasoning_text" | "summary_text" => "text",
        "refusal" => "refusal",
        "input_image" | "input_file" | "input_audio" | "computer_screenshot" => {
            let problem = format!("is of type `{kind}`, but this server reads text only");
            return Err(ApiError::unsupported(param, problem));
        }
        other => {
            let problem =
                format!("is `{}`, but must be `input_text` or `output_text`", quoted(other));
            return Err(ApiError::invalid(format!("{param}.type"), problem));
        }
    };
    text(param, part, field)?
        .ok_or_else(|| ApiError::invalid(format!("{param}.{field}"), "is missing"))
}
