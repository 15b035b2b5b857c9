//! A call while it is written.

use super::Delta;
use super::schema::{ToolSchema, Types};
use super::value::Value;
use serde_json::{Map, Value as Json};

#[derive(Debug)]
pub(super) struct Call {
    pub(super) index: u32,
    /// Place of its tool among those of the request.
    tool: Option<usize>,
    /// What its schema names.
    properties: Vec<String>,
    /// Parameters so far; a name counts once.
    names: Vec<String>,
    /// Nothing but whitespace has come since its opening tag, so that all arguments may come as
    /// JSON.
    pub(super) is_fresh: bool,
    /// Whether any argument was written, and with it the opening brace.
    pub(super) has_arguments: bool,
}

impl Call {
    pub(super) fn new(index: u32, name: &str, tools: &[ToolSchema]) -> Self {
        let tool = tools.iter().position(|tool| tool.name == name);
        let properties = tool.map_or_else(Vec::new, |place| tools[place].property_names());
        Self { index, tool, properties, names: Vec::new(), is_fresh: true, has_arguments: false }
    }

    /// A parameter begins. A second value of the same name is dropped, since the first was
    /// already written.
    pub(super) fn start_value(&mut self, name: String, tools: &[ToolSchema]) -> Value {
        self.is_fresh = false;
        let is_new = !self.has(&name);
        let tool = self.tool.and_then(|place| tools.get(place));
        let types = tool.map_or_else(Types::default, |tool| tool.types(&name));
        if is_new {
            self.names.push(name.clone());
        }
        Value::new(name, types, is_new)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Whether a parameter of this name is to be expected.
    pub(super) fn lacks(&self, name: &str) -> bool {
        self.properties.iter().any(|known| known == name) && !self.has(name)
    }

    /// All arguments at once, as open JSON text.
    pub(super) fn write_object(&mut self, object: Map<String, Json>) -> String {
        self.is_fresh = false;
        self.names.extend(object.keys().cloned());
        if object.is_empty() {
            return String::new();
        }
        self.has_arguments = true;
        let mut json = Json::Object(object).to_string();
        json.pop();
        json
    }

    /// Closes the JSON text.
    pub(super) fn end(&self) -> [Delta; 2] {
        let json = if self.has_arguments { "}" } else { "{}" }.to_string();
        let index = self.index;
        [Delta::ToolCallArguments { index, json }, Delta::ToolCallEnd { index }]
    }
}
