//! The engine's events become items, and the events that a client reads.
//!
//! A complete answer goes the same way with nobody listening, so that both forms agree by
//! construction.

use super::custom::InputText;
use super::input::OWN_REASONING;
use super::request::Form;
use super::store::{Stored, StoredItem};
use super::tools::Tool;
use super::wire::{
    ErrorField, IncompleteDetails, InputTokensDetails, Item, News, OfItem, OfResponse,
    OutputTokensDetails, Part, Response, Status, Usage, WithinItem,
};
use crate::App;
use crate::chat::token_logprob;
use crate::chat::wire::TokenLogprobEntry;
use crate::error::ApiError;
use crate::routes::seconds_since_1970;
use crate::tokens::{Counts, Vocabulary};
use lily_engine::{FinishReason, Summary, TokenLogprob};
use lily_text::Delta;
use serde::Serialize;
use std::sync::Arc;

/// Where events go.
pub(super) trait Listener {
    fn hear(&mut self, kind: &'static str, body: &impl Serialize);
}

/// Nobody.
#[derive(Debug)]
pub(super) struct Nobody;

impl Listener for Nobody {
    fn hear(&mut self, _: &'static str, _: &impl Serialize) {}
}

/// A response in the making.
pub(super) struct Answer {
    app: Arc<App>,
    id: String,
    created_at: u64,
    form: Form,
    items: Vec<Item>,
    /// The last item goes on.
    open: Option<Open>,
    /// Log-probabilities of tokens whose text is still held back.
    pending: Vec<TokenLogprobEntry>,
    status: &'static str,
    completed_at: Option<u64>,
    usage: Option<Usage>,
    error: Option<ErrorField>,
}

#[derive(Debug)]
enum Open {
    Reasoning,
    Message,
    Function,
    Custom(InputText),
}

impl Answer {
    pub(super) fn new(app: Arc<App>, form: Form) -> Self {
        Self {
            id: app.ids.next("resp_"),
            app,
            created_at: seconds_since_1970(),
            form,
            items: Vec::new(),
            open: None,
            pending: Vec::new(),
            status: "in_progress",
            completed_at: None,
            usage: None,
            error: None,
        }
    }

    /// The response as it is.
    pub(super) fn response(&self) -> Response<'_> {
        let cut = IncompleteDetails { reason: "max_output_tokens" };
        Response {
            id: &self.id,
            object: "response",
            created_at: self.created_at,
            completed_at: self.completed_at,
            status: self.status,
            error: self.error.clone(),
            incomplete_details: (self.status == "incomplete").then_some(cut),
            model: &self.app.config.model_id,
            output: &self.items,
            usage: self.usage,
            echo: &self.form.echo,
        }
    }

    /// Says what the whole response is.
    pub(super) fn tell(&self, kind: &'static str, listener: &mut impl Listener) {
        listener.hear(kind, &OfResponse { response: self.response() });
    }

