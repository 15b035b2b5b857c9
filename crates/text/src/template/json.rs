//! `tojson` and `str` as Python does them.

use super::python::type_name;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// Layout of `json.dumps`.
pub(super) struct Layout<'s> {
    /// Spaces or text of one level; `None` keeps everything on one line.
    pub(super) indent: Option<String>,
    /// Between entries and after keys.
    pub(super) separators: (&'s str, &'s str),
    /// Whether characters beyond ASCII are written as escapes.
    pub(super) ensure_ascii: bool,
    /// Whether keys are sorted.
    pub(super) sort_keys: bool,
}

/// Python refuses deeper data too (its recursion limit).
const DEPTH_MAX: usize = 200;

/// `json.dumps(value)`.
pub(super) fn dumps(value: &Value, layout: &Layout<'_>) -> Result<String, Error> {
    let mut text = String::new();
    write_value(value, layout, 0, &mut text)?;
    Ok(text)
}

fn write_value(
    value: &Value,
    layout: &Layout<'_>,
    depth: usize,
    text: &mut String,
) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::new(ErrorKind::BadSerialization, "the value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => text.push_str(&number(value)),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), layout.ensure_ascii, text),
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
            let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
            write_list(&items, ('[', ']'), layout, depth, text, |item, text| {
                write_value(item, layout, depth + 1, text)
            })?;
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                let item = value.get_item(&key)?;
                entries.push((key_text(&key)?, item));
            }
            if layout.sort_keys {
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            write_list(&entries, ('{', '}'), layout, depth, text, |(key, item), text| {
                quote(key, layout.ensure_ascii, text);
                text.push_str(layout.separators.1);
                write_value(item, layout, depth + 1, text)
            })?;
        }
        _ => {
            let problem = format!("Object of type {} is not JSON serializable", type_name(value));
            return Err(Error::new(ErrorKind::BadSerialization, problem));
        }
    }
    Ok(())
}

fn write_list<T>(
    items: &[T],
    brackets: (char, char),
    layout: &Layout<'_>,
    depth: usize,
    text: &mut String,
    write_item: impl Fn(&T, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let new_line = |depth: usize, text: &mut String| {
        if let Some(indent) = &layout.indent {
            text.push('\n');
            text.push_str(&indent.repeat(depth));
        }
    };
    text.push(brackets.0);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            text.push_str(layout.separators.0);
        }
        new_line(depth + 1, text);
        write_item(item, text)?;
    }
    if !items.is_empty() {
        new_line(depth, text);
    }
    text.push(brackets.1);
    Ok(())
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".to_string()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_string()),
        ValueKind::Number => Ok(number(key)),
        _ => {
            let problem =
                format!("keys must be str, int, float, bool or None, not {}", type_name(key));
            Err(Error::new(ErrorKind::BadSerialization, problem))
        }
    }
}

fn quote(string: &str, ensure_ascii: bool, text: &mut String) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            c if c < ' ' || (ensure_ascii && c > '~') => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    escape('u', 4, u32::from(*unit), text);
                }
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// A backslash, a letter and so many hexadecimal digits.
fn escape(letter: char, width: usize, code: u32, text: &mut String) {
    write!(text, "\\{letter}{code:0width$x}").expect("strings can be written to");
}

/// A number as `json.dumps` writes it.
fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(f) if !value.is_integer() && f.is_nan() => "NaN".to_string(),
        Ok(f) if !value.is_integer() && f.is_infinite() => {
            if f > 0.0 { "Infinity" } else { "-Infinity" }.to_string()
        }
        _ => text_of_number(value),
    }
}

/// `str(number)`.
pub(super) fn text_of_number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(f) if !value.is_integer() => float_repr(f),
        _ => value.to_string(),
    }
}

/// `repr(float)`: the shortest digits that give the number back, with an exponent from 1e16 on
/// and below 1e-4.
fn float_repr(f: f64) -> String {
    if f.is_nan() {
        return "nan".to_string();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{f:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{f}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `str(value)`.
pub(super) fn text(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_string(),
        ValueKind::Undefined => String::new(),
        _ => {
            let mut text = String::new();
            repr(value, 0, &mut text);
            text
        }
    }
}

/// `repr(value)`.
fn repr(value: &Value, depth: usize, text: &mut String) {
    if depth > DEPTH_MAX {
        text.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::Number => text.push_str(&text_of_number(value)),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), text),
        ValueKind::Undefined => text.push_str("Undefined"),
        ValueKind::Seq => {
            let tuple = value.is_tuple();
            text.push(if tuple { '(' } else { '[' });
            let mut n_items = 0;
            for item in value.try_iter().into_iter().flatten() {
                if n_items > 0 {
                    text.push_str(", ");
                }
                repr(&item, depth + 1, text);
                n_items += 1;
            }
            text.push_str(match (tuple, n_items) {
                (false, _) => "]",
                (true, 1) => ",)",
                (true, _) => ")",
            });
        }
        ValueKind::Map => {
            text.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                if i > 0 {
                    text.push_str(", ");
                }
                repr(&key, depth + 1, text);
                text.push_str(": ");
                repr(&value.get_item(&key).unwrap_or_default(), depth + 1, text);
            }
            text.push('}');
        }
        _ => text.push_str(&value.to_string()),
    }
}

fn repr_string(string: &str, text: &mut String) {
    let quote = if string.contains('\'') && !string.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for c in string.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c == quote => text.extend(['\\', c]),
            // The characters that Python calls not printable, but for unassigned ones.
            c if c.is_control()
                || (c.is_whitespace() && c != ' ')
                || matches!(
                    c,
                    '\u{ad}'
                        | '\u{600}'..='\u{605}'
                        | '\u{200b}'..='\u{200f}'
                        | '\u{202a}'..='\u{202e}'
                        | '\u{2060}'..='\u{206f}'
                        | '\u{e000}'..='\u{f8ff}'
                        | '\u{feff}'
                        | '\u{fff9}'..='\u{fffb}'
                        | '\u{e0000}'..='\u{e0fff}'
                        | '\u{f0000}'..
                ) =>
            {
                match u32::from(c) {
                    code @ ..=0xff => escape('x', 2, code, text),
                    code @ ..=0xffff => escape('u', 4, code, text),
                    code => escape('U', 8, code, text),
                }
            }
            c => text.push(c),
        }
    }
    text.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let check = |f: f64, expected: &str| assert_eq!(float_repr(f), expected);
        check(1.0, "1.0");
        check(-0.0, "-0.0");
        check(0.1, "0.1");
        check(1e15, "1000000000000000.0");
        check(1e16, "1e+16");
        check(1.5e16, "1.5e+16");
        check(1e100, "1e+100");
        check(1e-4, "0.0001");
        check(1e-5, "1e-05");
        check(1.25e-7, "1.25e-07");
        check(f64::MAX, "1.7976931348623157e+308");
        check(5e-324, "5e-324");
    }
}
