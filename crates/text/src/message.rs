//! A conversation as templates see it, typed. The server maps JSON to it.

use serde_json::{Map, Value, json};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions; the first turn or none.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a call.
    Tool,
}

impl Role {
    /// The word of the wire format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A piece of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A place for an image; the pixels travel apart.
    Image,
    /// A place for a video; the frames travel apart.
    Video,
}

/// What a turn says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Words only.
    Text(String),
    /// Words mixed with images and videos.
    Parts(Vec<Part>),
}

/// A call that the model made in an earlier turn.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The id that its result names; templates link by order.
    pub id: Option<String>,
    /// Name of the function.
    pub name: String,
    /// Its arguments in the order written.
    pub arguments: Map<String, Value>,
}

/// One turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content,
    /// What the model thought before it (assistant only).
    pub reasoning: Option<String>,
    /// Calls made after it (assistant only).
    pub tool_calls: Vec<ToolCall>,
    /// The call that this is the result of (tool only).
    pub tool_call_id: Option<String>,
    /// Name of the speaker or the function.
    pub name: Option<String>,
}

impl Message {
    /// A turn of words only.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: Content::Text(text.into()),
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }

    /// The form that templates are written for: `OpenAI`'s, with `reasoning_content` and with
    /// arguments as an object. What is absent has no key.
    pub(crate) fn to_value(&self) -> Value {
        let mut turn = Map::new();
        turn.insert("role".into(), self.role.as_str().into());
        turn.insert("content".into(), self.content.to_value());
        if let Some(reasoning) = &self.reasoning {
            turn.insert("reasoning_content".into(), reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(ToolCall::to_value).collect();
            turn.insert("tool_calls".into(), Value::Array(calls));
        }
        if let Some(id) = &self.tool_call_id {
            turn.insert("tool_call_id".into(), id.as_str().into());
        }
        if let Some(name) = &self.name {
            turn.insert("name".into(), name.as_str().into());
        }
        Value::Object(turn)
    }
}

impl Content {
    fn to_value(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Parts(parts) => parts
                .iter()
                .map(|part| match part {
                    Part::Text(text) => json!({"type": "text", "text": text}),
                    Part::Image => json!({"type": "image"}),
                    Part::Video => json!({"type": "video"}),
                })
                .collect(),
        }
    }
}

impl ToolCall {
    fn to_value(&self) -> Value {
        let mut call = Map::new();
        if let Some(id) = &self.id {
            call.insert("id".into(), id.as_str().into());
        }
        call.insert("type".into(), "function".into());
        let arguments = Value::Object(self.arguments.clone());
        call.insert("function".into(), json!({"name": self.name, "arguments": arguments}));
        Value::Object(call)
    }
}

/// How a conversation is rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderOptions {
    /// End with the start of the answer.
    pub add_generation_prompt: bool,
    /// Whether the answer starts with reasoning; `None` leaves it to the template.
    pub enable_thinking: Option<bool>,
    /// Further variables of the template (`chat_template_kwargs`), such as `preserve_thinking`.
    /// They cannot replace the variables above.
    pub extra: Map<String, Value>,
}

impl RenderOptions {
    /// What a server needs for an answer: the generation prompt, and the template's own defaults.
    pub fn for_answer() -> Self {
        Self { add_generation_prompt: true, enable_thinking: None, extra: Map::new() }
    }
}
