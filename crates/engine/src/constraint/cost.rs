//! Which forms are too dear to compile. `llguidance` bounds most of its work by itself; here is what
//! it does not: recursion along references, patterns that apply to the same string, and
//! what it does with pairs of properties or of patterns for names.

use super::schema::depth;
use crate::limits::{
    PATTERN_PRODUCT_MAX, PATTERN_PROPERTIES_MAX, PROPERTY_PAIRS_MAX, REFERRED_LEVELS_MAX,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// What a schema asks for in total.
#[derive(Default)]
struct Cost<'a> {
    /// Weights of patterns.
    patterns: Vec<f64>,
    /// Places where two schemas apply to the same value.
    n_intersections: usize,
    n_pattern_properties: usize,
    /// The squares of the numbers of properties of each object, in total.
    n_property_pairs: usize,
    references: BTreeSet<&'a str>,
}

/// Keywords that never make two schemas of one.
const ALONE: [&str; 14] = [
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "readOnly",
    "writeOnly",
    "x-guidance",
];

/// # Errors
/// Says what a schema has too much of.
pub(super) fn check_schema(schema: &Value) -> Result<(), String> {
    let mut cost = Cost::default();
    cost.add_all(vec![schema]);
    let levels = |reference: &&str| {
        reference.strip_prefix('#').and_then(|path| schema.pointer(path)).map_or(0, depth)
    };
    if cost.references.iter().map(levels).sum::<usize>() > REFERRED_LEVELS_MAX {
        return Err("its definitions are nested too deep in total".to_owned());
    }
    if cost.n_pattern_properties > PATTERN_PROPERTIES_MAX {
        return Err(format!(
            "it has more than {PATTERN_PROPERTIES_MAX} patterns in `patternProperties`"
        ));
    }
    cost.check_properties()?;
    check_product(cost.patterns, cost.n_intersections + 1)
}

/// # Errors
/// Says that schemas which are compiled one after the other are too much together.
pub(super) fn check_together<'a>(schemas: impl Iterator<Item = &'a Value>) -> Result<(), String> {
    let mut cost = Cost::default();
    cost.add_all(schemas.collect());
    cost.check_properties()
}

/// # Errors
/// Says that a grammar combines too much with `&`.
pub(super) fn check_grammar(text: &str) -> Result<(), String> {
    let n = text.matches('&').count() + 1;
    check_product(vec![weight(text) / n as f64 + 2.0; n], n)
}

/// The derivatives of patterns that apply together are formed from all combinations of their
/// branches.
fn check_product(mut weights: Vec<f64>, n_together: usize) -> Result<(), String> {
    if n_together < 2 {
        return Ok(());
    }
    weights.sort_unstable_by(|a, b| b.total_cmp(a));
    let product: f64 = weights.iter().take(n_together).product();
    if product > PATTERN_PRODUCT_MAX {
        return Err("too many complex patterns could apply to the same text".to_owned());
    }
    Ok(())
}

/// Branches that a regular expression can have at one place, at most.
fn weight(pattern: &str) -> f64 {
    2.0 + pattern.matches(['|', '?', '*', '+', '{', '~']).count() as f64
}

impl<'a> Cost<'a> {
    fn add_all(&mut self, mut left: Vec<&'a Value>) {
        while let Some(value) = left.pop() {
            match value {
                Value::Array(list) => left.extend(list),
                Value::Object(map) => {
                    self.add(map);
                    left.extend(map.values());
                }
                _ => {}
            }
        }
    }

    fn check_properties(&self) -> Result<(), String> {
        if self.n_property_pairs > PROPERTY_PAIRS_MAX {
            return Err("there are too many properties in one object, or in all".to_owned());
        }
        Ok(())
    }

    fn add(&mut self, map: &'a serde_json::Map<String, Value>) {
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            self.patterns.push(weight(pattern));
        }
        if map.get("format").is_some_and(Value::is_string) {
            self.patterns.push(FORMAT_WEIGHT);
            self.n_intersections += usize::from(map.contains_key("pattern"));
        }
        if map.contains_key("multipleOf") {
            self.patterns.push(FORMAT_WEIGHT);
        }
        if let Some(properties) = map.get("properties").and_then(Value::as_object) {
            self.n_property_pairs += properties.len() * properties.len();
        }
        if let Some(patterns) = map.get("patternProperties").and_then(Value::as_object) {
            self.n_pattern_properties += patterns.len();
            self.patterns.extend(patterns.keys().map(|pattern| weight(pattern)));
            // Two at a time.
            self.n_intersections += usize::from(!patterns.is_empty());
        }
        let has_siblings = map.keys().any(|key| !ALONE.contains(&key.as_str()));
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            self.references.insert(reference);
            self.n_intersections += usize::from(has_siblings);
        }
        if let Some(all) = map.get("allOf").and_then(Value::as_array) {
            let is_alone = map.keys().all(|key| key == "allOf" || ALONE.contains(&key.as_str()));
            self.n_intersections += all.len() - usize::from(is_alone && !all.is_empty());
        }
        let is_union = map.contains_key("anyOf") || map.contains_key("oneOf");
        self.n_intersections += usize::from(is_union && map.contains_key("pattern"));
    }
}

/// Formats and multiples have about as many branches as a pattern with two operators.
const FORMAT_WEIGHT: f64 = 4.0;
