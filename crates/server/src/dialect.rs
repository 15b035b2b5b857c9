//! Whose words a client speaks, as far as failures go: each API has its own shape for them.

use crate::error::ApiError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The API that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Dialect {
    pub(crate) fn of(path: &str) -> Self {
        if path == "/v1/messages" || path.starts_with("/v1/messages/") {
            Self::Anthropic
        } else if path.starts_with("/api/") {
            Self::Ollama
        } else {
            Self::OpenAi
        }
    }

    /// A response with a failure in the words of the dialect.
    pub(crate) fn respond(self, mut response: Response) -> Response {
        if self == Self::OpenAi {
            return response;
        }
        let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
        let (mut head, _) = response.into_parts();
        head.headers.remove(header::CONTENT_LENGTH);
        let json = HeaderValue::from_static("application/json");
        head.headers.insert(header::CONTENT_TYPE, json);
        let body = self.body(&error).to_string();
        (head, body).into_response()
    }

    /// The body of a failure.
    pub(crate) fn body(self, error: &ApiError) -> Value {
        match self {
            Self::OpenAi => serde_json::from_str(&error.body()).expect("it was just written"),
            Self::Anthropic => json!({
                "type": "error",
                "error": {"type": anthropic_kind(error.status), "message": error.message},
            }),
            Self::Ollama => json!({"error": error.message}),
        }
    }
}

/// Anthropic's names for what went wrong.
fn anthropic_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}