    /// One step of the model.
    pub(super) fn step(
        &mut self,
        deltas: Vec<Delta>,
        logprobs: &[TokenLogprob],
        listener: &mut impl Listener,
    ) {
        if self.form.logprobs {
            let vocabulary = Vocabulary(self.app.engine.text());
            let kept = logprobs.iter().filter(|t| !vocabulary.is_end(t.id));
            self.pending.extend(kept.map(|t| token_logprob(t, vocabulary)));
        }
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) if !text.is_empty() => self.reason(&text, listener),
                Delta::Content(text) if !text.is_empty() => self.write(&text, listener),
                Delta::Reasoning(_) | Delta::Content(_) => {}
                Delta::ToolCallStart { index: _, name } => self.call(name, listener),
                Delta::ToolCallArguments { index: _, json } => self.argue(&json, listener),
                Delta::ToolCallEnd { index: _ } => self.close(Status::Completed, listener),
            }
        }
    }

    /// The end of the answer.
    pub(super) fn finish(&mut self, summary: &Summary, listener: &mut impl Listener) {
        let is_cut = summary.finish_reason == FinishReason::Length;
        self.close(if is_cut { Status::Incomplete } else { Status::Completed }, listener);
        let counts = Counts::of(std::slice::from_ref(summary), 1);
        self.usage = Some(Usage {
            input_tokens: counts.prompt,
            input_tokens_details: InputTokensDetails {
                cached_tokens: counts.cached,
                cache_write_tokens: 0,
            },
            output_tokens: counts.completion,
            output_tokens_details: OutputTokensDetails { reasoning_tokens: counts.reasoning },
            total_tokens: counts.prompt + counts.completion,
        });
        self.completed_at = Some(seconds_since_1970());
        self.status = if is_cut { "incomplete" } else { "completed" };
        // Before the client hears of the end: it may ask for the response at once.
        if self.form.echo.store {
            self.store();
        }
        let kind = if is_cut { "response.incomplete" } else { "response.completed" };
        self.tell(kind, listener);
    }

    /// The answer broke off.
    pub(super) fn fail(&mut self, error: ApiError, listener: &mut impl Listener) {
        self.close(Status::Incomplete, listener);
        self.status = "failed";
        self.error = Some(ErrorField { code: "server_error", message: error.message });
        self.tell("response.failed", listener);
    }

    fn store(&mut self) {
        let output = self.items.iter().map(|item| {
            let json = to_json(item);
            StoredItem { id: item.id().into(), json: json.into() }
        });
        let output = output.collect();
        let json = to_json(&self.response());
        let input = std::mem::take(&mut self.form.items);
        self.app.responses.insert(Stored { id: self.id.clone(), json, input, output });
    }

    fn reason(&mut self, more: &str, listener: &mut impl Listener) {
        if !matches!(self.open, Some(Open::Reasoning)) {
            let part = |text| {
                vec![if self.form.summary {
                    Part::SummaryText { text }
                } else {
                    Part::ReasoningText { text }
                }]
            };
            let (whole, summary) = (part(String::new()), self.form.summary);
            let id = self.app.ids.next("rs_");
            let status = Status::InProgress;
            let no_content = (!summary).then(Vec::new);
            let item = Item::Reasoning {
                id,
                status,
                summary: Vec::new(),
                content: no_content,
                encrypted_content: None,
            };
            self.begin(item, Open::Reasoning, listener);
            if let Some(Item::Reasoning { summary: shown, content, .. }) = self.items.last_mut() {
                *content.as_mut().unwrap_or(shown) = whole;
            }
            self.tell_part(
                if summary {
                    "response.reasoning_summary_part.added"
                } else {
                    "response.content_part.added"
                },
                listener,
            );
        }
        self.pending.clear();
        if let Some(Part::SummaryText { text } | Part::ReasoningText { text }) = self.part_mut() {
            text.push_str(more);
        }
        let kind = if self.form.summary {
            "response.reasoning_summary_text.delta"
        } else {
            "response.reasoning_text.delta"
        };
        self.tell_within(kind, News::Delta { delta: more }, listener);
    }

    fn write(&mut self, more: &str, listener: &mut impl Listener) {
        let starts = !matches!(self.open, Some(Open::Message));
        if starts {
            let part =
                Part::OutputText { text: String::new(), annotations: [], logprobs: Vec::new() };
            let (id, status) = (self.app.ids.next("msg_"), Status::InProgress);
            let item = Item::Message { id, status, role: "assistant", content: Vec::new() };
            self.begin(item, Open::Message, listener);
            if let Some(Item::Message { content, .. }) = self.items.last_mut() {
                content.push(part);
            }
            self.tell_part("response.content_part.added", listener);
            self.drop_foreign_logprobs(more);
        }
        let news = std::mem::take(&mut self.pending);
        if let Some(Part::OutputText { text, logprobs, .. }) = self.part_mut() {
            text.push_str(more);
            logprobs.extend(news.iter().cloned());
        }
        let news = News::TextDelta { delta: more, logprobs: &news };
        self.tell_within("response.output_text.delta", news, listener);
    }

    /// Leaves the last tokens that hold the start of a message: those before belong to what was
    /// written before it.
    fn drop_foreign_logprobs(&mut self, start: &str) {
        let mut bytes = Vec::new();
        let is_in = |bytes: &[u8]| bytes.windows(start.len()).any(|part| part == start.as_bytes());
        for i in (0..self.pending.len()).rev() {
            bytes.splice(0..0, self.pending[i].bytes.iter().copied());
            if is_in(&bytes) {
                self.pending.drain(..i);
                return;
            }
        }
    }

    fn call(&mut self, name: String, listener: &mut impl Listener) {
        let Tool { namespace, name, is_custom } = self.form.names.tool(name);
        let (ids, status) = (&self.app.ids, Status::InProgress);
        let call_id = ids.next("call_");
        let (item, open) = if is_custom {
            let (id, input) = (ids.next("ctc_"), String::new());
            let item = Item::CustomToolCall { id, status, call_id, namespace, name, input };
            (item, Open::Custom(InputText::default()))
        } else {
            let (id, arguments) = (ids.next("fc_"), String::new());
            let item = Item::FunctionCall { id, status, call_id, namespace, name, arguments };
            (item, Open::Function)
        };
        self.begin(item, open, listener);
        self.pending.clear();
    }

    fn argue(&mut self, json: &str, listener: &mut impl Listener) {
        self.pending.clear();
        match (self.open.as_mut(), self.items.last_mut()) {
            (Some(Open::Function), Some(Item::FunctionCall { arguments, .. })) => {
                arguments.push_str(json);
                let news = News::Delta { delta: json };
                self.tell_within("response.function_call_arguments.delta", news, listener);
            }
            (Some(Open::Custom(text)), Some(Item::CustomToolCall { .. })) => {
                let more = text.push(json);
                self.add_input(&more, listener);
            }
            _ => {}
        }
    }

    fn add_input(&mut self, more: &str, listener: &mut impl Listener) {
        if more.is_empty() {
            return;
        }
        if let Some(Item::CustomToolCall { input, .. }) = self.items.last_mut() {
            input.push_str(more);
        }
        let news = News::Delta { delta: more };
        self.tell_within("response.custom_tool_call_input.delta", news, listener);
    }

    /// Opens an item.
    fn begin(&mut self, item: Item, open: Open, listener: &mut impl Listener) {
        self.close(Status::Completed, listener);
        self.items.push(item);
        self.open = Some(open);
        self.tell_item("response.output_item.added", listener);
    }

    /// Ends the open item, if one is.
    fn close(&mut self, end: Status, listener: &mut impl Listener) {
        let Some(open) = self.open.take() else { return };
        match open {
            Open::Reasoning => self.close_reasoning(listener),
            Open::Message => {
                if let Some(Part::OutputText { text, logprobs, .. }) = self.part() {
                    let news = News::TextDone { text, logprobs };
                    self.tell_within("response.output_text.done", news, listener);
                }
                self.tell_part("response.content_part.done", listener);
            }
            Open::Function => {
                if let Some(Item::FunctionCall { name, arguments, .. }) = self.items.last() {
                    let news = News::Arguments { name, arguments };
                    self.tell_within("response.function_call_arguments.done", news, listener);
                }
            }
            Open::Custom(mut text) => {
                let more = text.end();
                self.add_input(&more, listener);
                if let Some(Item::CustomToolCall { input, .. }) = self.items.last() {
                    let news = News::Input { input };
                    self.tell_within("response.custom_tool_call_input.done", news, listener);
                }
            }
        }
        if let Some(item) = self.items.last_mut() {
            *item.status_mut() = end;
        }
        self.tell_item("response.output_item.done", listener);
    }

    fn close_reasoning(&mut self, listener: &mut impl Listener) {
        let (text_done, part_done) = if self.form.summary {
            ("response.reasoning_summary_text.done", "response.reasoning_summary_part.done")
        } else {
            ("response.reasoning_text.done", "response.content_part.done")
        };
        let mut words = String::new();
        if let Some(Part::SummaryText { text } | Part::ReasoningText { text }) = self.part() {
            self.tell_within(text_done, News::Text { text }, listener);
            words.clone_from(text);
        }
        self.tell_part(part_done, listener);
        if let Some(Item::Reasoning { encrypted_content, .. }) = self.items.last_mut()
            && self.form.encrypted
        {
            *encrypted_content = Some(format!("{OWN_REASONING}{words}"));
        }
    }

    /// The part of the last item.
    fn part(&self) -> Option<&Part> {
        match self.items.last()? {
            Item::Reasoning { summary, content, .. } => content.as_ref().unwrap_or(summary).first(),
            Item::Message { content, .. } => content.first(),
            Item::FunctionCall { .. } | Item::CustomToolCall { .. } => None,
        }
    }

    fn part_mut(&mut self) -> Option<&mut Part> {
        match self.items.last_mut()? {
            Item::Reasoning { summary, content, .. } => {
                content.as_mut().unwrap_or(summary).first_mut()
            }
            Item::Message { content, .. } => content.first_mut(),
            Item::FunctionCall { .. } | Item::CustomToolCall { .. } => None,
        }
    }

    fn tell_part(&self, kind: &'static str, listener: &mut impl Listener) {
        if let Some(part) = self.part() {
            self.tell_within(kind, News::Part { part }, listener);
        }
    }

    fn tell_item(&self, kind: &'static str, listener: &mut impl Listener) {
        if let Some(item) = self.items.last() {
            listener.hear(kind, &OfItem { output_index: self.items.len() - 1, item });
        }
    }

    fn tell_within(&self, kind: &'static str, news: News<'_>, listener: &mut impl Listener) {
        let Some(item) = self.items.last() else { return };
        let (content_index, summary_index) = match item {
            Item::Reasoning { content: None, .. } => (None, Some(0)),
            Item::Reasoning { .. } | Item::Message { .. } => (Some(0), None),
            Item::FunctionCall { .. } | Item::CustomToolCall { .. } => (None, None),
        };
        let output_index = self.items.len() - 1;
        let within =
            WithinItem { item_id: item.id(), output_index, content_index, summary_index, news };
        listener.hear(kind, &within);
    }
}

impl Item {
    fn id(&self) -> &str {
        match self {
            Self::Reasoning { id, .. }
            | Self::Message { id, .. }
            | Self::FunctionCall { id, .. }
            | Self::CustomToolCall { id, .. } => id,
        }
    }

    fn status_mut(&mut self) -> &mut Status {
        match self {
            Self::Reasoning { status, .. }
            | Self::Message { status, .. }
            | Self::FunctionCall { status, .. }
            | Self::CustomToolCall { status, .. } => status,
        }
    }
}

/// JSON of a wire type.
pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and finite numbers")
}
