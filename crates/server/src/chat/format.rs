//! The form of an answer: `response_format` and its relatives.

use super::wire::{JsonSchemaFormat, ResponseFormat};
use crate::error::{ApiError, quoted};
use crate::json::{Object, check_depth, kind_of};
use crate::limits::GRAMMAR_BYTES_MAX;
use lily_engine::Constraint;
use serde_json::Value;

/// The one form that the fields ask for.
///
/// # Errors
/// 400 for a form that is unknown, incomplete or one of two.
pub(crate) fn constraint(
    format: Option<ResponseFormat>,
    grammar: Option<String>,
    regex: Option<String>,
) -> Result<Option<Constraint>, ApiError> {
    let mut forms = vec![];
    if let Some(format) = format
        && let Some(form) = by_format(format)?
    {
        forms.push(("response_format", form));
    }
    if let Some(grammar) = grammar {
        forms.push(("grammar", Constraint::Lark(bounded("grammar", grammar)?)));
    }
    if let Some(regex) = regex {
        forms.push(("regex", Constraint::Regex(bounded("regex", regex)?)));
    }
    match forms.as_slice() {
        [] | [_] => Ok(forms.pop().map(|(_, form)| form)),
        [(first, _), (second, _), ..] => {
            let problem = format!("cannot be combined with `{first}`: an answer has one form");
            Err(ApiError::invalid(*second, problem))
        }
    }
}

fn by_format(format: ResponseFormat) -> Result<Option<Constraint>, ApiError> {
    let missing = |field: &str| ApiError::invalid(format!("response_format.{field}"), "is missing");
    Ok(Some(match format.kind.as_str() {
        "text" => return Ok(None),
        "json_object" => Constraint::JsonObject,
        "json_schema" => {
            let Object(JsonSchemaFormat { schema }) =
                format.json_schema.ok_or_else(|| missing("json_schema"))?;
            let schema = schema.ok_or_else(|| missing("json_schema.schema"))?;
            json_schema("response_format.json_schema.schema", schema)?
        }
        "grammar" => {
            let grammar = format.grammar.ok_or_else(|| missing("grammar"))?;
            Constraint::Lark(bounded("response_format.grammar", grammar)?)
        }
        "regex" => {
            let regex = format.regex.ok_or_else(|| missing("regex"))?;
            Constraint::Regex(bounded("response_format.regex", regex)?)
        }
        other => {
            let problem = format!(
                "is `{}`, but must be text, json_object, json_schema, grammar or regex",
                quoted(other)
            );
            return Err(ApiError::invalid("response_format.type", problem));
        }
    }))
}

/// A schema, if it is one at all; the engine says what it cannot enforce.
///
/// # Errors
/// 400 for `param`.
pub(crate) fn json_schema(param: &str, schema: Value) -> Result<Constraint, ApiError> {
    if !matches!(schema, Value::Object(_) | Value::Bool(true)) {
        let problem = format!("is {}, but must be an object", kind_of(&schema));
        return Err(ApiError::invalid(param, problem));
    }
    check_depth(param, &schema)?;
    Ok(Constraint::JsonSchema(schema))
}

fn bounded(param: &str, text: String) -> Result<String, ApiError> {
    if text.is_empty() {
        return Err(ApiError::invalid(param, "is empty"));
    }
    if text.len() > GRAMMAR_BYTES_MAX {
        let problem = format!("is longer than {GRAMMAR_BYTES_MAX} bytes");
        return Err(ApiError::invalid(param, problem));
    }
    Ok(text)
}
