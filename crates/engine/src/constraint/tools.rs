//! The grammar of tool calls, in the model's own format (see the parser in `lily-text`):
//!
//! ```text
//! <tool_call>
//! <function=NAME>
//! <parameter=KEY>
//! VALUE
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! Parameters come in the order of the schema. A value that can be a string is free text up to its
//! closing tag: to constrain it would damage the contents of files. Strings that are listed are
//! alternatives. All other values are JSON of their schema.

use super::cost::check_together;
use super::schema::{Strictness, depth};
use crate::limits::{CONSTRAINT_BYTES_MAX, SCHEMA_DEPTH_MAX};
use crate::{SubmitError, ToolChoice, ToolRule};
use serde_json::Value;
use std::fmt::Write;

/// Rules named `calls` and `text_or_calls`.
#[derive(Debug)]
pub(super) struct ToolGrammar {
    pub(super) rules: String,
    /// The answer has at least one call and nothing else.
    pub(super) is_required: bool,
}

/// A tool as far as the grammar cares.
struct Tool<'a> {
    name: &'a str,
    schema: &'a Value,
    is_strict: bool,
}

/// References to references; more are a circle. The parser has the same bound.
const REFERENCES_MAX: usize = 16;

/// What a parameter may be called beyond those of the schema: such names need no escapes.
const OTHER_NAME: &str = "[A-Za-z0-9_.$-]{1,64}";

impl ToolGrammar {
    /// `None` if no grammar rules the calls.
    ///
    /// # Errors
    /// [`SubmitError::Constraint`] about `tools`.
    pub(super) fn new(
        tools: &[Value],
        rule: &ToolRule,
        has_constraint: bool,
    ) -> Result<Option<Self>, SubmitError> {
        let offered: Vec<Tool<'_>> = tools.iter().filter_map(Tool::new).collect();
        let fail = |problem| SubmitError::Constraint { field: "tools", problem };
        let chosen: Vec<&Tool<'_>> = match &rule.choice {
            ToolChoice::Named(names) => {
                let find = |name: &String| {
                    let found = offered.iter().find(|tool| tool.name == name);
                    found.ok_or_else(|| fail(format!("no tool named `{name}` is offered")))
                };
                names.iter().map(find).collect::<Result<_, _>>()?
            }
            ToolChoice::Required => offered.iter().collect(),
            ToolChoice::Auto => {
                let is_ruled = has_constraint || offered.iter().any(|tool| tool.is_strict);
                if !is_ruled || offered.is_empty() {
                    return Ok(None);
                }
                offered.iter().collect()
            }
        };
        if chosen.is_empty() {
            return Err(fail("a call is required, but no tool is offered".to_owned()));
        }
        let rules = rules(&chosen, rule.single_call).map_err(fail)?;
        Ok(Some(Self { rules, is_required: rule.choice != ToolChoice::Auto }))
    }
}

