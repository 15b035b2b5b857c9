//! Types of parameters by the JSON schemas of the tools, and values converted by them.

use serde_json::Value;

/// A tool of the request, as far as the parser cares.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSchema {
    /// Name of the function.
    pub name: String,
    /// JSON schema of its arguments; anything else means that all arguments are strings.
    pub parameters: Value,
}

impl ToolSchema {
    /// From a tool definition in `OpenAI`'s form, with or without the outer
    /// `{"type": "function", "function": ...}`. `None` if it has no name.
    pub fn from_definition(tool: &Value) -> Option<Self> {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name")?.as_str()?.to_string();
        let parameters = function.get("parameters").cloned().unwrap_or_default();
        Some(Self { name, parameters })
    }

    pub(super) fn types(&self, parameter: &str) -> Types {
        let mut types = Types::default();
        let mut found = false;
        let (mut n_left, mut n_objects_left) = (PARTS_MAX, PARTS_MAX);
        self.each_object(&self.parameters, 0, &mut n_objects_left, &mut |schema| {
            if let Some(property) = schema.get("properties").and_then(|all| all.get(parameter)) {
                types.add(property, &self.parameters, 0, &mut n_left);
                found = true;
            }
        });
        if let Some(others) = self.parameters.get("additionalProperties").filter(|_| !found) {
            types.add(others, &self.parameters, 0, &mut n_left);
        }
        types
    }

    pub(super) fn property_names(&self) -> Vec<String> {
        let (mut names, mut n_left) = (Vec::new(), PARTS_MAX);
        self.each_object(&self.parameters, 0, &mut n_left, &mut |schema| {
            let properties = schema.get("properties").and_then(Value::as_object);
            names.extend(properties.into_iter().flat_map(|all| all.keys().cloned()));
        });
        names
    }

    /// The schema itself and those that it is made of.
    fn each_object<'s>(
        &'s self,
        schema: &'s Value,
        depth: usize,
        n_left: &mut usize,
        see: &mut dyn FnMut(&'s Value),
    ) {
        if depth > OBJECTS_DEPTH_MAX || *n_left == 0 {
            return;
        }
        *n_left -= 1;
        see(schema);
        for key in ["allOf", "anyOf", "oneOf"] {
            for part in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.each_object(part, depth + 1, n_left, see);
            }
        }
        if let Some(target) = reference(schema, &self.parameters) {
            self.each_object(target, depth + 1, n_left, see);
        }
    }
}

/// What a `$ref` within the same document points at.
fn reference<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// Types that a schema allows. None at all means that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each type of JSON")]
pub(super) struct Types {
    string: bool,
    number: bool,
    integer: bool,
    boolean: bool,
    object: bool,
    array: bool,
    null: bool,
}

/// References of schemas to others; more are a circle.
const REFERENCES_MAX: usize = 16;
/// Parts of the schema of all arguments within each other.
const OBJECTS_DEPTH_MAX: usize = 3;
/// Parts that are looked at for one parameter. Parts may be circular and branch, so their depth alone
/// bounds nothing.
const PARTS_MAX: usize = 1_024;

impl Types {
    /// Whether the text is the value whatever it says.
    pub(super) fn only_string(self) -> bool {
        self == Self::default() || self == Self { string: true, ..Self::default() }
    }

    fn add(&mut self, schema: &Value, root: &Value, depth: usize, n_left: &mut usize) {
        if depth > REFERENCES_MAX || *n_left == 0 {
            return;
        }
        *n_left -= 1;
        match schema.get("type") {
            Some(Value::String(name)) => self.add_name(name),
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).for_each(|name| self.add_name(name));
            }
            _ => self.add_untyped(schema, root, depth, n_left),
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            self.null = true;
        }
    }

    fn add_untyped(&mut self, schema: &Value, root: &Value, depth: usize, n_left: &mut usize) {
        for key in ["anyOf", "oneOf", "allOf"] {
            for option in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.add(option, root, depth + 1, n_left);
            }
        }
        if let Some(target) = reference(schema, root) {
            self.add(target, root, depth + 1, n_left);
        }
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        for value in listed.chain(schema.get("const")) {
            match value {
                Value::Null => self.null = true,
                Value::Bool(_) => self.boolean = true,
                Value::Number(_) => self.number = true,
                Value::String(_) => self.string = true,
                Value::Array(_) => self.array = true,
                Value::Object(_) => self.object = true,
            }
        }
        self.object |= schema.get("properties").is_some();
        self.array |= schema.get("items").is_some();
    }

    fn add_name(&mut self, name: &str) {
        match name {
            "string" => self.string = true,
            "number" => self.number = true,
            "integer" => self.integer = true,
            "boolean" => self.boolean = true,
            "object" => self.object = true,
            "array" => self.array = true,
            "null" => self.null = true,
            _ => {}
        }
    }

    /// The JSON text of a value: of the first type that fits, strings last. A value that fits no
    /// type stays a string, so that the caller sees what the model wrote.
    pub(super) fn convert(self, raw: &str) -> String {
        let text = raw.trim();
        if text == "null" && (self.null || !self.string) || text == "None" && self.null {
            return "null".to_string();
        }
        if self.boolean {
            for word in ["true", "false"] {
                if text.eq_ignore_ascii_case(word) {
                    return word.to_string();
                }
            }
        }
        let number = match (self.integer, self.number) {
            (false, false) => None,
            (true, false) => number(text).map(whole),
            (_, true) => number(text),
        };
        number.or_else(|| self.container(text)).unwrap_or_else(|| Value::from(raw).to_string())
    }

    fn container(self, text: &str) -> Option<String> {
        if !(self.object && text.starts_with('{') || self.array && text.starts_with('[')) {
            return None;
        }
        serde_json::from_str::<Value>(text).ok().map(|value| value.to_string())
    }
}

