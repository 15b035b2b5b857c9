//! The turns of a request.
//!
//! Turns of one speaker in a row are one turn, as in Anthropic's API.

use super::wire::{Block, MessageField, ResultBlock};
use crate::conversation::{Conversation, Turn, earlier_call};
use crate::error::{ApiError, quoted};
use crate::json::{Object, TextOr};
use crate::limits::PARTS_MAX;
use lily_text::{Message, ToolCall};

/// Clients of Anthropic's start their instructions with a line for its billing, which changes from
/// request to request: in the prompt it would hide everything after it from the prompt cache.
const BILLING_LINE: &str = "x-anthropic-billing-header";

/// Between blocks of text that were said one after the other.
const BLOCK_GAP: &str = "\n\n";

/// Checks the turns and brings them into the form of the template. True if the last one is the
/// start of the answer.
///
/// # Errors
/// 400 with the path of what is wrong or not served.
pub(super) fn messages(
    system: Option<TextOr<Block>>,
    list: Vec<Object<MessageField>>,
) -> Result<(Vec<Message>, bool), ApiError> {
    Conversation::check_len("messages", list.len())?;
    let mut conversation = Conversation::default();
    for text in system_texts("system", system)? {
        conversation.push(Turn::System(text));
    }
    let mut turn = Spoken::default();
    for (i, Object(message)) in list.into_iter().enumerate() {
        let param = format!("messages[{i}]");
        let speaker = Speaker::of(&param, &message.role)?;
        if speaker != turn.speaker {
            std::mem::replace(&mut turn, Spoken::new(speaker)).push_to(&mut conversation);
        }
        turn.read(&format!("{param}.content"), message.content)?;
    }
    let continues = turn.speaker == Speaker::Assistant;
    if continues && !turn.calls.is_empty() {
        let problem = "ends with calls; send a user turn with a `tool_result` for each of them";
        return Err(ApiError::invalid("messages", problem));
    }
    // Without words there is nothing to continue.
    let continues = continues && turn.texts.iter().any(|text| !text.is_empty());
    if continues || turn.speaker != Speaker::Assistant {
        turn.push_to(&mut conversation);
    }
    Ok((conversation.finish(), continues))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Speaker {
    System,
    #[default]
    User,
    Assistant,
}

impl Speaker {
    fn of(param: &str, role: &str) -> Result<Self, ApiError> {
        match role {
            "user" => Ok(Self::User),
            "assistant" => Ok(Self::Assistant),
            "system" => Ok(Self::System),
            other => {
                let problem =
                    format!("is `{}`, but must be user, assistant or system", quoted(other));
                Err(ApiError::invalid(format!("{param}.role"), problem))
            }
        }
    }
}

/// What one speaker says before another one does.
#[derive(Debug, Default)]
struct Spoken {
    speaker: Speaker,
    /// Whether anything was read, and be it an empty text.
    is_said: bool,
    texts: Vec<String>,
    thoughts: Vec<String>,
    calls: Vec<ToolCall>,
    /// Results, with the id of the call.
    results: Vec<(String, String)>,
}

impl Spoken {
    fn new(speaker: Speaker) -> Self {
        Self { speaker, ..Self::default() }
    }

    fn read(&mut self, param: &str, content: TextOr<Block>) -> Result<(), ApiError> {
        self.is_said = true;
        let blocks = match content {
            TextOr::Text(text) => {
                self.texts.push(text);
                return Ok(());
            }
            TextOr::Parts(blocks) => blocks,
        };
        check_blocks(param, blocks.len())?;
        for (i, Object(block)) in blocks.into_iter().enumerate() {
            self.read_block(&format!("{param}[{i}]"), block)?;
        }
        Conversation::check_calls(param, self.calls.len())
    }

    fn read_block(&mut self, param: &str, block: Block) -> Result<(), ApiError> {
        let field = |name: &str| format!("{param}.{name}");
        let missing = |name: &str| ApiError::invalid(field(name), "is missing");
        let only_from = |speaker: Speaker, who: &str| {
            if self.speaker == speaker {
                return Ok(());
            }
            let problem = format!("is `{}`, which only a turn of the {who} has", block.kind);
            Err(ApiError::invalid(field("type"), problem))
        };
        match block.kind.as_str() {
            "text" => self.texts.push(block.text.ok_or_else(|| missing("text"))?),
            "thinking" => {
                only_from(Speaker::Assistant, "assistant")?;
                self.thoughts.push(block.thinking.ok_or_else(|| missing("thinking"))?);
            }
            // What it says cannot be read here.
            "redacted_thinking" => only_from(Speaker::Assistant, "assistant")?,
            "tool_use" => {
                only_from(Speaker::Assistant, "assistant")?;
                let id = block.id.ok_or_else(|| missing("id"))?;
                let name = block.name.ok_or_else(|| missing("name"))?;
                let input = (field("input"), block.input);
                let call = earlier_call((&field("name"), name), (&input.0, input.1), Some(id))?;
                self.calls.push(call);
            }
            "tool_result" => {
                only_from(Speaker::User, "user")?;
                let id = block.tool_use_id.ok_or_else(|| missing("tool_use_id"))?;
                let text = result_text(&field("content"), block.content)?;
                self.results.push((id, marked(text, block.is_error.unwrap_or(false))));
            }
            other => return Err(unread(param, other, "text, thinking, tool_use or tool_result")),
        }
        Ok(())
    }

    /// Results come before words: the template wants them right after the calls, and so does
    /// Anthropic's API.
    fn push_to(self, conversation: &mut Conversation) {
        let has_results = !self.results.is_empty();
        for (id, text) in self.results {
            conversation.push(Turn::Result { call_id: Some(id), text });
        }
        if !self.is_said {
            return;
        }
        let content = self.texts.join(BLOCK_GAP);
        match self.speaker {
            Speaker::User if has_results && self.texts.is_empty() => {}
            Speaker::User => conversation.push(Turn::User(content)),
            Speaker::System => conversation.push(Turn::System(content)),
            Speaker::Assistant => {
                let reasoning = (!self.thoughts.is_empty()).then(|| self.thoughts.join(BLOCK_GAP));
                conversation.push(Turn::Assistant { content, reasoning, calls: self.calls });
            }
        }
    }
}

/// The instructions, block by block.
fn system_texts(param: &str, system: Option<TextOr<Block>>) -> Result<Vec<String>, ApiError> {
    let blocks = match system {
        None => return Ok(Vec::new()),
        Some(TextOr::Text(text)) => return Ok(vec![text]),
        Some(TextOr::Parts(blocks)) => blocks,
    };
    check_blocks(param, blocks.len())?;
    let mut texts = Vec::with_capacity(blocks.len());
    for (i, Object(block)) in blocks.into_iter().enumerate() {
        let param = format!("{param}[{i}]");
        if block.kind != "text" {
            return Err(unread(&param, &block.kind, "text"));
        }
        let missing = || ApiError::invalid(format!("{param}.text"), "is missing");
        let text = block.text.ok_or_else(missing)?;
        if !text.starts_with(BILLING_LINE) {
            texts.push(text);
        }
    }
    Ok(texts)
}

/// Parts of a result join without a separator: tools cut their output anywhere.
fn result_text(param: &str, content: Option<TextOr<ResultBlock>>) -> Result<String, ApiError> {
    let blocks = match content {
        None => return Ok(String::new()),
        Some(TextOr::Text(text)) => return Ok(text),
        Some(TextOr::Parts(blocks)) => blocks,
    };
    check_blocks(param, blocks.len())?;
    let text = |(i, Object(block)): (usize, Object<ResultBlock>)| {
        let param = format!("{param}[{i}]");
        if block.kind != "text" {
            return Err(unread(&param, &block.kind, "text"));
        }
        block.text.ok_or_else(|| ApiError::invalid(format!("{param}.text"), "is missing"))
    };
    blocks.into_iter().enumerate().map(text).collect()
}

/// The template has no mark for a call that failed; most tools say it themselves.
fn marked(text: String, is_error: bool) -> String {
    if !is_error || text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error")) {
        return text;
    }
    format!("Error: {text}")
}

fn check_blocks(param: &str, n: usize) -> Result<(), ApiError> {
    if n > PARTS_MAX {
        let problem = format!("has {n} blocks, but {PARTS_MAX} are allowed");
        return Err(ApiError::invalid(param, problem));
    }
    Ok(())
}

/// The refusal of a block that is not read here.
fn unread(param: &str, kind: &str, readable: &str) -> ApiError {
    match kind {
        "image" => {
            let problem = "is an image, but this server reads no images yet";
            ApiError::unsupported(param, problem)
        }
        "document" | "search_result" | "container_upload" => {
            let problem = format!("is of type `{kind}`, but this server reads text only");
            ApiError::unsupported(param, problem)
        }
        other => {
            let problem = format!("is `{}`, but must be {readable}", quoted(other));
            ApiError::invalid(format!("{param}.type"), problem)
        }
    }
}
