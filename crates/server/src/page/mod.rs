//! The chat page at `/`: one document, joined from the files of this directory at compile time.
//!
//! The page is a client of the public API like any other and knows nothing that `docs/api.md` does
//! not say. No byte of it depends on a request or on the model, so its policy can name its one
//! script and its one style by their hashes: nothing else ever runs, whatever a model writes.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// A few drawings and the elements that exist from the start; everything else is made by the script.
const HTML: &str = include_str!("page.html");

const STYLE: &str = concat!(
    include_str!("css/base.css"),
    include_str!("css/layout.css"),
    include_str!("css/turns.css"),
    include_str!("css/markdown.css"),
    include_str!("css/settings.css"),
);

/// One scope: later files use what earlier ones define, and functions may refer to any file.
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("js/dom.js"),
    include_str!("js/highlight.js"),
    include_str!("js/inline.js"),
    include_str!("js/blocks.js"),
    include_str!("js/markdown.js"),
    include_str!("js/schema.js"),
    include_str!("js/store.js"),
    include_str!("js/options.js"),
    include_str!("js/api.js"),
    include_str!("js/turns.js"),
    include_str!("js/transcript.js"),
    include_str!("js/sidebar.js"),
    include_str!("js/settings.js"),
    include_str!("js/composer.js"),
    include_str!("js/run.js"),
    include_str!("js/app.js"),
);

/// The document and its policy.
struct Page {
    html: String,
    policy: HeaderValue,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| Page {
    html: HTML.replacen("/*STYLE*/", STYLE, 1).replacen("/*SCRIPT*/", SCRIPT, 1),
    policy: HeaderValue::try_from(policy()).expect("base64 and ASCII words"),
});

/// `trusted-types 'none'` makes the browser refuse every string that is to become markup or code,
/// so that a careless line of the script fails instead of opening a hole. Pictures are limited to
/// `data:` for the icon of the tab; the page shows none.
fn policy() -> String {
    let hash = |text: &str| BASE64.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; connect-src 'self'; script-src 'sha256-{}'; style-src 'sha256-{}'; \
         img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE),
    )
}

/// Answers `GET /`.
pub(crate) fn respond() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, PAGE.policy.clone()),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ];
    (headers, PAGE.html.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text between two tags.
    fn inside<'a>(html: &'a str, open: &str, close: &str) -> &'a str {
        let (_, rest) = html.split_once(open).expect("the tag is there");
        rest.split_once(close).expect("the tag is closed").0
    }

    #[test]
    fn the_hashes_are_those_of_what_the_browser_sees() {
        let (style, script) = (
            inside(&PAGE.html, "<style>", "</style>"),
            inside(&PAGE.html, "<script type=\"module\">", "</script>"),
        );
        assert_eq!(style, STYLE);
        assert_eq!(script, SCRIPT);
    }

    #[test]
    fn the_page_has_no_way_to_run_or_fetch_anything_else() {
        let html = &PAGE.html;
        assert_eq!(html.matches("<script").count(), 1);
        assert_eq!(html.matches("<style").count(), 1);
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "srcdoc",
            "<iframe",
            "<img",
            "<link rel=\"stylesheet",
            " style=",
            " onclick=",
            " onload=",
            "http://",
            "src=",
        ] {
            assert!(!html.contains(forbidden), "the page contains `{forbidden}`");
        }
    }

    #[test]
    fn the_policy_is_strict() {
        let policy = policy();
        assert!(policy.starts_with("default-src 'none'; connect-src 'self'; script-src 'sha256-"));
        assert!(!policy.contains("unsafe"));
        assert!(!policy.contains('*'));
    }
}
