//! What the model may call. It knows functions with flat names; the API has namespaces of
//! functions, custom tools that take a text, and tools that run at the vendor.

use super::custom;
use super::wire::Fields;
use crate::chat::choice;
use crate::error::{ApiError, quoted};
use crate::json::{check_depth, wrong_type};
use crate::limits::TOOLS_MAX;
use crate::tools::{Choice, check_name};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Tools that run at the vendor or that only its models know. Agents offer them whatever the
/// server is, so they are left out of the offer and of the response's `tools`.
const NOT_SERVED: [&str; 17] = [
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "x_search",
];

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// In the form of the template.
    pub(super) functions: Vec<Value>,
    /// In the client's own form.
    pub(super) served: Vec<Fields>,
    pub(super) names: Names,
}

/// The names that the model knows, and what the client calls the same.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, Tool>);

/// A tool as the client knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// It takes a text instead of arguments.
    pub(super) is_custom: bool,
}

impl Names {
    /// What the client calls a tool that the model calls by this name, which may be none.
    pub(super) fn tool(&self, flat: String) -> Tool {
        let unknown = |name| Tool { name, ..Tool::default() };
        self.0.get(&flat).cloned().unwrap_or_else(|| unknown(flat))
    }

    /// The names of the tools that the client calls so.
    fn flat_names(&self, namespace: Option<&str>, name: &str) -> Vec<String> {
        let flat = flat_name(namespace, name);
        if self.0.contains_key(&flat) {
            return vec![flat];
        }
        let same = |tool: &Tool| tool.name == name && namespace.is_none();
        let mut names: Vec<_> =
            self.0.iter().filter(|(_, tool)| same(tool)).map(|(flat, _)| flat.clone()).collect();
        if names.len() != 1 {
            names = vec![flat];
        }
        names
    }

    fn of_namespace(&self, namespace: &str) -> Vec<String> {
        let inside = |tool: &Tool| tool.namespace.as_deref() == Some(namespace);
        let names = self.0.iter().filter(|(_, tool)| inside(tool)).map(|(flat, _)| flat.clone());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }
}

/// The name by which the model knows a tool.
pub(super) fn flat_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) if namespace.ends_with("__") => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

/// Checks the tools and brings them into the form of the template.
///
/// # Errors
/// 400 with the path of what is wrong or unknown.
pub(super) fn offer(tools: Vec<Fields>) -> Result<Offer, ApiError> {
    let mut offer = Offer::default();
    let mut left_out = Vec::new();
    for (i, tool) in tools.into_iter().enumerate() {
        let param = format!("tools[{i}]");
        let kind = required(&param, &tool, "type")?;
        match kind {
            "function" | "custom" => offer.add(&param, &tool, None)?,
            "namespace" => offer.add_namespace(&param, &tool)?,
            kind if NOT_SERVED.contains(&kind) => {
                left_out.push(kind.to_owned());
                continue;
            }
            other => {
                let problem = format!(
                    "is `{}`; this server offers `function`, `custom` and `namespace`",
                    quoted(other)
                );
                return Err(ApiError::unsupported(format!("{param}.type"), problem));
            }
        }
        offer.served.push(tool);
    }
    if !left_out.is_empty() {
        tracing::info!(tools = ?left_out, "tools that are not served are left out");
    }
    Ok(offer)
}

impl Offer {
    fn add(
        &mut self,
        param: &str,
        tool: &Fields,
        group: Option<(&str, &str)>,
    ) -> Result<(), ApiError> {
        if self.functions.len() == TOOLS_MAX {
            let problem = format!("has more than the {TOOLS_MAX} functions that are allowed");
            return Err(ApiError::invalid("tools", problem));
        }
        let name = required(param, tool, "name")?;
        let is_custom = tool.get("type").is_some_and(|kind| kind == "custom");
        let parameters = if is_custom {
            Some(custom_parameters(param, tool)?)
        } else {
            object(param, tool, "parameters")?.cloned().map(Value::Object)
        };
        let mut description = text(param, tool, "description")?.unwrap_or_default().to_owned();
        let namespace = group.map(|(namespace, _)| namespace);
        if let Some((_, about)) = group
            && !about.is_empty()
        {
            description = format!("{about}\n\n{description}");
        }
        let flat = flat_name(namespace, name);
        check_name(&format!("{param}.name"), &flat)?;
        let known =
            Tool { namespace: namespace.map(str::to_owned), name: name.to_owned(), is_custom };
        if self.names.0.insert(flat.clone(), known).is_some() {
            let problem = format!("is `{}`, as that of another tool", quoted(&flat));
            return Err(ApiError::invalid(format!("{param}.name"), problem));
        }
        let mut function = Fields::new();
        function.insert("name".to_owned(), flat.into());
        if !description.is_empty() {
            function.insert("description".to_owned(), description.trim_end().into());
        }
        if let Some(parameters) = parameters {
            function.insert("parameters".to_owned(), parameters);
        }
        if let Some(strict @ Value::Bool(true)) = tool.get("strict") {
            function.insert("strict".to_owned(), strict.clone());
        }
        self.functions.push(json!({"type": "function", "function": function}));
        Ok(())
    }

