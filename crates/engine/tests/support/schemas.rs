//! Random JSON schemas, for tests of several crates.
#![allow(dead_code, reason = "each test file uses a part")]

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

/// A generator of schemas that somebody could mean.
pub(crate) struct Schemas(ChaCha8Rng);

impl Schemas {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n
    }

    pub(crate) fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        let n = u32::try_from(all.len()).expect("a short list");
        all[self.below(n) as usize]
    }

    pub(crate) fn root(&mut self) -> Value {
        let properties = self.object(3);
        let tree = json!({
            "type": "object",
            "properties": {
                "value": self.leaf(),
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
            },
            "required": ["value", "children"],
            "additionalProperties": false,
        });
        let mut root = if self.below(4) == 0 {
            json!({"type": "array", "items": properties, "maxItems": 3})
        } else {
            properties
        };
        root["$defs"] = json!({"leaf": self.leaf(), "tree": tree});
        root
    }

    pub(crate) fn schema(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 6 } else { 10 }) {
            0..=4 => self.leaf(),
            5 => json!({"$ref": self.one_of(&["#/$defs/leaf", "#/$defs/tree"])}),
            6 => {
                let (min, extra) = (self.below(3), self.below(3));
                json!({
                    "type": "array", "items": self.schema(depth - 1),
                    "minItems": min, "maxItems": min + extra,
                })
            }
            7 => json!({"anyOf": [self.schema(depth - 1), self.schema(depth - 1)]}),
            _ => self.object(depth - 1),
        }
    }

    pub(crate) fn object(&mut self, depth: u32) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let names = ["a", "name", "größe", "a b", "quote\"", "🌷", "null", "x/y", "back\\slash"];
        for _ in 0..=self.below(4) {
            let name = self.one_of(&names);
            properties.insert(name.to_owned(), self.schema(depth));
            if self.below(2) == 0 {
                required.push(name);
            }
        }
        required.sort_unstable();
        required.dedup();
        let mut object = json!({"type": "object", "properties": properties, "required": required});
        match self.below(6) {
            0 => {}
            1 => object["additionalProperties"] = self.leaf(),
            _ => object["additionalProperties"] = json!(false),
        }
        object
    }

    pub(crate) fn leaf(&mut self) -> Value {
        match self.below(12) {
            0 => json!({"type": "string"}),
            1 => {
                let (min, extra) = (self.below(4), self.below(5));
                json!({"type": "string", "minLength": min, "maxLength": min + extra})
            }
            2 => json!({"type": "string", "pattern": self.one_of(&[
                "^[a-z]{1,4}$", "^\\d{3}-\\d{4}$", "^[A-Z][a-z]+( [A-Z][a-z]+)?$", "é+x",
                "^(foo|bar)*$", "^[^a-z]{2}$", "^\\w+$",
            ])}),
            3 => json!({"enum": ["rot", "grün", "🌷", "a\"b", "new\nline"]}),
            4 => json!({"enum": [1, null, true, "x", {"a": [1]}]}),
            5 => json!({"const": self.one_of(&["fixed", "<b>", ""])}),
            6 => {
                let (min, extra) = (self.below(200), self.below(300));
                json!({"type": "integer", "minimum": i64::from(min) - 100, "maximum": min + extra})
            }
            7 => {
                json!({"type": "integer", "exclusiveMinimum": 3, "maximum": 9_000, "multipleOf": 7})
            }
            8 => json!({"type": "number", "minimum": -1.5, "maximum": 2.25}),
            9 => json!({"type": "string", "format": self.one_of(&["date", "uuid", "unheard-of"])}),
            10 => json!({"type": ["boolean", "null"]}),
            _ => json!({"type": "boolean"}),
        }
    }
}
