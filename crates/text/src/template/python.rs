//! Jinja as `transformers` sets it up in Python: blocks trimmed, nothing escaped, and filters,
//! tests and functions that answer as Python's do.
//!
//! Known differences that remain: `~` prints floats from 1e16 on and below 1e-4 without exponent,
//! and attributes of an object come before its methods unless they are called.

use super::json::{self, Layout};
use super::methods;
use super::time::strftime_now;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};

/// The words of `raise_exception`, carried through the errors of the template engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// What the template said when it refused.
pub(super) fn raised(error: &Error) -> Option<&str> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message);
        }
        cause = error.source();
    }
    None
}

/// An environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the delimiters are Jinja's own"));
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_unknown_method_callback(methods::call);
    env.set_formatter(|out, _, value| {
        let text = match value.as_str() {
            Some(text) => return Ok(out.write_str(text)?),
            None => json::text(value),
        };
        Ok(out.write_str(&text)?)
    });

    env.remove_global("debug");
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", |format: &str| strftime_now(format));
    env.add_function("cycler", |items: minijinja::value::Rest<Value>| {
        minijinja_contrib::globals::cycler(items.0)
    });
    env.add_function("joiner", minijinja_contrib::globals::joiner);

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
    env.add_filter("wordcount", |value: &Value| {
        json::text(value)
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|w| !w.is_empty())
            .count()
    });

    env.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined
        )
    });
    env.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq
                | ValueKind::Map
                | ValueKind::String
                | ValueKind::Iterable
                | ValueKind::Undefined
        )
    });
    env.add_test("integer", |value: &Value| {
        value.kind() == ValueKind::Number && value.is_integer()
    });
    env.add_test("callable", |value: &Value| {
        matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined)
    });
    env
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = json::text(message);
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}

/// As `transformers` defines it: `json.dumps(x, ensure_ascii=False, ...)`, nothing escaped.
fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    args: minijinja::value::Rest<Value>,
) -> Result<Value, Error> {
    type Positional = (Option<Value>, Option<Value>, Option<Value>, Option<Value>, Kwargs);
    let (ensure_ascii, indent, separators, sort_keys, kwargs): Positional = from_args(&args)?;
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
    for (i, item) in value.try_iter()?.checked().enumerate() {
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

fn list(state: &State<'_, '_>, value: &Value) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        state.consume_fuel(1)?;
        items.push(item?);
    }
    Ok(items)
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

/// Python's name of the type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Seq if value.is_tuple() => "tuple",
        ValueKind::Seq => "list",
        ValueKind::Map => "dict",
        ValueKind::Iterable => "generator",
        _ => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::methods::is_space;

    #[test]
    fn whitespace_is_pythons() {
        assert!(
            [' ', '\u{1c}', '\u{1f}', '\u{85}', '\u{a0}', '\u{3000}'].into_iter().all(is_space)
        );
        assert!(!['\u{200b}', '\u{feff}', 'a'].into_iter().any(is_space));
    }
}