    /// What is said about all functions of a namespace is said with the first of them.
    fn add_namespace(&mut self, param: &str, tool: &Fields) -> Result<(), ApiError> {
        let namespace = required(param, tool, "name")?;
        let mut about = text(param, tool, "description")?.unwrap_or_default();
        let nested = match tool.get("tools") {
            Some(Value::Array(nested)) => nested,
            None | Some(Value::Null) => {
                return Err(ApiError::invalid(format!("{param}.tools"), "is missing"));
            }
            Some(other) => return Err(wrong_type(&format!("{param}.tools"), other, "an array")),
        };
        for (i, tool) in nested.iter().enumerate() {
            let param = format!("{param}.tools[{i}]");
            let Value::Object(tool) = tool else {
                return Err(wrong_type(&param, tool, "an object"));
            };
            match required(&param, tool, "type")? {
                "function" | "custom" => self.add(&param, tool, Some((namespace, about)))?,
                other => {
                    let problem =
                        format!("is `{}`; a namespace has `function` and `custom`", quoted(other));
                    return Err(ApiError::unsupported(format!("{param}.type"), problem));
                }
            }
            about = "";
        }
        Ok(())
    }
}

/// A text and, for the model to follow, its grammar: that is shown, but not enforced.
fn custom_parameters(param: &str, tool: &Fields) -> Result<Value, ApiError> {
    let mut about = "The text that the tool takes, as it is.".to_owned();
    if let Some(format) = object(param, tool, "format")? {
        let param = format!("{param}.format");
        match required(&param, format, "type")? {
            "text" => {}
            "grammar" => {
                let syntax = required(&param, format, "syntax")?;
                let definition = required(&param, format, "definition")?;
                about =
                    format!("{about} It follows this {} grammar:\n{definition}", quoted(syntax));
            }
            other => {
                let problem = format!("is `{}`, but must be text or grammar", quoted(other));
                return Err(ApiError::invalid(format!("{param}.type"), problem));
            }
        }
    }
    Ok(json!({
        "type": "object",
        "properties": {custom::PARAMETER: {"type": "string", "description": about}},
        "required": [custom::PARAMETER],
    }))
}

/// What `tool_choice` says, by the names that the model knows.
///
/// # Errors
/// 400 for what is no choice, and for tools that are not served.
pub(super) fn choose(value: Option<&Value>, names: &Names) -> Result<Choice, ApiError> {
    const PARAM: &str = "tool_choice";
    let Some(Value::Object(fields)) = value else { return choice::choice(value) };
    if fields.get("type").is_some_and(|kind| kind == "allowed_tools") {
        let mut allowed = fields.clone();
        if let Some(Value::Array(tools)) = allowed.get_mut("tools") {
            let mut known = Vec::new();
            for (i, tool) in tools.iter().enumerate() {
                known.extend(by_flat_names(&format!("{PARAM}.tools[{i}]"), tool, names)?);
            }
            *tools = known;
        }
        return choice::choice(Some(&Value::Object(allowed)));
    }
    match by_flat_names(PARAM, &Value::Object(fields.clone()), names)?.as_slice() {
        [one] => choice::choice(Some(one)),
        several => {
            let named = several.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned));
            Ok(Choice::Named(named.collect()))
        }
    }
}

/// A tool in a choice, in the words of chat completions; a namespace is all that is in it.
fn by_flat_names(param: &str, tool: &Value, names: &Names) -> Result<Vec<Value>, ApiError> {
    let name = tool["name"].as_str();
    let flat = match (tool["type"].as_str(), name) {
        (Some("function" | "custom"), Some(name)) => {
            names.flat_names(tool["namespace"].as_str(), name)
        }
        (Some("custom"), None) => {
            return Err(ApiError::invalid(format!("{param}.name"), "is missing"));
        }
        (Some("namespace"), Some(name)) => {
            let inside = names.of_namespace(name);
            if inside.is_empty() {
                let problem = format!("names `{}`, which is not among `tools`", quoted(name));
                return Err(ApiError::invalid(param, problem));
            }
            inside
        }
        (Some(kind), _) if NOT_SERVED.contains(&kind) => {
            let problem = format!("names `{kind}`, which this server does not serve");
            return Err(ApiError::unsupported(param, problem));
        }
        _ => return Ok(vec![tool.clone()]),
    };
    Ok(flat.into_iter().map(|name| json!({"type": "function", "name": name})).collect())
}

fn required<'a>(param: &str, fields: &'a Fields, name: &str) -> Result<&'a str, ApiError> {
    text(param, fields, name)?
        .ok_or_else(|| ApiError::invalid(format!("{param}.{name}"), "is missing"))
}

/// A text field; `None` if it is absent.
pub(super) fn text<'a>(
    param: &str,
    fields: &'a Fields,
    name: &str,
) -> Result<Option<&'a str>, ApiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(&format!("{param}.{name}"), other, "a string")),
    }
}

fn object<'a>(param: &str, fields: &'a Fields, name: &str) -> Result<Option<&'a Fields>, ApiError> {
    let param = format!("{param}.{name}");
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value @ Value::Object(object)) => check_depth(&param, value).map(|()| Some(object)),
        Some(other) => Err(wrong_type(&param, other, "an object")),
    }
}
