//! Jinja as `transformers` sets it up in Python: blocks trimmed, nothing escaped, and filters,
//! tests and functions that answer as Python's do.
//!
//! Differences that remain, none of which a chat template we know depends on: `~` prints floats
//! from 1e16 on and below 1e-4 without exponent; keys of an object come before methods that are
//! not called; loops over `none` and comparisons of unlike types pass where Python refuses them;
//! defaults of macro arguments do not see other arguments. `tests/clients/template_agreement.py`
//! lists and counts them.

use super::filters;
use super::json;
use super::methods;
use super::time::strftime_now;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

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
    env.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);

    filters::add(&mut env);

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

/// `{% generation %}` of `transformers` marks what to train on; for rendering it is a block that is
/// always there.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut replaced = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + "{%".len());
        replaced.push_str(before);
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        let found = [("generation", "if true"), ("endgeneration", "endif")]
            .into_iter()
            .find_map(|(word, by)| Some((inner.strip_prefix(word)?, by)))
            .filter(|(after, _)| {
                after.trim_start().trim_start_matches(['-', '+']).starts_with("%}")
            });
        match found {
            Some((after, by)) => {
                let opening = tag.len() - tag.trim_start_matches(['-', '+']).len();
                replaced.push_str(&tag[..opening]);
                replaced.extend([" ", by, " "]);
                rest = after.trim_start();
            }
            None => rest = tag,
        }
    }
    replaced.push_str(rest);
    replaced
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = json::text(message);
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
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
