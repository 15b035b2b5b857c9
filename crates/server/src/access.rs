//! Who may use the server: keys, pages of other origins, names of the host.

use crate::App;
use crate::error::{ApiError, quoted};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tower_http::cors::{AllowHeaders, CorsLayer};

/// Anthropic's clients send the key here.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Paths that need no key: the chat page, which asks its user for one, and the sign of life.
const OPEN_PATHS: [&str; 2] = ["/", "/health"];

/// How long a browser may remember what it was allowed.
const PREFLIGHT_AGE_MAX: Duration = Duration::from_hours(1);

/// Lets requests with one of the keys pass, or all if there is none.
pub(crate) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if let Err(error) = host(&app.config.hosts, request.headers()) {
        return error.into_response();
    }
    let keys = &app.config.api_keys;
    if keys.is_empty() || OPEN_PATHS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match sent_key(request.headers()) {
        Some(key) if is_known(keys, key) => next.run(request).await,
        sent => {
            let mut response = ApiError::unauthorized(sent.is_some()).into_response();
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
            response
        }
    }
}

fn sent_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
    });
    let key = bearer.or_else(|| headers.get(X_API_KEY).map(HeaderValue::as_bytes))?;
    Some(key.trim_ascii())
}

/// Looks at every key and every byte, so that the time says nothing about them.
fn is_known(keys: &[String], sent: &[u8]) -> bool {
    let found = keys.iter().fold(0u8, |found, key| found | key.as_bytes().ct_eq(sent).unwrap_u8());
    found == 1
}

/// A page of the web can make a name of its own point to this machine; then the browser takes the
/// server for a part of the page. Its requests give themselves away by that name.
fn host(allowed: &[String], headers: &HeaderMap) -> Result<(), ApiError> {
    if allowed.is_empty() {
        return Ok(());
    }
    let Some(sent) = headers.get(header::HOST) else { return Ok(()) };
    let sent = sent.to_str().unwrap_or("?");
    let name = match sent.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => sent,
    };
    if allowed.iter().any(|host| host.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(ApiError::foreign_host(&quoted(name)))
}

/// Lets pages of these origins read answers; of any if one is `*`. Keys travel in a header, never in
/// a cookie.
pub(crate) fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static("x-request-id"), header::RETRY_AFTER])
        .max_age(PREFLIGHT_AGE_MAX);
    Some(if origins.iter().any(|origin| origin == "*") {
        layer.allow_origin(tower_http::cors::Any)
    } else {
        let values = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
        layer.allow_origin(values.collect::<Vec<_>>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn keys_come_in_either_header() {
        for (pairs, key) in [
            (vec![("authorization", "Bearer abc")], Some("abc")),
            (vec![("authorization", "bearer abc ")], Some("abc")),
            (vec![("x-api-key", "abc")], Some("abc")),
            (vec![("authorization", "Basic abc"), ("x-api-key", "k")], Some("k")),
            (vec![("authorization", "abc")], None),
            (vec![], None),
        ] {
            assert_eq!(sent_key(&headers(&pairs)), key.map(str::as_bytes), "{pairs:?}");
        }
        let keys = ["one".to_owned(), "two".to_owned()];
        assert!(is_known(&keys, b"two") && is_known(&keys, b"one"));
        assert!(!is_known(&keys, b"on") && !is_known(&keys, b"onetwo") && !is_known(&keys, b""));
    }

    #[test]
    fn foreign_names_of_the_host_are_refused() {
        let allowed = ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        for (sent, passes) in [
            ("localhost", true),
            ("LOCALHOST:8000", true),
            ("127.0.0.1:8000", true),
            ("[::1]:8000", true),
            ("[::1]", true),
            ("evil.example:8000", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            let result = host(&allowed, &headers(&[("host", sent)]));
            assert_eq!(result.is_ok(), passes, "{sent}");
            assert!(host(&[], &headers(&[("host", sent)])).is_ok());
        }
        assert!(host(&allowed, &HeaderMap::new()).is_ok());
    }
}
