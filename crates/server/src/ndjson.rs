//! A request in progress as newline-delimited JSON: as [`crate::sse`], in Ollama's form.

use crate::run::{Progress, Run};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;

/// What a dialect's stream says.
pub(crate) trait Writer: Send + 'static {
    /// The lines of a piece of progress, in order; none if it adds nothing yet.
    fn write(&mut self, progress: Progress, lines: &mut VecDeque<String>);

    /// The line that shows, during a long prefill, that the connection lives.
    fn keep_alive(&mut self) -> String;
}

struct Stream<W> {
    run: Run,
    writer: W,
    lines: VecDeque<String>,
}

/// Answers with the stream of a request.
pub(crate) fn respond(run: Run, writer: impl Writer) -> Response {
    let stream = Stream { run, writer, lines: VecDeque::new() };
    let lines = unfold(stream, |mut stream| async move {
        let line = stream.next().await?;
        Some((Ok::<_, Infallible>(line), stream))
    });
    let ndjson = HeaderValue::from_static("application/x-ndjson");
    let no_cache = HeaderValue::from_static("no-cache");
    let mut response = Body::from_stream(lines).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, ndjson);
    headers.insert(header::CACHE_CONTROL, no_cache);
    // As for server-sent events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<W: Writer> Stream<W> {
    async fn next(&mut self) -> Option<String> {
        let interval = self.run.app().config.keep_alive;
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            match tokio::time::timeout(interval, self.run.next()).await {
                Ok(progress) => self.writer.write(progress?, &mut self.lines),
                Err(_) => return Some(self.writer.keep_alive()),
            }
        }
    }
}

/// A value as a line.
pub(crate) fn line(value: &impl Serialize) -> String {
    let mut line = serde_json::to_string(value).expect("strings and finite numbers");
    line.push('\n');
    line
}
