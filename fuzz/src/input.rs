//! Bytes to options, tools and text, and back for seeds.

use lily_text::{ParserOptions, ToolSchema};
use serde_json::{Value, json};

/// Longer texts find nothing that shorter ones do not, only later.
const TEXT_MAX: usize = 1 << 12;
const N_HEADER: usize = 3;

/// What a parser is given: one byte of options, two that say how the text is cut, the text.
#[derive(Clone, Debug)]
pub struct Input {
    /// Of the parser.
    pub options: ParserOptions,
    /// Says where the text is cut.
    pub cut_seed: u16,
    /// The model's text.
    pub text: String,
}

impl Input {
    /// `None` if there are too few bytes, or too many.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[flags, low, high], text) = bytes.split_first_chunk::<N_HEADER>()?;
        if text.len() > TEXT_MAX {
            return None;
        }
        let tools = if flags & 2 == 0 { Vec::new() } else { tools(flags >> 2) };
        Some(Self {
            options: ParserOptions {
                starts_in_thinking: flags & 1 != 0,
                parse_tools: !tools.is_empty(),
                tools,
            },
            cut_seed: u16::from_le_bytes([low, high]),
            text: String::from_utf8_lossy(text).into_owned(),
        })
    }

    /// The bytes of a seed, with the tools of the corpus' themes.
    pub fn seed(starts_in_thinking: bool, has_tools: bool, text: &str) -> Vec<u8> {
        let flags = u8::from(starts_in_thinking) | u8::from(has_tools) << 1 | 0b1100;
        [&[flags, 7, 1], text.as_bytes()].concat()
    }
}

/// Tools by two bits.
fn tools(flags: u8) -> Vec<ToolSchema> {
    let string = json!({"type": "string"});
    let write = json!({"name": "write", "parameters": {"type": "object", "properties": {
        "path": string, "text": string, "mode": {"type": "integer"},
        "force": {"type": "boolean"}, "tags": {"type": "array"}, "meta": {"type": "object"},
        "note": {"type": ["string", "null"]},
    }}});
    let weather = json!({"name": "get_weather", "parameters": {"properties": {
        "city": string, "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    }}});
    let typed = json!({"name": "f", "parameters": {
        "$defs": {"Age": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
        "properties": {
            "s": string, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
            "a": {"type": "array"}, "o": {"type": "object"}, "ref": {"$ref": "#/$defs/Age"},
            "loop": {"$ref": "#/$defs/Loop"}, "enum": {"enum": [1, "a", null]},
        },
    }});
    let mut definitions: Vec<Value> = vec![json!({"name": "now"})];
    if flags & 1 != 0 {
        definitions.extend([write, weather]);
    }
    if flags & 2 != 0 {
        definitions.push(typed);
    }
    definitions.iter().filter_map(ToolSchema::from_definition).collect()
}
