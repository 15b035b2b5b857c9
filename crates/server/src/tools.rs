//! Tool definitions, and which of them may or must be called.

use crate::error::{ApiError, quoted};
use crate::json::{check_depth, wrong_type};
use crate::limits::{TOOL_NAME_BYTES_MAX, TOOLS_MAX};
use lily_engine::ToolChoice;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Which tools may or must be called, in no dialect's words.
#[derive(Debug, PartialEq)]
pub(crate) enum Choice {
    /// No call: the model does not see the tools.
    None,
    /// As the model likes.
    Auto,
    /// At least one call.
    Required,
    /// As the model likes, of these only: it does not see the others.
    AutoOf(Vec<String>),
    /// At least one call, of these only.
    Named(Vec<String>),
}

/// The tools that the model sees, and what it must do with them. `param` is the path of the choice.
///
/// # Errors
/// 400 for a choice that the tools do not allow.
pub(crate) fn choose(
    param: &str,
    mut tools: Vec<Value>,
    choice: Choice,
) -> Result<(Vec<Value>, ToolChoice), ApiError> {
    if let Choice::AutoOf(names) | Choice::Named(names) = &choice {
        for name in names {
            if !tools.iter().any(|tool| name_of(tool) == Some(name)) {
                let problem = format!("names `{}`, which is not among `tools`", quoted(name));
                return Err(ApiError::invalid(param, problem));
            }
        }
    }
    let choice = match choice {
        Choice::None => {
            tools.clear();
            ToolChoice::Auto
        }
        Choice::Auto => ToolChoice::Auto,
        Choice::AutoOf(names) => {
            tools.retain(|tool| name_of(tool).is_some_and(|n| names.iter().any(|name| name == n)));
            ToolChoice::Auto
        }
        Choice::Required if tools.is_empty() => {
            return Err(ApiError::invalid(param, "requires a call, but `tools` is empty"));
        }
        Choice::Required => ToolChoice::Required,
        Choice::Named(names) => ToolChoice::Named(names),
    };
    Ok((tools, choice))
}

fn name_of(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}

/// Checks the definitions; the template gets them as they came, key order included.
pub(crate) fn offered(tools: Vec<Map<String, Value>>) -> Result<Vec<Value>, ApiError> {
    if tools.len() > TOOLS_MAX {
        let problem = format!("has {} entries, but {TOOLS_MAX} are allowed", tools.len());
        return Err(ApiError::invalid("tools", problem));
    }
    let mut names = HashSet::new();
    for (i, tool) in tools.iter().enumerate() {
        let param = format!("tools[{i}]");
        let name = check(&param, tool)?;
        if !names.insert(name) {
            let problem = format!("is `{name}`, as that of another tool");
            return Err(ApiError::invalid(format!("{param}.function.name"), problem));
        }
    }
    drop(names);
    Ok(tools.into_iter().map(Value::Object).collect())
}

/// Checks one definition and returns its name.
fn check<'a>(param: &str, tool: &'a Map<String, Value>) -> Result<&'a str, ApiError> {
    match tool.get("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        Some(Value::String(kind)) => {
            let problem = format!("is `{}`; this server offers only `function`", quoted(kind));
            return Err(ApiError::unsupported(format!("{param}.type"), problem));
        }
        Some(other) => return Err(wrong_type(&format!("{param}.type"), other, "a string")),
        None => return Err(ApiError::invalid(format!("{param}.type"), "is missing")),
    }
    let param = format!("{param}.function");
    let function = match tool.get("function") {
        Some(Value::Object(function)) => function,
        Some(other) => return Err(wrong_type(&param, other, "an object")),
        None => return Err(ApiError::invalid(param, "is missing")),
    };
    match function.get("description") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(other) => return Err(wrong_type(&format!("{param}.description"), other, "a string")),
    }
    match function.get("parameters") {
        None | Some(Value::Null) => {}
        Some(schema @ Value::Object(_)) => check_depth(&format!("{param}.parameters"), schema)?,
        Some(other) => return Err(wrong_type(&format!("{param}.parameters"), other, "an object")),
    }
    let param = format!("{param}.name");
    match function.get("name") {
        Some(Value::String(name)) => check_name(&param, name).map(|()| name.as_str()),
        Some(other) => Err(wrong_type(&param, other, "a string")),
        None => Err(ApiError::invalid(param, "is missing")),
    }
}

/// The model writes the name inside `<function=…>`.
pub(crate) fn check_name(param: &str, name: &str) -> Result<(), ApiError> {
    if name.is_empty() || name.len() > TOOL_NAME_BYTES_MAX {
        let problem = format!("must have from 1 to {TOOL_NAME_BYTES_MAX} bytes");
        return Err(ApiError::invalid(param, problem));
    }
    if name.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>')) {
        let problem = format!(
            "is `{}`; whitespace, control characters, < and > are not allowed",
            quoted(name)
        );
        return Err(ApiError::invalid(param, problem));
    }
    Ok(())
}
