//! What `/metrics` shows, and the record of each request that feeds it and the log.
//!
//! The recorder belongs to the server value, not to the process, so two servers (two tests) do
//! not mix.

use axum::http::StatusCode;
use lily_engine::{Engine, FinishReason, Summary};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// From a cached prompt on a fast machine to a full context on a slow one.
const FIRST_TOKEN_BUCKETS_S: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// From 1000 tokens a second to one in two seconds.
const INTER_TOKEN_BUCKETS_S: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 2.0];
/// From a refusal to an hour.
const DURATION_BUCKETS_S: [f64; 13] =
    [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0, 3600.0];

/// Every series with its type, unit and meaning.
#[derive(Debug)]
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    queued: Gauge,
    running: Gauge,
    cancelled: Counter,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    generated_tokens: Counter,
    prefill_s: Gauge,
    decode_s: Gauge,
    cache_entries: Gauge,
    cache_bytes: Gauge,
    first_token_s: Histogram,
    inter_token_s: Histogram,
    duration_s: Histogram,
}

impl Metrics {
    pub(crate) fn new(model_id: &str) -> Self {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in [
            ("lily_time_to_first_token_seconds", FIRST_TOKEN_BUCKETS_S.as_slice()),
            ("lily_inter_token_seconds", INTER_TOKEN_BUCKETS_S.as_slice()),
            ("lily_request_duration_seconds", DURATION_BUCKETS_S.as_slice()),
        ] {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
                .expect("the bucket lists are not empty");
        }
        let recorder = builder.build_recorder();
        let series = Series(&recorder);
        series.describe_counter("lily_http_responses_total", "Responses by route and status.");
        series.describe_counter(
            "lily_answers_total",
            "Answers by how they ended: stop, length, tool_calls, failed or cancelled.",
        );
        let build = [
            Label::new("version", env!("CARGO_PKG_VERSION")),
            Label::new("model", model_id.to_owned()),
        ];
        let build = Key::from_parts("lily_build_info", build.to_vec());
        recorder.register_gauge(&build, &METADATA).set(1.0);
        Self {
            handle: recorder.handle(),
            queued: series.gauge("lily_requests_queued", "Requests that wait for a place."),
            running: series.gauge("lily_requests_running", "Requests being computed."),
            cancelled: series.counter(
                "lily_requests_cancelled_total",
                "Requests that ended because the client went away.",
            ),
            prompt_tokens: series
                .counter("lily_prompt_tokens_total", "Prompt tokens computed, cached ones not."),
            cached_tokens: series.counter(
                "lily_cached_prompt_tokens_total",
                "Prompt tokens whose state was reused.",
            ),
            generated_tokens: series.counter("lily_generated_tokens_total", "Tokens generated."),
            prefill_s: series.gauge("lily_prefill_seconds", "Time spent on prompts so far."),
            decode_s: series.gauge("lily_decode_seconds", "Time spent on answers so far."),
            cache_entries: series
                .gauge("lily_prompt_cache_entries", "Beginnings of prompts that are kept."),
            cache_bytes: series.gauge("lily_prompt_cache_bytes", "Memory that those take."),
            first_token_s: series.histogram(
                "lily_time_to_first_token_seconds",
                "From the arrival of a request to its first token.",
            ),
            inter_token_s: series
                .histogram("lily_inter_token_seconds", "Between the steps of an answer."),
            duration_s: series.histogram(
                "lily_request_duration_seconds",
                "From the arrival of a request to the end of its answers.",
            ),
            recorder,
        }
    }

    /// Counts a response when its head is known.
    pub(crate) fn responded(&self, route: &str, status: u16) {
        let labels =
            vec![Label::new("route", route.to_owned()), Label::new("status", status.to_string())];
        let key = Key::from_parts("lily_http_responses_total", labels);
        self.recorder.register_counter(&key, &METADATA).increment(1);
    }

    fn answered(&self, outcome: &'static str) {
        let key = Key::from_parts("lily_answers_total", vec![Label::new("outcome", outcome)]);
        self.recorder.register_counter(&key, &METADATA).increment(1);
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self, engine: &Engine) -> String {
        let stats = engine.stats();
        self.queued.set(stats.n_queued as f64);
        self.running.set(stats.n_running as f64);
        self.cancelled.absolute(stats.n_cancelled);
        self.prompt_tokens.absolute(stats.n_prompt_tokens);
        self.generated_tokens.absolute(stats.n_generated_tokens);
        self.prefill_s.set(stats.prefill_s);
        self.decode_s.set(stats.decode_s);
        self.cache_entries.set(stats.n_cache_entries as f64);
        self.cache_bytes.set(stats.cache_bytes as f64);
        self.handle.render()
    }
}

/// Registers series with their description.
struct Series<'a>(&'a PrometheusRecorder);