fn rules(tools: &[&Tool<'_>], single_call: bool) -> Result<String, String> {
    let mut rules = String::new();
    let mut bodies = Vec::new();
    check_together(tools.iter().map(|tool| tool.schema))?;
    for (i, tool) in tools.iter().enumerate() {
        if tools[..i].iter().any(|other| other.name == tool.name) {
            continue;
        }
        if depth(tool.schema) > SCHEMA_DEPTH_MAX {
            return Err(format!(
                "the schema of `{}` is nested more than {SCHEMA_DEPTH_MAX} levels deep",
                tool.name
            ));
        }
        tool.write(i, &mut rules)?;
        bodies.push(format!("f{i}"));
        check_len(&rules)?;
    }
    let bare: Vec<String> =
        tools.iter().map(|tool| regex_literal(&format!("<function={}>", tool.name))).collect();
    let more = if single_call { "" } else { " (\"\\n\" call)*" };
    let open = quoted("<tool_call>");
    let close = quoted("\n</tool_call>");
    // The parser also takes a function without `<tool_call>` around it, so free text has neither.
    let _ = write!(
        rules,
        r#"calls: call{more}
call: {open} body
body: "\n" ({bodies}) {close}
text_or_calls: TEXT? | opening body{more}
opening[suffix={open}]: BEFORE_CALL
TEXT: BEFORE_CALL & ~/(?s:.*)<tool_call>(?s:.*)/
BEFORE_CALL: /(?s:.*)/ & ~/(?s:.*)({bare})(?s:.*)/
free[lazy]: /\n<\/parameter>\n|\n(?s:.*)\n<\/parameter>\n/
"#,
        bodies = bodies.join(" | "),
        bare = bare.join("|"),
    );
    Ok(rules)
}

fn check_len(rules: &str) -> Result<(), String> {
    if rules.len() <= CONSTRAINT_BYTES_MAX {
        return Ok(());
    }
    Err(format!("their schemas make a grammar of more than {CONSTRAINT_BYTES_MAX} bytes"))
}

impl<'a> Tool<'a> {
    fn new(definition: &'a Value) -> Option<Self> {
        let function = definition.get("function").unwrap_or(definition);
        Some(Self {
            name: function.get("name")?.as_str()?,
            schema: function.get("parameters").unwrap_or(&Value::Null),
            is_strict: function.get("strict") == Some(&Value::Bool(true)),
        })
    }

    /// Writes the rule `f{i}` and those of its parameters.
    fn write(&self, i: usize, rules: &mut String) -> Result<(), String> {
        writable("tool", self.name)?;
        let schema = resolve(self.schema, self.schema, 0);
        let properties = schema.get("properties").and_then(Value::as_object);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let other = schema.get("additionalProperties");
        let is_closed = self.is_strict || other == Some(&Value::Bool(false));
        let anything = Value::Bool(true);
        let known = properties.into_iter().flatten().map(|(name, value)| (name.as_str(), value));
        let unlisted = required
            .iter()
            .filter(|name| !properties.is_some_and(|all| all.contains_key(**name)))
            .map(|name| (*name, other.unwrap_or(&anything)));
        let mut names = Vec::new();
        let mut parts = Vec::new();
        for (n, (name, value)) in known.chain(unlisted).enumerate() {
            if names.contains(&name) {
                continue;
            }
            let is_required = required.contains(&name);
            names.push(name);
            if *value == Value::Bool(false) {
                if is_required {
                    return Err(self.problem(name, "is required but nothing is allowed for it"));
                }
                continue;
            }
            writable("parameter", name)?;
            let tag = quoted(&format!("<parameter={name}>"));
            let text = self.value(name, value)?;
            let _ = writeln!(rules, "f{i}_p{n}: {tag} {text}");
            check_len(rules)?;
            parts.push(format!("f{i}_p{n}{}", if is_required { "" } else { "?" }));
        }
        if !is_closed {
            let tags: Vec<String> = names.iter().map(|name| regex_literal(name)).collect();
            let exclude = if tags.is_empty() {
                String::new()
            } else {
                format!(" & ~/<parameter=({})>/", tags.join("|"))
            };
            let value = other.filter(|other| other.is_object()).unwrap_or(&anything);
            let text = self.value("additionalProperties", value)?;
            let _ = writeln!(rules, "F{i}_OTHER: /<parameter={OTHER_NAME}>/{exclude}");
            let _ = writeln!(rules, "f{i}_other: F{i}_OTHER {text}");
            parts.push(format!("f{i}_other*"));
        }
        let open = quoted(&format!("<function={}>\n", self.name));
        let _ = writeln!(rules, "f{i}: {open} {} {}", parts.join(" "), quoted("</function>"));
        Ok(())
    }

    /// What follows `<parameter=NAME>`, the closing tag included.
    fn value(&self, name: &str, schema: &Value) -> Result<String, String> {
        let mut types = Types::default();
        types.add(schema, self.schema, &mut Steps::default());
        let close = quoted("\n</parameter>\n");
        if types.string || !types.other {
            let mut listed = Vec::new();
            let is_list = list(schema, self.schema, &mut Steps::default(), &mut listed);
            let fits = |text: &String| !text.contains("</") && !text.contains("<parameter=");
            if is_list && !listed.is_empty() && listed.iter().all(fits) {
                let alternatives: Vec<String> = listed
                    .iter()
                    .map(|text| quoted(&format!("\n{text}\n</parameter>\n")))
                    .collect();
                return Ok(format!("({})", alternatives.join(" | ")));
            }
            return Ok("free".to_owned());
        }
        let strictness = if self.is_strict { Strictness::Exact } else { Strictness::Lenient };
        let schema = strictness
            .prepare(schema, self.schema)
            .map_err(|problem| self.problem(name, &problem))?;
        Ok(format!("\"\\n\" %json {schema} {close}"))
    }

    fn problem(&self, name: &str, problem: &str) -> String {
        format!("parameter `{name}` of `{}`: {problem}", self.name)
    }
}

/// Schemas that may still be looked at: unions of references to unions grow without end.
struct Steps(usize);

impl Default for Steps {
    fn default() -> Self {
        Self(1_000)
    }
}

impl Steps {
    fn take(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// Types of a value as the parser sees them, which decides by them what a text means.
#[derive(Default)]
struct Types {
    string: bool,
    other: bool,
}

impl Types {
    fn add(&mut self, schema: &Value, root: &Value, steps: &mut Steps) {
        if !steps.take() {
            return;
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.add_name(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| self.add_name(name));
            }
            _ => {
                for key in ["anyOf", "oneOf", "allOf"] {
                    for option in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                        self.add(option, root, steps);
                    }
                }
                if let Some(target) = target(schema, root) {
                    self.add(target, root, steps);
                }
                let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
                for value in listed.chain(schema.get("const")) {
                    let is_string = value.is_string();
                    self.string |= is_string;
                    self.other |= !is_string;
                }
                self.other |= schema.get("properties").is_some() || schema.get("items").is_some();
            }
        }
        self.other |= schema.get("nullable") == Some(&Value::Bool(true));
    }

    fn add_name(&mut self, name: &str) {
        match name {
            "string" => self.string = true,
            "number" | "integer" | "boolean" | "object" | "array" | "null" => self.other = true,
            _ => {}
        }
    }
}

/// Adds all values as the model writes them; `false` if they are not listed.
fn list(schema: &Value, root: &Value, steps: &mut Steps, values: &mut Vec<String>) -> bool {
    if !steps.take() {
        return false;
    }
    let mut add = |value: &Value| {
        values.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    };
    if let Some(value) = schema.get("const") {
        add(value);
        return true;
    }
    if let Some(listed) = schema.get("enum").and_then(Value::as_array) {
        listed.iter().for_each(add);
        return true;
    }
    if schema.get("type").and_then(Value::as_str) == Some("null") {
        add(&Value::Null);
        return true;
    }
    if let Some(target) = target(schema, root) {
        return list(target, root, steps, values);
    }
    let options = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    options.is_some_and(|options| options.iter().all(|option| list(option, root, steps, values)))
}

/// What a schema refers to inside its document.
fn target<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// The schema at the end of references.
fn resolve<'a>(schema: &'a Value, root: &'a Value, n_references: usize) -> &'a Value {
    match target(schema, root) {
        Some(target) if n_references < REFERENCES_MAX => resolve(target, root, n_references + 1),
        _ => schema,
    }
}

/// Whether the format has a way to write the name.
fn writable(kind: &str, name: &str) -> Result<(), String> {
    let is_writable = !name.is_empty()
        && name.trim() == name
        && name.len() <= 256
        && !name.contains(['<', '>', '\n']);
    if is_writable {
        return Ok(());
    }
    let mut shown = name.to_owned();
    shown.truncate(shown.floor_char_boundary(64));
    Err(format!(
        "the {kind} name `{shown}` cannot be written: names have 1 to 256 bytes, no angle brackets \
         and no white space at the ends"
    ))
}

/// A literal of Lark.
fn quoted(text: &str) -> String {
    // The one control character that JSON does not escape.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A literal inside a regular expression between slashes.
fn regex_literal(text: &str) -> String {
    let mut literal = String::new();
    for c in text.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() || c.is_control() {
            let _ = write!(literal, "\\x{{{:x}}}", u32::from(c));
        } else {
            literal.push(c);
        }
    }
    literal
}
