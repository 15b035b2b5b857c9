//! What the log says of a request, and what it must not say. One test, since the log is one for
//! the process.

mod support;

use serde_json::json;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use support::{chat_with, post, send};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().expect("not poisoned"))).expect("text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn prompts_are_logged_on_request_only() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let secrets = json!({"messages": [{"role": "user", "content": "my secret"}]});
    for wrong in [json!({}), json!({"temperature": 9}), json!({"stop": "secret", "n": 0})] {
        let mut fields = secrets.clone();
        fields
            .as_object_mut()
            .expect("an object")
            .extend(wrong.as_object().expect("an object").clone());
        let request = post("/v1/chat/completions", chat_with(&fields).to_string());
        send(&support::router("an answer, also secret"), request).await;
        let lines = log.take();
        assert!(!lines.contains("secret"), "{lines}");
        let word = if wrong == json!({}) { "outcome=\"stop\"" } else { "status=400" };
        let line = lines.lines().find(|l| l.contains("INFO") && l.contains(word));
        assert!(line.is_some_and(|l| l.contains("request=\"req_")), "{lines}");
    }
    let router = support::router_with("an answer", |config| config.log_prompts = true);
    send(&router, post("/v1/chat/completions", chat_with(&secrets).to_string())).await;
    assert!(log.take().contains("my secret"));
}
