//! The fixtures of `tests/fixtures/text`.
#![allow(dead_code, reason = "each test file uses a part")]

use flate2::read::GzDecoder;
use lily_text::Tokenizer;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/text").join(name)
}

/// Read once: it has a quarter of a million tokens.
pub(crate) static QWEN: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let file = std::fs::File::open(fixture("tokenizer.json.gz")).expect("committed");
    let mut json = Vec::new();
    GzDecoder::new(file).read_to_end(&mut json).expect("valid gzip");
    Arc::new(Tokenizer::from_bytes(&json).expect("valid"))
});

pub(crate) fn cases(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(fixture(name)).expect("committed");
    text.lines().map(|line| serde_json::from_str(line).expect("valid")).collect()
}

pub(crate) fn demo_template() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lily/demo/chat_template.jinja");
    std::fs::read_to_string(path).expect("committed")
}
