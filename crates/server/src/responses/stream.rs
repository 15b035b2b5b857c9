//! A response in events.

use super::answer::{Answer, Listener};
use super::request::Form;
use super::wire::StreamEvent;
use crate::App;
use crate::run::Progress;
use crate::sse::{self, Writer};
use axum::response::sse::Event;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;

/// The events of a response, numbered.
pub(super) struct Events {
    answer: Answer,
    n_events: u64,
}

struct Queue<'a> {
    n_events: &'a mut u64,
    events: &'a mut VecDeque<Event>,
}

impl Listener for Queue<'_> {
    fn hear(&mut self, kind: &'static str, body: &impl Serialize) {
        let sequence_number = *self.n_events;
        *self.n_events += 1;
        let event = StreamEvent { kind, sequence_number, body };
        self.events.push_back(sse::named(kind, &event));
    }
}

impl Events {
    /// The stream, and the events that open it.
    pub(super) fn new(app: Arc<App>, form: Form) -> (Self, Vec<Event>) {
        let answer = Answer::new(app, form);
        let (mut n_events, mut events) = (0, VecDeque::new());
        let mut queue = Queue { n_events: &mut n_events, events: &mut events };
        answer.tell("response.created", &mut queue);
        answer.tell("response.in_progress", &mut queue);
        (Self { answer, n_events }, events.into())
    }
}

impl Writer for Events {
    fn write(&mut self, progress: Progress, events: &mut VecDeque<Event>) {
        let mut queue = Queue { n_events: &mut self.n_events, events };
        match progress {
            Progress::PromptLogprobs { .. } | Progress::Opened { .. } | Progress::Complete(_) => {}
            Progress::Step { choice: _, deltas, logprobs } => {
                self.answer.step(deltas, &logprobs, &mut queue);
            }
            Progress::Ended { choice: _, summary } => self.answer.finish(&summary, &mut queue),
            Progress::Failed(error) => self.answer.fail(error, &mut queue),
        }
    }

    /// Codex does not count comments as signs of life.
    fn keep_alive(&mut self) -> Event {
        let mut events = VecDeque::new();
        let mut queue = Queue { n_events: &mut self.n_events, events: &mut events };
        self.answer.tell("response.in_progress", &mut queue);
        events.pop_front().expect("it was just told")
    }
}
