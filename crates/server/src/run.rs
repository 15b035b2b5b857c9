//! One request from its submission to its end: its choices side by side, in the order in which
//! the engine brings them on.

use crate::App;
use crate::active::Place;
use crate::ask::Ask;
use crate::chat::finish_reason;
use crate::error::ApiError;
use crate::metrics::Record;
use crate::trace;
use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use lily_engine::{Event, Events, GenerateRequest, PromptStats, Summary, TokenLogprob};
use lily_text::Delta;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// What a request has come to.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Log-probabilities of the next tokens of the prompt of a choice.
    PromptLogprobs { choice: usize, logprobs: Vec<TokenLogprob> },
    /// The prompt of a choice is computed.
    Opened { choice: usize, prompt: PromptStats },
    /// A step of a choice; it may add nothing yet.
    Step { choice: usize, deltas: Vec<Delta>, logprobs: Vec<TokenLogprob> },
    /// A choice is complete.
    Ended { choice: usize, summary: Summary },
    /// All choices are complete.
    Complete(Vec<Summary>),
    /// The request broke off; nothing follows.
    Failed(ApiError),
}

/// A request in progress. Dropping it cancels its choices.
pub(crate) struct Run {
    app: Arc<App>,
    events: SelectAll<BoxStream<'static, (usize, Option<Event>)>>,
    /// Return the first tool call of each choice only.
    single_call: bool,
    summaries: Vec<Option<Summary>>,
    ready: VecDeque<Progress>,
    ended: bool,
    record: Record,
    place: Place,
    /// Per choice, if answers are traced.
    traces: Vec<trace::Record>,
}

impl Run {
    /// Queues the choices of a request.
    ///
    /// # Errors
    /// As [`lily_engine::Engine::submit`]; then no choice of it stays queued.
    pub(crate) fn submit(
        app: Arc<App>,
        ask: &Ask,
        request_id: String,
        arrived: Instant,
    ) -> Result<Self, ApiError> {
        let mut events = SelectAll::new();
        let mut traces = Vec::new();
        for (i, request) in ask.requests().enumerate() {
            let request = GenerateRequest { deadline: app.config.deadline, ..request };
            if app.config.trace.is_some() {
                let prompt = trace::prompt(app.engine.text(), &request);
                traces.push(trace::Record::new(&request_id, i, prompt));
            }
            events.push(choice(i, app.engine.submit(request)?));
        }
        let metrics = Arc::clone(&app.metrics);
        let n_choices = events.len();
        let place = app.active.enter(request_id.clone(), arrived, n_choices, ask.stream);
        let record = Record::new(metrics, request_id, arrived, n_choices, ask.stream);
        let (summaries, single_call) = (vec![None; n_choices], ask.single_call);
        let ready = VecDeque::new();
        Ok(Self { app, events, single_call, summaries, ready, ended: false, record, place, traces })
    }

    /// What the handlers share.
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Waits for the next piece; `None` after `Complete` or `Failed`. Dropping the future loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Option<Progress> {
        loop {
            if let Some(progress) = self.ready.pop_front() {
                return Some(progress);
            }
            if self.ended {
                return None;
            }
            match self.events.next().await {
                Some((i, Some(event))) => self.advance(i, event),
                Some((i, None)) if self.summaries[i].is_none() => {
                    self.fail(i, ApiError::unavailable("the engine ended before the answer did"));
                }
                Some(_) => {}
                None => self.ended = true,
            }
        }
    }

    fn advance(&mut self, choice: usize, event: Event) {
        match event {
            Event::PromptLogprobs(logprobs) => {
                self.ready.push_back(Progress::PromptLogprobs { choice, logprobs });
            }
            Event::Started(prompt) => {
                self.place.opened(prompt.prompt_tokens);
                self.ready.push_back(Progress::Opened { choice, prompt });
            }
            Event::Step { mut deltas, logprobs } => {
                self.record.step(choice);
                self.place.step();
                if self.single_call {
                    deltas.retain(is_wanted);
                }
                if let Some(trace) = self.traces.get_mut(choice) {
                    for delta in &deltas {
                        trace.add(delta);
                    }
                }
                self.ready.push_back(Progress::Step { choice, deltas, logprobs });
            }
            Event::Finished(summary) => {
                self.record.finished(choice, &summary);
                if let Some(trace) = self.traces.get_mut(choice) {
                    let reason = finish_reason(summary.finish_reason);
                    trace.end(&summary, reason, self.app.engine.text());
                }
                self.summaries[choice] = Some(summary.clone());
                self.ready.push_back(Progress::Ended { choice, summary });
                if self.summaries.iter().all(Option::is_some) {
                    let summaries = self.summaries.iter_mut().filter_map(Option::take).collect();
                    self.ready.push_back(Progress::Complete(summaries));
                    self.ended = true;
                }
            }
            Event::Failed(error) => self.fail(choice, error.into()),
        }
    }

    fn fail(&mut self, i: usize, error: ApiError) {
        self.record.failed(i);
        self.events.clear();
        self.ready.push_back(Progress::Failed(error));
        self.ended = true;
    }
}

/// Also of answers that broke off: those are the ones to look at.
impl Drop for Run {
    fn drop(&mut self) {
        if let Some(trace) = &self.app.config.trace {
            for record in std::mem::take(&mut self.traces) {
                trace.record(record);
            }
        }
    }
}

/// No piece of a further call.
fn is_wanted(delta: &Delta) -> bool {
    match delta {
        Delta::ToolCallStart { index, .. }
        | Delta::ToolCallArguments { index, .. }
        | Delta::ToolCallEnd { index } => *index == 0,
        Delta::Reasoning(_) | Delta::Content(_) => true,
    }
}

/// The events of a choice, and `None` when its channel closes.
fn choice(i: usize, events: Events) -> BoxStream<'static, (usize, Option<Event>)> {
    futures_util::stream::unfold(Some(events), move |events| async move {
        let mut events = events?;
        match events.next().await {
            Some(event) => Some(((i, Some(event)), Some(events))),
            None => Some(((i, None), None)),
        }
    })
    .boxed()
}
