//! JSON as all dialects read it: objects that are objects, lists that may be one, bounded depth.

use crate::error::ApiError;
use crate::limits::JSON_DEPTH_MAX;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A JSON object, where serde's derived types would take an array as well.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

/// A string or a list of strings.
#[derive(Debug)]
pub(crate) enum OneOrMany {
    /// A string.
    One(String),
    /// A list.
    Many(Vec<String>),
}

/// A string or a list of objects, as the content of turns is written in every dialect.
#[derive(Debug)]
pub(crate) enum TextOr<T> {
    /// A string.
    Text(String),
    /// A list of parts.
    Parts(Vec<Object<T>>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor;
        impl<'de> Visitor<'de> for OneOrManyVisitor {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of strings")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany::Many)
            }
        }
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of parts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(parts)).map(TextOr::Parts)
            }
        }
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Object<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = json_schema!({"type": "string", "minLength": 1});
        json_schema!({"anyOf": [text, {"type": "array", "items": text}]})
    }
}

impl<T: JsonSchema> JsonSchema for TextOr<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("TextOr{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let part = generator.subschema_for::<T>();
        json_schema!({"anyOf": [{"type": "string"}, {"type": "array", "items": part}]})
    }
}

/// Refuses values nested deeper than templates and parsers below should have to follow.
pub(crate) fn check_depth(param: &str, value: &Value) -> Result<(), ApiError> {
    if depth(value) > JSON_DEPTH_MAX {
        return Err(ApiError::invalid(
            param,
            format!("is nested deeper than {JSON_DEPTH_MAX} levels"),
        ));
    }
    Ok(())
}

/// Recursion is safe: the parser stops at 128 levels.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// What a JSON value is, for a message.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The refusal of a field of another type than expected.
pub(crate) fn wrong_type(param: &str, found: &Value, expected: &str) -> ApiError {
    let problem = format!("has a wrong type: {}, expected {expected}", kind_of(found));
    ApiError::invalid(param, problem)
}
