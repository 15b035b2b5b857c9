//! The tokenizer of Qwen3.6, against ids of an independent implementation.

mod support;

use lily_text::{Detokenizer, TextError, TokenId, Tokenizer};
use proptest::prelude::*;
use std::sync::Arc;
use support::{QWEN, cases};

fn ids_of(case: &serde_json::Value) -> Vec<TokenId> {
    serde_json::from_value(case["ids"].clone()).expect("ids")
}

#[test]
fn ids_are_those_of_the_reference() {
    let cases = cases("tokenizer-cases.jsonl");
    assert_eq!(cases.len(), 300);
    for case in &cases {
        let text = case["text"].as_str().expect("text");
        assert_eq!(QWEN.encode(text).expect("encodes"), ids_of(case), "{text:?}");
    }
}

#[test]
fn ids_decode_to_the_normalised_text() {
    for case in cases("tokenizer-cases.jsonl") {
        let ids = ids_of(&case);
        let text = QWEN.decode(&ids);
        // The text is normalised once; from then on it comes back as it is.
        assert_eq!(QWEN.encode(&text).expect("encodes"), ids, "{text:?}");
        let mut detokenizer = Detokenizer::new(Arc::clone(&QWEN));
        let mut streamed: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
        streamed += &detokenizer.finish();
        assert_eq!(streamed, text);
    }
}

#[test]
fn added_tokens_are_text_where_told_so() {
    let text = "a<|im_end|>b<think>";
    let ids = QWEN.encode(text).expect("encodes");
    assert!(ids.contains(&248_046) && ids.contains(&248_068));
    let plain = QWEN.encode_plain(text).expect("encodes");
    assert!(plain.iter().all(|id| *id < 248_044), "{plain:?}");
    assert_eq!(QWEN.decode(&plain), text);
}

#[test]
fn tokens_have_names_bytes_and_flags() {
    assert_eq!(QWEN.vocab_size(), 248_077);
    assert_eq!(QWEN.token_id("<|im_end|>"), Some(248_046));
    assert_eq!(QWEN.token_id("</think>"), Some(248_069));
    assert_eq!(QWEN.token_id("hello"), None, "an ordinary token");
    assert_eq!(QWEN.token_bytes(248_058), b"<tool_call>");
    assert_eq!(QWEN.token_bytes(198), b"\n");
    assert_eq!(QWEN.token_bytes(220), b" ");
    for padding in [248_077, 248_319, TokenId::MAX] {
        assert_eq!(QWEN.token_bytes(padding), b"");
    }
    assert!(QWEN.is_special(248_046) && QWEN.is_special(248_044));
    assert!(!QWEN.is_special(248_068) && !QWEN.is_special(0) && !QWEN.is_special(TokenId::MAX));
}

#[test]
fn all_single_bytes_have_a_token() {
    let mut found = [false; 256];
    for id in 0..256 {
        let [byte] = QWEN.token_bytes(id) else { panic!("token {id} is not one byte") };
        found[usize::from(*byte)] = true;
    }
    assert!(found.iter().all(|f| *f));
}

#[test]
fn long_runs_are_encoded_in_time() {
    let started = std::time::Instant::now();
    for run in ["a", " ", "\n", "!", "é", "字", "<", "1", "ab ", "</think>"] {
        let text = run.repeat(100_000 / run.len());
        let ids = QWEN.encode(&text).expect("encodes");
        assert_eq!(QWEN.decode(&ids), text);
    }
    // A megabyte in all. Generous: tests run without optimisation beside others.
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn a_hundred_kilobytes_take_less_than_a_second() {
    let sources = [include_str!("../src/tokenizer.rs"), include_str!("../src/parse.rs")];
    let text = sources.concat().repeat(8);
    let text = &text[..text.floor_char_boundary(100_000)];
    let tokenizer = &*QWEN; // reading the file does not count
    let started = std::time::Instant::now();
    let ids = tokenizer.encode(text).expect("encodes");
    let elapsed_ms = started.elapsed().as_millis();
    assert!(elapsed_ms < 1000, "{} tokens took {elapsed_ms} ms", ids.len());
}

#[test]
fn broken_files_are_refused() {
    for json in [&b""[..], b"{}", b"[]", b"{\"model\": {}}", b"\xff"] {
        assert!(matches!(Tokenizer::from_bytes(json), Err(TextError::Tokenizer { .. })));
    }
}

/// Text near what the tokenizer cares about.
fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "<think>",
            "</think>",
            "<|im_end|>",
            "<|im",
            "_end|>",
            "<",
            ">",
            "  ",
            "\n",
            "\r\n",
            " the",
            "don't",
            "'S",
            "\u{17f}",
            "e\u{301}",
            "\u{338}",
            "\u{212b}",
            "123",
            "é",
            "字",
            "\u{1f468}\u{200d}\u{1f469}",
            "\u{e000}",
            "\0",
        ])
        .prop_map(String::from),
        any::<char>().prop_map(String::from),
        "[a-z ]{0,8}",
    ];
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn encoding_and_decoding_settle(text in text()) {
        for encode in [Tokenizer::encode, Tokenizer::encode_plain] {
            let once = QWEN.decode(&encode(&QWEN, &text).expect("encodes"));
            let twice = QWEN.decode(&encode(&QWEN, &once).expect("encodes"));
            prop_assert_eq!(&once, &twice);
            if text.is_ascii() {
                prop_assert_eq!(&once, &text);
            }
        }
    }

    #[test]
    fn plain_text_has_no_added_tokens(text in text()) {
        let ids = QWEN.encode_plain(&text).expect("encodes");
        prop_assert!(ids.iter().all(|id| *id < 248_044));
    }

    #[test]
    fn any_ids_stream_to_what_they_decode_to(
        ids in prop::collection::vec(prop_oneof![0u32..256, 0u32..250_000], 0..40)
    ) {
        let mut detokenizer = Detokenizer::new(Arc::clone(&QWEN));
        let mut streamed: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
        streamed += &detokenizer.finish();
        prop_assert_eq!(streamed, QWEN.decode(&ids));
    }
}
