//! A request in progress as server-sent events.
//!
//! A client that reads slowly stalls nobody: the engine writes into a channel that holds at most
//! the tokens of the answer, and this stream is only polled as fast as the socket takes it.

use crate::run::{Progress, Run};
use axum::http::HeaderValue;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;

/// What a dialect's stream says.
pub(crate) trait Writer: Send + 'static {
    /// The events of a piece of progress, in order; none if it adds nothing yet.
    fn write(&mut self, progress: Progress, events: &mut VecDeque<Event>);

    /// The event that shows, during a long prefill, that the connection lives. It carries data,
    /// since some clients ignore comments.
    fn keep_alive(&mut self) -> Event;
}

struct Stream<W> {
    run: Run,
    writer: W,
    events: VecDeque<Event>,
}

/// Answers with the stream of a request; `opening` goes out at once.
pub(crate) fn respond(run: Run, writer: impl Writer, opening: Vec<Event>) -> Response {
    let stream = Stream { run, writer, events: opening.into() };
    let events = unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    let mut response = Sse::new(events).into_response();
    // Proxies of nginx's kind collect a response before they pass it on, unless told not to.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<W: Writer> Stream<W> {
    async fn next(&mut self) -> Option<Event> {
        let interval = self.run.app().config.keep_alive;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match tokio::time::timeout(interval, self.run.next()).await {
                Ok(progress) => self.writer.write(progress?, &mut self.events),
                Err(_) => return Some(self.writer.keep_alive()),
            }
        }
    }
}

/// An event of data only.
pub(crate) fn data(value: &impl Serialize) -> Event {
    Event::default().data(serde_json::to_string(value).expect("strings and finite numbers"))
}

/// An event with a name.
pub(crate) fn named(name: &str, value: &impl Serialize) -> Event {
    data(value).event(name)
}
