//! The detokeniser, with one token for each byte.

use lily_text::{Detokenizer, TokenId, Tokenizer};
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

static BYTES: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let vocab: Map<String, Value> =
        byte_chars().enumerate().map(|(id, char)| (char.to_string(), id.into())).collect();
    let file = json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    Arc::new(Tokenizer::from_bytes(file.to_string().as_bytes()).expect("a valid tokenizer"))
});

/// GPT-2's characters for the 256 bytes.
fn byte_chars() -> impl Iterator<Item = char> {
    let mut n_hidden = 0;
    (0..=u8::MAX).map(move |byte| {
        let is_shown = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
        if is_shown {
            return char::from(byte);
        }
        n_hidden += 1;
        char::from_u32(255 + n_hidden).expect("below the surrogates")
    })
}

/// Panics if bytes that come one at a time differ from all at once.
pub fn check_detokenize(bytes: &[u8]) {
    let mut detokenizer = Detokenizer::new(Arc::clone(&BYTES));
    let mut text = String::new();
    for byte in bytes {
        text += &detokenizer.push(TokenId::from(*byte));
    }
    text += &detokenizer.finish();
    assert_eq!(text, String::from_utf8_lossy(bytes));
}
