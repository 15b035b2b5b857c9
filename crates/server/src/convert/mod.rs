//! The meaning of the wire: from a request to what the engine does, from the engine's events to
//! what the client reads. Pure: no clock, no engine, no connection.

mod answer;
mod messages;
mod request;
#[cfg(test)]
mod tests;
mod tools;

pub(crate) use answer::{Answer, Vocabulary, timings, total};
pub(crate) use request::{Chat, chat};

use crate::error::ApiError;
use crate::limits::JSON_DEPTH_MAX;
use serde_json::Value;

/// Refuses values nested deeper than templates and parsers below should have to follow.
fn check_depth(param: &str, value: &Value) -> Result<(), ApiError> {
    if depth(value) > JSON_DEPTH_MAX {
        return Err(ApiError::invalid(
            param,
            format!("is nested deeper than {JSON_DEPTH_MAX} levels"),
        ));
    }
    Ok(())
}

/// Recursion is safe: the parser stops at 128 levels.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// What a JSON value is, for a message.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
