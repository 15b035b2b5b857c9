//! A text side without files: one token a byte, the tags of the real tokenizer, a small template.

use crate::{Sampling, SamplingDefaults, TextModel};
use lily_text::{ChatTemplate, TokenId, Tokenizer};
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

/// Added tokens, with their ids from 256 on; true are special.
const ADDED: [(&str, bool); 9] = [
    ("<|endoftext|>", true),
    ("<|im_start|>", true),
    ("<|im_end|>", true),
    ("<think>", false),
    ("</think>", false),
    ("<tool_call>", false),
    ("</tool_call>", false),
    ("<tool_response>", false),
    ("</tool_response>", false),
];

/// `<|im_end|>`, which ends an answer.
pub const END: TokenId = 258;

const TEMPLATE: &str = "\
{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}\
{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\n\
{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n\
{% else %}<think>\n{% endif %}{% endif %}";

/// A tokenizer with an id for each byte and for each tag; text takes as many tokens as bytes.
pub fn tokenizer() -> Arc<Tokenizer> {
    static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
        let json = tokenizer_json().to_string();
        Arc::new(Tokenizer::from_bytes(json.as_bytes()).expect("valid: made right here"))
    });
    Arc::clone(&TOKENIZER)
}

/// The tokenizer, a chat template with thinking and tools, and neutral sampling values, except that
/// answers are greedy.
pub fn text_model() -> TextModel {
    let greedy = Sampling { temperature: Some(0.0), ..Sampling::default() };
    let template = ChatTemplate::new(TEMPLATE).expect("valid: written right here");
    TextModel {
        tokenizer: tokenizer(),
        template: Some(Arc::new(template)),
        eos_token_ids: vec![END, 256],
        defaults: SamplingDefaults { thinking: greedy.clone(), plain: greedy },
    }
}

fn tokenizer_json() -> Value {
    let vocab: Map<String, Value> =
        (0..=255u8).map(|byte| (byte_char(byte).to_string(), byte.into())).collect();
    let added: Vec<Value> = (256..)
        .zip(ADDED)
        .map(|(id, (content, special)): (u32, _)| {
            json!({
                "id": id, "content": content, "special": special, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab, "merges": [],
        },
    })
}

/// The character that stands for a byte in the files of byte-level tokenizers.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let n_before = (0..byte).filter(|b| !printable(*b)).count();
    let code = u32::try_from(n_before).expect("less than 256") + 256;
    char::from_u32(code).expect("in a plane of letters")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lily_text::{Message, RenderOptions, Role};

    #[test]
    fn a_byte_is_a_token() {
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.vocab_size(), 256 + ADDED.len());
        assert_eq!(tokenizer.encode("aé<think>\n").expect("any text"), [97, 0xc3, 0xa9, 259, 10]);
        assert_eq!(tokenizer.token_id("<|im_end|>"), Some(END));
        let all: Vec<TokenId> = (0..256).collect();
        let bytes: Vec<u8> =
            all.iter().flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn the_template_opens_thinking_unless_told_not_to() {
        let text = text_model();
        let template = text.template.expect("there is one");
        let render = |enable_thinking| {
            let options = RenderOptions { enable_thinking, ..RenderOptions::for_answer() };
            template.render(&[Message::text(Role::User, "hi")], &[], &options).expect("renders")
        };
        let turn = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(render(None), format!("{turn}<think>\n"));
        assert_eq!(render(Some(false)), format!("{turn}<think>\n\n</think>\n\n"));
    }
}
