//! Failures in `OpenAI`'s shape: a status, a type, a message, and the field at fault.

use crate::limits::QUOTED_BYTES_MAX;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lily_engine::{EngineError, SubmitError};
use schemars::JsonSchema;
use serde::Serialize;

/// Body of every failure.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

/// What went wrong.
#[derive(Debug, JsonSchema, Serialize)]
struct ErrorFields<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

/// A failure as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// `error.type`.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// `error.param`: path of the field at fault, such as `messages[2].content`.
    pub(crate) param: Option<String>,
    /// `error.code`.
    pub(crate) code: Option<&'static str>,
    pub(crate) retry_after_s: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, kind, message, param: None, code: None, retry_after_s: None }
    }

    /// 400 about the whole request.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// 400 about a field; `problem` continues a sentence that starts with its name.
    pub(crate) fn invalid(param: impl Into<String>, problem: impl AsRef<str>) -> Self {
        let param = param.into();
        let mut error = Self::bad_request(format!("`{param}` {}", problem.as_ref()));
        error.param = Some(param);
        error.code = Some("invalid_value");
        error
    }

    /// 400 about a field that is understood but not served.
    pub(crate) fn unsupported(param: impl Into<String>, problem: impl AsRef<str>) -> Self {
        let mut error = Self::invalid(param, problem);
        error.code = Some("unsupported_value");
        error
    }

    /// 401; `sent` if there was a key, but none that is known.
    pub(crate) fn unauthorized(sent: bool) -> Self {
        let message = if sent {
            "the API key is not one of this server's"
        } else {
            "this server needs an API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`"
        };
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message)
            .with_code("invalid_api_key")
    }

    /// 403 for a request to a name that is not this server's.
    pub(crate) fn foreign_host(name: &str) -> Self {
        let message = format!(
            "this server is not known as `{name}`; allow the name with `lily serve --allow-host`"
        );
        Self::new(StatusCode::FORBIDDEN, "invalid_request_error", message).with_code("unknown_host")
    }

    /// 404 for a route or a model that is not there.
    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message).with_code(code)
    }

    /// 405.
    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
            .with_code("method_not_allowed")
    }

    /// 408.
    pub(crate) fn body_too_slow(limit_s: u64) -> Self {
        let message = format!("the body did not arrive within {limit_s} s");
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message)
            .with_code("request_timeout")
    }

    /// 413.
    pub(crate) fn body_too_large(limit_bytes: usize) -> Self {
        let message = format!("the body is larger than this server's limit of {limit_bytes} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
            .with_code("request_too_large")
    }

    /// 415.
    pub(crate) fn not_json(content_type: Option<&str>) -> Self {
        let sent =
            content_type.map_or_else(|| "nothing".to_owned(), |t| format!("`{}`", quoted(t)));
        let message =
            format!("the body must be JSON: send `content-type: application/json`, not {sent}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
            .with_code("unsupported_media_type")
    }

    /// 500.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
            .with_code("internal_error")
    }

    /// 503 while draining and after the engine has ended.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message)
            .with_code("service_unavailable")
    }

    fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The body, also used for an error in the middle of a stream.
    pub(crate) fn body(&self) -> String {
        let error = ErrorFields {
            message: &self.message,
            kind: self.kind,
            param: self.param.as_deref(),
            code: self.code,
        };
        serde_json::to_string(&ErrorBody { error }).expect("strings serialise")
    }
}

/// Why a request was not queued.
impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::Busy { retry_after_s, .. } => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                let mut error =
                    Self::new(status, "rate_limit_error", message).with_code("rate_limit_exceeded");
                error.retry_after_s = Some(retry_after_s.max(1));
                error
            }
            SubmitError::TooLong { .. } => {
                let mut error = Self::bad_request(message).with_code("context_length_exceeded");
                error.param = Some("messages".to_owned());
                error
            }
            SubmitError::Invalid { field, value, expected } => {
                Self::invalid(field, format!("is {}, but must be {expected}", quoted(&value)))
            }
            SubmitError::Text(_) => {
                let mut error = Self::bad_request(message).with_code("invalid_value");
                error.param = Some("messages".to_owned());
                error
            }
            SubmitError::Constraint { field, problem } => {
                Self::invalid(field, format!("cannot be enforced: {problem}"))
            }
            SubmitError::NoTemplate => Self::bad_request(message).with_code("no_chat_template"),
            SubmitError::Stopped => Self::unavailable(message),
            _ => Self::internal(message),
        }
    }
}

/// Why an answer broke off.
impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::DeadlineExceeded { .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "server_error", message)
                    .with_code("deadline_exceeded")
            }
            EngineError::Stopped | EngineError::Panicked => Self::unavailable(message),
            _ => Self::internal(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        let mut response =
            (self.status, [(header::CONTENT_TYPE, json)], self.body()).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // For dialects that say it differently.
        response.extensions_mut().insert(self);
        response
    }
}

/// The start of a value from the request, short enough for a message.
pub(crate) fn quoted(value: &str) -> String {
    if value.len() <= QUOTED_BYTES_MAX {
        return value.to_owned();
    }
    format!("{}…", &value[..value.floor_char_boundary(QUOTED_BYTES_MAX)])
}
