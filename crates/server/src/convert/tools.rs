//! Tool definitions and `tool_choice`.

use super::{check_depth, kind_of};
use crate::error::{ApiError, quoted};
use crate::limits::{TOOL_NAME_BYTES_MAX, TOOLS_MAX};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Checks the definitions; the template gets them as they came, key order included.
pub(super) fn offered(tools: Vec<Map<String, Value>>) -> Result<Vec<Value>, ApiError> {
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
pub(super) fn check_name(param: &str, name: &str) -> Result<(), ApiError> {
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

/// Whether the model may call tools at all.
pub(super) fn allowed(choice: Option<&Value>) -> Result<bool, ApiError> {
    match choice {
        None | Some(Value::Null) => Ok(true),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => Ok(true),
            "none" => Ok(false),
            "required" => Err(ApiError::unsupported(
                "tool_choice",
                "is `required`, but this server cannot force a call yet; send `auto`",
            )),
            other => {
                let problem = format!("is `{}`, but must be `auto` or `none`", quoted(other));
                Err(ApiError::invalid("tool_choice", problem))
            }
        },
        Some(Value::Object(_)) => Err(ApiError::unsupported(
            "tool_choice",
            "names tools, but this server cannot force a call yet; send `auto`",
        )),
        Some(other) => Err(wrong_type("tool_choice", other, "a string or an object")),
    }
}

fn wrong_type(param: &str, found: &Value, expected: &str) -> ApiError {
    let problem = format!("has a wrong type: {}, expected {expected}", kind_of(found));
    ApiError::invalid(param, problem)
}
