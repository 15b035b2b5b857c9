//! Tools and `tool_choice` in Anthropic's words.

use super::wire::ToolChoiceField;
use crate::error::{ApiError, quoted};
use crate::json::{check_depth, wrong_type};
use crate::limits::TOOLS_MAX;
use crate::tools::{Choice, check_name};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Checks the definitions and brings them into the form of the template.
///
/// # Errors
/// 400 with the path of what is wrong or runs on Anthropic's machines only.
pub(super) fn offered(list: Vec<Map<String, Value>>) -> Result<Vec<Value>, ApiError> {
    if list.len() > TOOLS_MAX {
        let problem = format!("has {} entries, but {TOOLS_MAX} are allowed", list.len());
        return Err(ApiError::invalid("tools", problem));
    }
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(list.len());
    for (i, tool) in list.into_iter().enumerate() {
        let param = format!("tools[{i}]");
        if !is_function(&param, &tool)? {
            continue;
        }
        let (name, function) = function(&param, tool)?;
        if names.contains(&name) {
            let problem = format!("is `{name}`, as that of another tool");
            return Err(ApiError::invalid(format!("{param}.name"), problem));
        }
        names.insert(name);
        tools.push(json!({"type": "function", "function": function}));
    }
    Ok(tools)
}

/// Whether a tool is one of the client's own. The search for tools is dropped: every tool is in
/// the prompt here, and so there is nothing to search.
fn is_function(param: &str, tool: &Map<String, Value>) -> Result<bool, ApiError> {
    let param = format!("{param}.type");
    match tool.get("type") {
        None | Some(Value::Null) => Ok(true),
        Some(Value::String(kind)) if kind == "custom" => Ok(true),
        Some(Value::String(kind)) if kind.starts_with("tool_search_tool_") => Ok(false),
        Some(Value::String(kind)) => {
            let problem = format!(
                "is `{}`, which this server does not have; it offers only tools with an \
                 `input_schema`, of type `custom`",
                quoted(kind)
            );
            Err(ApiError::unsupported(param, problem))
        }
        Some(other) => Err(wrong_type(&param, other, "a string")),
    }
}

/// Name and definition of a function.
fn function(
    param: &str,
    mut tool: Map<String, Value>,
) -> Result<(String, Map<String, Value>), ApiError> {
    let missing = |field: &str| ApiError::invalid(format!("{param}.{field}"), "is missing");
    let name = match tool.shift_remove("name") {
        Some(Value::String(name)) => name,
        None | Some(Value::Null) => return Err(missing("name")),
        Some(other) => return Err(wrong_type(&format!("{param}.name"), &other, "a string")),
    };
    check_name(&format!("{param}.name"), &name)?;
    let mut function = Map::new();
    function.insert("name".to_owned(), name.clone().into());
    match tool.shift_remove("description") {
        None | Some(Value::Null) => {}
        Some(text @ Value::String(_)) => {
            function.insert("description".to_owned(), text);
        }
        Some(other) => {
            return Err(wrong_type(&format!("{param}.description"), &other, "a string"));
        }
    }
    match tool.shift_remove("input_schema") {
        Some(schema @ Value::Object(_)) => {
            check_depth(&format!("{param}.input_schema"), &schema)?;
            function.insert("parameters".to_owned(), schema);
        }
        None | Some(Value::Null) => return Err(missing("input_schema")),
        Some(other) => {
            return Err(wrong_type(&format!("{param}.input_schema"), &other, "an object"));
        }
    }
    Ok((name, function))
}

/// What a `tool_choice` says.
///
/// # Errors
/// 400 for what is no choice.
pub(super) fn choice(field: Option<&ToolChoiceField>) -> Result<Choice, ApiError> {
    let Some(field) = field else { return Ok(Choice::Auto) };
    match field.kind.as_str() {
        "auto" => Ok(Choice::Auto),
        "any" => Ok(Choice::Required),
        "none" => Ok(Choice::None),
        "tool" => match &field.name {
            Some(name) => Ok(Choice::Named(vec![name.clone()])),
            None => Err(ApiError::invalid("tool_choice.name", "is missing")),
        },
        other => {
            let problem = format!("is `{}`, but must be auto, any, tool or none", quoted(other));
            Err(ApiError::invalid("tool_choice.type", problem))
        }
    }
}
