//! JSON as values of a template: objects behave as Python's `dict`.

use super::methods;
use minijinja::value::{Enumerator, Object, Value};
use minijinja::{Error, State};
use serde_json::{Map, Number, Value as Json};
use std::sync::Arc;

/// The variables of a template.
pub(super) fn from_variables(variables: &Map<String, Json>) -> Value {
    Value::from_pairs(variables.iter().map(|(name, value)| (name.as_str(), from_json(value))))
}

fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => from_number(n),
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(list) => Value::from(list.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_object(Dict::new(map)),
    }
}

fn from_number(n: &Number) -> Value {
    match (n.as_i64(), n.as_u64(), n.as_f64()) {
        (Some(i), _, _) => Value::from(i),
        (None, Some(u), _) => Value::from(u),
        (None, None, f) => Value::from(f.unwrap_or(f64::NAN)),
    }
}

/// A JSON object. Its methods win over its keys: `x.items()` works for an object that has a key
/// `items`, which JSON schemas do.
#[derive(Debug)]
struct Dict {
    entries: Map<String, Json>,
    /// Converted once: templates look the same turns up again and again.
    values: Vec<Value>,
    keys: Vec<Value>,
}

impl Dict {
    fn new(map: &Map<String, Json>) -> Self {
        // Only the places of the keys are needed.
        let entries = map.keys().enumerate().map(|(i, k)| (k.clone(), Json::from(i))).collect();
        Self {
            entries,
            values: map.values().map(from_json).collect(),
            keys: map.keys().map(|k| Value::from(k.as_str())).collect(),
        }
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let place = usize::try_from(self.entries.get(key)?.as_u64()?).ok()?;
        self.values.get(place).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.keys.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.keys.len())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        methods::call(state, &Value::from_dyn_object(self.clone()), method, args)
    }
}
