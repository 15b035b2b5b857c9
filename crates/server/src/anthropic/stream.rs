//! An answer in pieces.

use super::answer::Answer;
use super::request::Form;
use super::wire::StreamEvent;
use crate::App;
use crate::dialect::Dialect;
use crate::run::Progress;
use crate::sse::{self, Writer};
use axum::response::sse::Event;
use std::collections::VecDeque;
use std::sync::Arc;

/// The events of an answer.
pub(super) struct Events {
    app: Arc<App>,
    answer: Answer,
}

impl Events {
    pub(super) fn new(app: Arc<App>, form: Form) -> Self {
        Self { app, answer: Answer::new(form.shows_thinking) }
    }
}

impl Writer for Events {
    fn write(&mut self, progress: Progress, events: &mut VecDeque<Event>) {
        if let Progress::Failed(error) = progress {
            events.push_back(sse::named("error", &Dialect::Anthropic.body(&error)));
            return;
        }
        events.extend(advance(&self.app, &mut self.answer, progress).iter().map(event));
    }

    fn keep_alive(&mut self) -> Event {
        event(&StreamEvent::Ping)
    }
}

/// What a piece of progress adds to an answer, other than its failure.
pub(super) fn advance(app: &App, answer: &mut Answer, progress: Progress) -> Vec<StreamEvent> {
    match progress {
        Progress::Opened { prompt, .. } => {
            let (id, model) = (app.ids.next("msg_"), app.config.model_id.clone());
            vec![Answer::start(id, model, prompt)]
        }
        Progress::Step { deltas, .. } => answer.step(deltas, &app.ids),
        Progress::Ended { summary, .. } => answer.end(&summary),
        Progress::PromptLogprobs { .. } | Progress::Complete(_) | Progress::Failed(_) => Vec::new(),
    }
}

fn event(event: &StreamEvent) -> Event {
    sse::named(event.name(), event)
}