impl Series<'_> {
    fn describe_counter(&self, name: &'static str, text: &'static str) {
        self.0.describe_counter(KeyName::from(name), None, text.into());
    }

    fn counter(&self, name: &'static str, text: &'static str) -> Counter {
        self.describe_counter(name, text);
        self.0.register_counter(&Key::from_static_name(name), &METADATA)
    }

    fn gauge(&self, name: &'static str, text: &'static str) -> Gauge {
        self.0.describe_gauge(KeyName::from(name), None, text.into());
        self.0.register_gauge(&Key::from_static_name(name), &METADATA)
    }

    fn histogram(&self, name: &'static str, text: &'static str) -> Histogram {
        self.0.describe_histogram(KeyName::from(name), Some(Unit::Seconds), text.into());
        self.0.register_histogram(&Key::from_static_name(name), &METADATA)
    }
}

/// What happened to one request. Dropping it writes the log line and counts the answers, whether
/// the request came to its end or the client went away.
#[derive(Debug)]
pub(crate) struct Record {
    metrics: Arc<Metrics>,
    request_id: String,
    stream: bool,
    arrived: Instant,
    first_token: Option<Duration>,
    /// Per choice, when its last step came and how it ended.
    choices: Vec<(Option<Instant>, Option<&'static str>)>,
    prompt_tokens: usize,
    cached_tokens: usize,
    generated_tokens: usize,
    reasoning_tokens: usize,
    decode_s: f64,
}

impl Record {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        request_id: String,
        arrived: Instant,
        n_choices: usize,
        stream: bool,
    ) -> Self {
        Self {
            metrics,
            request_id,
            stream,
            arrived,
            first_token: None,
            choices: vec![(None, None); n_choices],
            prompt_tokens: 0,
            cached_tokens: 0,
            generated_tokens: 0,
            reasoning_tokens: 0,
            decode_s: 0.0,
        }
    }

    /// A step of a choice arrived.
    pub(crate) fn step(&mut self, choice: usize) {
        let now = Instant::now();
        if self.first_token.is_none() {
            let elapsed = now - self.arrived;
            self.first_token = Some(elapsed);
            self.metrics.first_token_s.record(elapsed.as_secs_f64());
        }
        if let Some(last) = self.choices[choice].0.replace(now) {
            self.metrics.inter_token_s.record((now - last).as_secs_f64());
        }
    }

    /// A choice is complete.
    pub(crate) fn finished(&mut self, choice: usize, summary: &Summary) {
        self.choices[choice].1 = Some(match summary.finish_reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
        });
        self.metrics.cached_tokens.increment(summary.prompt.cached_tokens as u64);
        self.prompt_tokens = self.prompt_tokens.max(summary.prompt.prompt_tokens);
        self.cached_tokens = self.cached_tokens.max(summary.prompt.cached_tokens);
        self.generated_tokens += summary.completion_tokens;
        self.reasoning_tokens += summary.reasoning_tokens;
        self.decode_s = self.decode_s.max(summary.decode_s);
    }

    /// A choice broke off, and with it the request.
    pub(crate) fn failed(&mut self, choice: usize) {
        self.choices[choice].1 = Some("failed");
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let duration = self.arrived.elapsed();
        self.metrics.duration_s.record(duration.as_secs_f64());
        let failed = self.choices.iter().any(|(_, outcome)| *outcome == Some("failed"));
        let rest = if failed { "failed" } else { "cancelled" };
        for (_, outcome) in &self.choices {
            self.metrics.answered(outcome.unwrap_or(rest));
        }
        // Samples wait in the recorder until someone folds them in; a server that nobody scrapes
        // would keep them for ever.
        self.metrics.handle.run_upkeep();
        let outcome = match self.choices.as_slice() {
            [(_, outcome)] => outcome.unwrap_or(rest),
            choices if choices.iter().all(|(_, outcome)| outcome.is_some()) && !failed => {
                "finished"
            }
            _ => rest,
        };
        let per_s = |n: usize| if self.decode_s > 0.0 { n as f64 / self.decode_s } else { 0.0 };
        tracing::info!(
            request = self.request_id,
            outcome,
            stream = self.stream,
            choices = self.choices.len(),
            prompt_tokens = self.prompt_tokens,
            cached_tokens = self.cached_tokens,
            generated_tokens = self.generated_tokens,
            reasoning_tokens = self.reasoning_tokens,
            first_token_ms = self.first_token.map(|d| (d.as_secs_f64() * 1e3).round()),
            tokens_per_s = (per_s(self.generated_tokens) * 10.0).round() / 10.0,
            total_ms = (duration.as_secs_f64() * 1e3).round(),
            "chat"
        );
    }
}

/// Counts the response of a handler; one that is dropped before it answers counts as 499, the
/// status that nginx made up for a client that went away.
#[derive(Debug)]
pub(crate) struct ResponseCount {
    metrics: Arc<Metrics>,
    route: String,
    status: u16,
}

impl ResponseCount {
    pub(crate) fn new(metrics: Arc<Metrics>, route: String) -> Self {
        Self { metrics, route, status: 499 }
    }

    pub(crate) fn done(mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for ResponseCount {
    fn drop(&mut self) {
        self.metrics.responded(&self.route, self.status);
    }
}
