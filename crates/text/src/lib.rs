//! Text in, token ids out, and back: tokenizer, chat template, detokeniser and output parser.
//!
//! Owns every rule about the wire format of the model's text. Knows no HTTP and no model: it sees
//! strings and ids, never logits.
#![forbid(unsafe_code)]

mod detokenize;
mod error;
mod message;
mod parse;
mod template;
mod tokenizer;

pub use detokenize::Detokenizer;
pub use error::TextError;
pub use message::{Content, Message, Part, RenderOptions, Role, ToolCall};
pub use parse::{Delta, OutputParser, ParserOptions, ToolSchema};
pub use template::ChatTemplate;
pub use tokenizer::{TokenId, Tokenizer};
