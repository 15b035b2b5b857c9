//! What the log says of a request, and what it must not say.

mod support;

use lily_engine::scripted::{Script, ScriptedModel, config, engine};
use std::io::Write;
use std::sync::{Arc, Mutex};
use support::{answer, text};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Alone in its file, because the log of a process is one.
#[test]
fn a_finished_request_is_one_line_without_its_text() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let engine = engine(ScriptedModel::new(Script::text("my answer")), config(1, 1));
    answer(&engine, text("my secret question"));
    engine.drain();
    let log = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("UTF-8");
    assert!(!log.contains("secret") && !log.contains("my answer"), "{log}");
    let info: Vec<_> = log.lines().filter(|line| line.contains(" INFO ")).collect();
    assert_eq!(info.len(), 1, "{log}");
    for part in ["request{id=0}", "finish_reason=Stop", "prompt_tokens=18", "completion_tokens=10"]
    {
        assert!(info[0].contains(part), "{part} in {}", info[0]);
    }
}
