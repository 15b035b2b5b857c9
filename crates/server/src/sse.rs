//! A request in progress as server-sent events.
//!
//! A client that reads slowly stalls nobody: the engine writes into a channel that holds at most
//! the tokens of the answer, and this stream is only polled as fast as the socket takes it.

use crate::App;
use crate::error::ApiError;
use crate::limits::KEEP_ALIVE_INTERVAL;
use crate::openai::{ChatCompletionChunk, ChunkChoice, ChunkUsage, Timings};
use crate::run::{Progress, Run};
use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::sync::Arc;

/// What all chunks of a stream share.
struct Head {
    app: Arc<App>,
    id: String,
    created: u64,
    include_usage: bool,
}

/// Where a stream stands.
enum Stage {
    Running(Box<Run>),
    /// The usage chunk is out, `[DONE]` is not.
    Closing,
    Ended,
}

/// Answers with the stream of a request.
pub(crate) fn respond(app: Arc<App>, created: u64, include_usage: bool, run: Run) -> Response {
    let head = Head { id: app.ids.next("chatcmpl-"), app, created, include_usage };
    let events = unfold((head, Stage::Running(Box::new(run))), |(head, stage)| async move {
        let (event, stage) = advance(&head, stage).await?;
        Some((Ok::<_, Infallible>(event), (head, stage)))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Proxies of nginx's kind collect a response before they pass it on, unless told not to.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

async fn advance(head: &Head, stage: Stage) -> Option<(Event, Stage)> {
    let mut run = match stage {
        Stage::Running(run) => run,
        Stage::Closing => return Some((done(), Stage::Ended)),
        Stage::Ended => return None,
    };
    Some(match run.next().await? {
        Progress::Chunk(choice) => {
            (head.chunk(vec![choice], ChunkUsage::Pending, None), Stage::Running(run))
        }
        Progress::Last(choice, timings) => {
            (head.chunk(vec![choice], ChunkUsage::Pending, Some(timings)), Stage::Running(run))
        }
        Progress::Complete(usage, _) if head.include_usage => {
            (head.chunk(Vec::new(), ChunkUsage::Total(usage), None), Stage::Closing)
        }
        Progress::Complete(..) => (done(), Stage::Ended),
        Progress::Failed(error) => (failure(&error), Stage::Ended),
    })
}

impl Head {
    fn chunk(
        &self,
        choices: Vec<ChunkChoice>,
        usage: ChunkUsage,
        timings: Option<Timings>,
    ) -> Event {
        let chunk = ChatCompletionChunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.app.config.model_id,
            system_fingerprint: &self.app.config.system_fingerprint,
            choices,
            usage: self.include_usage.then_some(usage),
            timings,
        };
        Event::default().data(serde_json::to_string(&chunk).expect("strings and finite numbers"))
    }
}

fn done() -> Event {
    Event::default().data("[DONE]")
}

/// An error after the head of the response is out. No `[DONE]` follows, so that an answer that
/// broke off is not taken for a complete one.
fn failure(error: &ApiError) -> Event {
    Event::default().data(error.body())
}
