//! Filters that answer as those of Jinja in Python.
#![allow(clippy::needless_pass_by_value, reason = "the engine passes arguments by value")]

use super::json::{self, Layout};
use super::methods;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| json::text(value));
    env.add_filter("trim", |value: &Value, chars: Option<&str>| {
        methods::strip(&json::text(value), chars).to_string()
    });
    env.add_filter("upper", |value: &Value| json::text(value).to_uppercase());
    env.add_filter("lower", |value: &Value| methods::lower(&json::text(value)));
    env.add_filter("capitalize", |value: &Value| methods::capitalize(&json::text(value)));
    env.add_filter("join", join);
    env.add_filter("escape", |value: &Value| escape(&json::text(value)));
    env.add_filter("e", |value: &Value| escape(&json::text(value)));
    env.add_filter("list", list);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("attr", attr);
}

/// As `transformers` defines it: `json.dumps(x, ensure_ascii=False, ...)`, nothing escaped.
fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let mut positional = positional.0.into_iter();
    let [ensure_ascii, indent, separators, sort_keys] = std::array::from_fn(|_| positional.next());
    let named = |given: Option<Value>, name: &str| match given {
        Some(value) => Ok(Some(value)),
        None => kwargs.get::<Option<Value>>(name),
    };
    let ensure_ascii = named(ensure_ascii, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let sort_keys = named(sort_keys, "sort_keys")?.is_some_and(|v| v.is_true());
    let indent = match named(indent, "indent")?.filter(|v| !v.is_none()) {
        None => None,
        Some(text) if text.as_str().is_some() => Some(json::text(&text)),
        Some(n) => {
            Some(" ".repeat(usize::from(u8::try_from(i64::try_from(n)?.max(0)).unwrap_or(u8::MAX))))
        }
    };
    let separators: Option<Vec<String>> = named(separators, "separators")?
        .filter(|v| !v.is_none())
        .map(|v| v.try_iter().map(|items| items.map(|item| json::text(&item)).collect()))
        .transpose()?;
    kwargs.assert_all_used()?;
    let item = if indent.is_some() { "," } else { ", " };
    let separators = match separators.as_deref() {
        None => (item, ": "),
        Some([between, after]) => (between.as_str(), after.as_str()),
        Some(_) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "separators must be two texts"));
        }
    };
    let text = json::dumps(value, &Layout { indent, separators, ensure_ascii, sort_keys })?;
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(Value::from(text))
}

fn join(
    state: &State<'_, '_>,
    value: &Value,
    separator: Option<&Value>,
    attribute: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let named: Option<Value> = kwargs.get("d")?;
    let separator = separator.or(named.as_ref()).map(json::text).unwrap_or_default();
    let attribute: Option<Value> = attribute.or(kwargs.get("attribute")?);
    kwargs.assert_all_used()?;
    let mut text = String::new();
    for (i, item) in iterate(value)?.enumerate() {
        let item = item?;
        if i > 0 {
            text.push_str(&separator);
        }
        let item = match &attribute {
            Some(name) => item.get_item(name)?,
            None => item,
        };
        let piece = json::text(&item);
        state.consume_fuel((piece.len() + separator.len()) as u64 / 64)?;
        text.push_str(&piece);
    }
    Ok(text)
}

/// The items of a value. The engine takes `none` for an empty list, Python does not.
fn iterate(value: &Value) -> Result<impl Iterator<Item = Result<Value, Error>>, Error> {
    if value.is_none() {
        return Err(Error::new(ErrorKind::InvalidOperation, "'NoneType' object is not iterable"));
    }
    Ok(value.try_iter()?.checked())
}

fn list(state: &State<'_, '_>, value: &Value) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for item in iterate(value)? {
        state.consume_fuel(1)?;
        items.push(item?);
    }
    Ok(items)
}

fn default(
    value: &Value,
    default: Option<Value>,
    boolean: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default_value")?);
    let boolean = boolean.or(kwargs.get("boolean")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let absent = value.is_undefined() || boolean && !value.is_true();
    Ok(if absent { default.unwrap_or_else(|| Value::from("")) } else { value.clone() })
}

fn int(
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = base.or(kwargs.get("base")?).unwrap_or(10);
    kwargs.assert_all_used()?;
    let number = match value.as_str() {
        Some(text) => int_of_text(text, base),
        None if matches!(value.kind(), ValueKind::Bool | ValueKind::Number) => {
            i128::try_from(value.clone())
                .ok()
                .or_else(|| f64::try_from(value.clone()).ok().and_then(int_of_float))
        }
        None => None,
    };
    Ok(number.map_or(default, Value::from))
}

fn int_of_text(text: &str, base: u32) -> Option<i128> {
    let text = methods::strip(text, None).replace('_', "").to_lowercase();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        _ => "",
    };
    let digits = digits.strip_prefix(prefix).unwrap_or(digits);
    if (2..=36).contains(&base)
        && digits.chars().all(|c| c.is_ascii_alphanumeric())
        && let Ok(number) = i128::from_str_radix(digits, base)
    {
        return Some(sign * number);
    }
    text.parse().ok().and_then(int_of_float)
}

/// Truncates; what no integer of a template holds is none.
fn int_of_float(number: f64) -> Option<i128> {
    let fits = number.abs() < 1e38;
    #[expect(clippy::cast_possible_truncation, reason = "checked; Python truncates too")]
    fits.then_some(number as i128)
}

fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    let number = match value.as_str() {
        Some(text) => methods::strip(text, None).parse().ok(),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(number.map_or(default, |number: f64| Value::from(number)))
}

/// Attributes of Python objects; the entries of a `dict` are none.
fn attr(value: &Value, name: &str) -> Result<Value, Error> {
    if value.kind() == ValueKind::Map {
        return Ok(Value::UNDEFINED);
    }
    value.get_attr(name)
}

/// `markupsafe.escape`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
