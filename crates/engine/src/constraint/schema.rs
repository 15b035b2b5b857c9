//! JSON schemas on their way to `llguidance`: bounded, without what says nothing about the text,
//! and with the way in which this engine writes JSON.

use super::cost::check_schema;
use crate::limits::{CONSTRAINT_BYTES_MAX, SCHEMA_DEPTH_MAX};
use serde_json::{Map, Value, json};

/// What happens to keywords that cannot be enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// They are an error that names them.
    Exact,
    /// They are ignored: the schema of a tool that does not ask to be taken strictly.
    Lenient,
}

/// Formats that `llguidance` knows; others are annotations.
const FORMATS: [&str; 11] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "unknown",
];

/// Keywords that say nothing about which values are valid, beyond those that `llguidance` ignores.
const ANNOTATIONS: [&str; 3] = ["deprecated", "contentSchema", "$vocabulary"];

impl Strictness {
    /// A schema for the compiler. It can refer to the definitions of `root`, of which it is a part;
    /// a schema that stands alone has no root.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn prepare(self, schema: &Value, root: &Value) -> Result<Value, String> {
        let fail = |problem: &str| Err(problem.to_owned());
        if depth(schema).max(depth(root)) > SCHEMA_DEPTH_MAX {
            return Err(format!("it is nested more than {SCHEMA_DEPTH_MAX} levels deep"));
        }
        let mut map = match schema {
            Value::Object(map) => map.clone(),
            Value::Bool(true) => Map::new(),
            Value::Bool(false) => return fail("`false` allows no value"),
            _ => return fail("a schema is an object or a boolean"),
        };
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = root.get(key).filter(|_| !map.contains_key(key)) {
                map.insert(key.to_owned(), definitions.clone());
            }
        }
        // Relates to nothing when the schema is part of another document.
        map.remove("$schema");
        let mut cleaned = Value::Object(map);
        clean(&mut cleaned);
        let bytes = cleaned.to_string().len();
        if bytes > CONSTRAINT_BYTES_MAX {
            return Err(format!(
                "it has {bytes} bytes, but at most {CONSTRAINT_BYTES_MAX} are taken"
            ));
        }
        check_schema(&cleaned)?;
        if let Value::Object(map) = &mut cleaned {
            map.insert("x-guidance".to_owned(), self.options());
        }
        Ok(cleaned)
    }

    /// On one line, because white space between values can go on for ever and indentation is not
    /// worth its tokens. A space after `:` and `,` is left to the model: it has read JSON of Python
    /// (with it) and of JavaScript (without), and its tokens `":` and `":"` are both common; forcing
    /// one would force what it finds unlikely.
    ///
    /// Without escapes by code point, with which a key could be written twice. The model writes characters as they
    /// are.
    ///
    /// `oneOf` counts as `anyOf`: whether options exclude each other cannot be told where they are
    /// references, and in practice they do.
    fn options(self) -> Value {
        json!({
            "item_separator": ", ?",
            "key_separator": ": ?",
            "whitespace_flexible": false,
            "coerce_one_of": true,
            "json_allowed_escapes": "nrbtf\\\"",
            "lenient": self == Self::Lenient,
        })
    }
}

/// Levels of a value, counted without recursion.
pub(super) fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut left = vec![(value, 1)];
    while let Some((value, depth)) = left.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(list) => left.extend(list.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => left.extend(map.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// Drops annotations wherever there is a schema; names of properties are no keywords.
fn clean(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    if !map.contains_key("anyOf")
        && let Some(options) = map.remove("oneOf")
    {
        map.insert("anyOf".to_owned(), options);
    }
    map.retain(|key, value| match key.as_str() {
        "format" => value.as_str().is_some_and(|format| FORMATS.contains(&format)),
        // Options of the compiler, which are not the client's.
        "x-guidance" => false,
        key => !ANNOTATIONS.contains(&key),
    });
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(schemas),
            ) => schemas.values_mut().for_each(clean),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(clean);
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => clean(schema),
            _ => {}
        }
    }
}
