//! `tool_choice` of chat completions and of responses, which name a tool differently.

use crate::error::{ApiError, quoted};
use crate::json::wrong_type;
use crate::tools::Choice;
use serde_json::Value;

const PARAM: &str = "tool_choice";

/// What a `tool_choice` says.
///
/// # Errors
/// 400 for what is no choice.
pub(crate) fn choice(value: Option<&Value>) -> Result<Choice, ApiError> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(Choice::Auto),
        Some(Value::String(word)) => return by_word(PARAM, word),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(wrong_type(PARAM, other, "a string or an object")),
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("function") => Ok(Choice::Named(vec![name(PARAM, value.expect("an object"))?])),
        Some("allowed_tools") => {
            // Chat completions nest it once more.
            let (param, list) = match fields.get("allowed_tools") {
                Some(inner) => (format!("{PARAM}.allowed_tools"), inner),
                None => (PARAM.to_owned(), value.expect("an object")),
            };
            allowed(&param, list)
        }
        Some("auto" | "none" | "required") => {
            by_word(PARAM, fields["type"].as_str().expect("a string"))
        }
        Some(other) => {
            let problem = format!("is `{}`; this server can force only `function`", quoted(other));
            Err(ApiError::unsupported(format!("{PARAM}.type"), problem))
        }
        None => Err(ApiError::invalid(format!("{PARAM}.type"), "is missing")),
    }
}

fn by_word(param: &str, word: &str) -> Result<Choice, ApiError> {
    match word {
        "auto" => Ok(Choice::Auto),
        "none" => Ok(Choice::None),
        "required" => Ok(Choice::Required),
        other => {
            let problem =
                format!("is `{}`, but must be `auto`, `none` or `required`", quoted(other));
            Err(ApiError::invalid(param, problem))
        }
    }
}

fn allowed(param: &str, list: &Value) -> Result<Choice, ApiError> {
    let tools = match &list["tools"] {
        Value::Array(tools) if !tools.is_empty() => tools,
        Value::Array(_) => return Err(ApiError::invalid(format!("{param}.tools"), "is empty")),
        other => return Err(wrong_type(&format!("{param}.tools"), other, "an array")),
    };
    let names = tools
        .iter()
        .enumerate()
        .map(|(i, tool)| name(&format!("{param}.tools[{i}]"), tool))
        .collect::<Result<Vec<_>, _>>()?;
    match list["mode"].as_str() {
        None | Some("auto") => Ok(Choice::AutoOf(names)),
        Some("required") => Ok(Choice::Named(names)),
        Some(other) => {
            let problem = format!("is `{}`, but must be `auto` or `required`", quoted(other));
            Err(ApiError::invalid(format!("{param}.mode"), problem))
        }
    }
}

/// The name in `{"type": "function", "function": {"name": …}}` or `{"type": "function", "name": …}`.
fn name(param: &str, tool: &Value) -> Result<String, ApiError> {
    let (param, name) = match tool.get("function") {
        Some(function) => (format!("{param}.function.name"), &function["name"]),
        None => (format!("{param}.name"), &tool["name"]),
    };
    match name {
        Value::String(name) => Ok(name.clone()),
        Value::Null => Err(ApiError::invalid(param, "is missing")),
        other => Err(wrong_type(&param, other, "a string")),
    }
}
