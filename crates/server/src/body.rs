//! Reads a request body within its bounds and turns it into a wire type, or says exactly where it
//! is wrong.

use crate::error::{ApiError, quoted};
use crate::json::Object;
use crate::limits::BODY_READ_TIME_MAX;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::error::Category;

/// Reads the whole body.
///
/// # Errors
/// 415 for another media type than JSON, 413 past `bytes_max`, 408 past the time limit, 400 when
/// the connection breaks.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Vec<u8>, ApiError> {
    check_media_type(headers)?;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<u64>().ok());
    if announced.is_some_and(|n| usize::try_from(n).map_or(true, |n| n > bytes_max)) {
        return Err(ApiError::body_too_large(bytes_max));
    }
    tokio::time::timeout(BODY_READ_TIME_MAX, collect(body, bytes_max))
        .await
        .unwrap_or_else(|_| Err(ApiError::body_too_slow(BODY_READ_TIME_MAX.as_secs())))
}

async fn collect(body: Body, bytes_max: usize) -> Result<Vec<u8>, ApiError> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        let piece =
            piece.map_err(|e| ApiError::bad_request(format!("the body could not be read: {e}")))?;
        if bytes.len() + piece.len() > bytes_max {
            return Err(ApiError::body_too_large(bytes_max));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Asks for JSON by name, which also keeps web pages of other origins out: a browser sends this
/// type across origins only after asking, and the answer here is no.
fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).map(|v| v.to_str().unwrap_or("?"));
    let essence = content_type.map(|t| t.split(';').next().unwrap_or_default().trim());
    if essence.is_some_and(|e| e.eq_ignore_ascii_case("application/json")) {
        Ok(())
    } else {
        Err(ApiError::not_json(content_type))
    }
}

/// Parses a body into a wire type.
///
/// # Errors
/// 400 with line and column for what is no JSON, and with the path of the field for what is no
/// request.
pub(crate) fn parse<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed: Result<Object<T>, _> = serde_path_to_error::deserialize(&mut deserializer);
    let value = parsed.map_err(|e| {
        let path = e.path().to_string();
        explain(e.inner(), &path)
    })?;
    deserializer.end().map_err(|e| explain(&e, "."))?;
    Ok(value.0)
}

fn explain(error: &serde_json::Error, path: &str) -> ApiError {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let problem = text.strip_suffix(&position).unwrap_or(&text);
    if error.classify() != Category::Data {
        let mut error = ApiError::bad_request(format!("the body is not valid JSON: {text}"));
        error.code = Some("invalid_json");
        return error;
    }
    let (parent, problem) = (if path == "." { "" } else { path }, friendly(problem));
    for named in ["missing field", "duplicate field"] {
        let Some(field) = problem
            .strip_prefix(named)
            .and_then(|rest| rest.trim().strip_prefix('`').and_then(|rest| rest.split('`').next()))
        else {
            continue;
        };
        let param = if parent.is_empty() { field.to_owned() } else { format!("{parent}.{field}") };
        let problem = if named == "missing field" { "is missing" } else { "is given twice" };
        return ApiError::invalid(param, problem);
    }
    if parent.is_empty() {
        ApiError::bad_request(format!("the body is not a request: {problem}"))
    } else {
        ApiError::invalid(parent, format!("has a wrong type: {problem}"))
    }
}

/// Serde's sentence with the words of JSON instead of Rust's, and at a length that is safe to
/// repeat.
fn friendly(problem: &str) -> String {
    let problem = problem.strip_prefix("invalid type: ").unwrap_or(problem);
    let (found, expected) = problem.rsplit_once(", expected ").unwrap_or((problem, ""));
    let expected = match expected {
        "u64" => "an integer from 0",
        "i64" => "an integer",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        other => other,
    };
    if expected.is_empty() {
        quoted(found)
    } else {
        format!("{}, expected {}", quoted(found), quoted(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::wire::ChatCompletionRequest;

    #[track_caller]
    fn check(body: &str, param: Option<&str>, mentions: &str) {
        let error = parse::<ChatCompletionRequest>(body.as_bytes()).expect_err("must be refused");
        assert_eq!(error.param.as_deref(), param, "{}", error.message);
        assert!(error.message.contains(mentions), "{:?} in {}", mentions, error.message);
    }

    #[test]
    fn errors_name_the_place() {
        check(r#"{"messages": [}"#, None, "line 1 column 15");
        check("{\n\"messages\"", None, "line 2 column 10");
        check(r#"{"messages": []} x"#, None, "trailing characters");
        check("[]", None, "expected an object");
        check("{}", Some("messages"), "`messages` is missing");
        check(r#"{"messages": null}"#, Some("messages"), "null, expected an array");
        check(r#"{"messages": [["user", "hi"]]}"#, Some("messages[0]"), "expected an object");
        check(r#"{"messages": [{"content": "hi"}]}"#, Some("messages[0].role"), "is missing");
        check(
            r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}"#,
            Some("messages[0].content[0].text"),
            "integer `1`, expected a string",
        );
        check(r#"{"messages": [], "temperature": "hot"}"#, Some("temperature"), "a number");
        check(r#"{"messages": [], "messages": []}"#, Some("messages"), "twice");
        check(r#"{"messages": [], "n": -1}"#, Some("n"), "from 0");
    }

    #[test]
    fn errors_stay_short() {
        let body = format!(r#"{{"messages": [], "n": "{}"}}"#, "ö".repeat(100_000));
        let error = parse::<ChatCompletionRequest>(body.as_bytes()).expect_err("must be refused");
        assert!(error.message.len() < 400, "{}", error.message.len());
    }
}