/// JSON text of a number. Whole numbers keep all their digits.
fn number(text: &str) -> Option<String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let digits = digits.trim_start_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        let sign = if text.starts_with('-') && digits != "0" { "-" } else { "" };
        return Some(format!("{sign}{digits}"));
    }
    // Words that Rust reads as numbers are not numbers of JSON.
    if !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if let Ok(value @ Value::Number(_)) = serde_json::from_str::<Value>(text) {
        return Some(value.to_string());
    }
    let number = serde_json::Number::from_f64(text.parse().ok()?)?;
    Some(number.to_string())
}

/// `3.0` as `3`, where whole numbers are asked for.
fn whole(number: String) -> String {
    match number.split_once('.') {
        Some((whole, fraction))
            if fraction.bytes().all(|byte| byte == b'0')
                && whole.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            if whole == "-0" {
                "0".to_string()
            } else {
                whole.to_string()
            }
        }
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "reads better")]
    fn check(schema: Value, raw: &str, expected: &str) {
        let parameters = json!({
            "type": "object",
            "properties": {"p": schema},
            "$defs": {"Age": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
        });
        let types = ToolSchema { name: "f".into(), parameters }.types("p");
        let converted =
            if types.only_string() { Value::from(raw).to_string() } else { types.convert(raw) };
        assert_eq!(converted, expected, "{raw}");
    }

    #[test]
    fn strings_stay_strings() {
        check(json!({"type": "string"}), "2", r#""2""#);
        check(json!({"type": "string"}), "true", r#""true""#);
        check(json!({"type": "string"}), "null", r#""null""#);
        check(json!({}), "[1]", r#""[1]""#);
        check(json!({"enum": ["1", "2"]}), "1", r#""1""#);
        check(json!({"$ref": "#/$defs/Loop"}), "1", r#""1""#);
        check(json!({"$ref": "#/$defs/Nowhere"}), "1", r#""1""#);
    }

    #[test]
    fn other_types_are_parsed() {
        check(json!({"type": "integer"}), " 007 ", "7");
        check(json!({"type": "integer"}), "-0", "0");
        check(json!({"type": "integer"}), "123456789012345678901234", "123456789012345678901234");
        check(json!({"type": "number"}), "1.5", "1.5");
        check(json!({"type": "number"}), "1e3", "1000.0");
        check(json!({"type": "number"}), ".5", "0.5");
        check(json!({"type": "number"}), "3", "3");
        check(json!({"type": "boolean"}), "True", "true");
        check(json!({"type": "boolean"}), "FALSE", "false");
        check(json!({"type": "array"}), "[1, 2]", "[1,2]");
        check(json!({"type": "object"}), "{\"b\": 1, \"a\": {}}", r#"{"b":1,"a":{}}"#);
        check(json!({"properties": {}}), "{}", "{}");
        check(json!({"$ref": "#/$defs/Age"}), "4", "4");
        check(json!({"type": "integer"}), "null", "null");
        check(json!({"type": "integer"}), "3.0", "3");
        check(json!({"type": "integer"}), "-0.0", "0");
        check(json!({"type": "integer"}), "1e3", "1000");
        check(json!({"type": "integer"}), "3.5", "3.5");
        check(json!({"type": ["integer", "number"]}), "3.0", "3.0");
    }

    #[test]
    fn what_does_not_fit_stays_a_string() {
        check(json!({"type": "integer"}), "four", r#""four""#);
        check(json!({"type": "number"}), "inf", r#""inf""#);
        check(json!({"type": "number"}), "nan", r#""nan""#);
        check(json!({"type": "number"}), "1e999", r#""1e999""#);
        check(json!({"type": "boolean"}), "yes", r#""yes""#);
        check(json!({"type": "array"}), "[1, 2", r#""[1, 2""#);
        check(json!({"type": "array"}), "{}", r#""{}""#);
    }

    #[test]
    fn unions_try_strings_last() {
        let either = json!({"anyOf": [{"type": "string"}, {"type": "integer"}]});
        check(either.clone(), "4", "4");
        check(either.clone(), "x", r#""x""#);
        check(either, "null", r#""null""#);
        check(json!({"type": ["string", "null"]}), "null", "null");
        check(json!({"type": ["string", "null"]}), "nil", r#""nil""#);
        check(json!({"type": "string", "nullable": true}), "null", "null");
        check(json!({"enum": [1, "a"]}), "1", "1");
    }

    /// Each part refers to both again: 2^16 and 1,000^3 steps without a bound.
    #[test]
    fn circles_that_branch_end() {
        let circle = json!({"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]});
        let wide: Vec<_> = (0..1_000).map(|_| json!({"$ref": "#"})).collect();
        for parameters in [
            json!({"properties": {"p": {"$ref": "#/$defs/A"}}, "$defs": {"A": circle}}),
            json!({"properties": {"p": {"type": "integer"}}, "anyOf": wide}),
        ] {
            let tool = ToolSchema { name: "f".to_owned(), parameters };
            let start = std::time::Instant::now();
            let _ = (tool.types("p"), tool.property_names());
            assert!(start.elapsed().as_secs() < 2, "{:?}", start.elapsed());
        }
    }
}
