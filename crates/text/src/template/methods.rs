//! Methods of Python's `str`, `dict` and `list` that templates call.

use super::python::type_name;
use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;
use std::ops::Range;

/// `value.method(args)`; what is not here is left to `pycompat`.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        // Methods copy their text: pay for it before.
        state.consume_fuel(text.len() as u64 / 64)?;
        if let Some(result) = of_str(state, text, method, args)? {
            return Ok(result);
        }
    } else if value.kind() == ValueKind::Map
        && let Some(result) = of_dict(value, method, args)?
    {
        return Ok(result);
    } else if value.kind() == ValueKind::Seq && method == "index" {
        let (wanted,): (Value,) = from_args(args)?;
        for (i, item) in value.try_iter()?.enumerate() {
            if item == wanted {
                return Ok(Value::from(i));
            }
        }
        return Err(wrong("the value is not in the list"));
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

fn wrong(problem: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// What Python's `str.isspace` calls whitespace.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip`.
pub(super) fn strip<'s>(text: &'s str, chars: Option<&str>) -> &'s str {
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)),
        None => text.trim_matches(is_space),
    }
}

/// `str.lower`; Rust's has the same final sigma.
pub(super) fn lower(text: &str) -> String {
    text.to_lowercase()
}

/// `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| title_case(first) + &lower(chars.as_str()))
}

/// The title case of one character, which for ligatures is not the upper case.
fn title_case(c: char) -> String {
    let upper: Vec<char> = c.to_uppercase().collect();
    match (c, upper.as_slice()) {
        ('\u{1c4}'..='\u{1c6}', _) => "\u{1c5}".to_string(),
        ('\u{1c7}'..='\u{1c9}', _) => "\u{1c8}".to_string(),
        ('\u{1ca}'..='\u{1cc}', _) => "\u{1cb}".to_string(),
        ('\u{1f1}'..='\u{1f3}', _) => "\u{1f2}".to_string(),
        (_, [first, rest @ ..]) => {
            [*first].into_iter().chain(rest.iter().flat_map(|c| c.to_lowercase())).collect()
        }
        _ => c.to_string(),
    }
}

/// What `dict.items()` and the like give: can be iterated, has a length, is no list.
fn view(items: Vec<Value>) -> Value {
    Value::make_object_iterable(items, |items| Box::new(items.iter().cloned()))
}

fn of_dict(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let entries = || -> Result<Vec<(Value, Value)>, Error> {
        value.try_iter()?.map(|key| Ok((key.clone(), value.get_item(&key)?))).collect()
    };
    Ok(Some(match method {
        "keys" => {
            let () = from_args(args)?;
            view(value.try_iter()?.collect())
        }
        "values" => {
            let () = from_args(args)?;
            view(entries()?.into_iter().map(|(_, item)| item).collect())
        }
        "items" => {
            let () = from_args(args)?;
            let pairs = entries()?.into_iter().map(|(k, v)| Value::from(Tuple::from([k, v])));
            view(pairs.collect())
        }
        "get" => {
            let (key, default): (Value, Option<Value>) = from_args(args)?;
            let item = value.get_item(&key)?;
            if item.is_undefined() { default.unwrap_or_else(|| Value::from(())) } else { item }
        }
        "copy" => {
            let () = from_args(args)?;
            value.clone()
        }
        _ => return Ok(None),
    }))
}

fn of_str(
    state: &State<'_, '_>,
    text: &str,
    method: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let result = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<Value>,) = from_args(args)?;
            let chars = optional_str(chars.as_ref())?;
            let listed = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
            Value::from(match method {
                "lstrip" => text.trim_start_matches(listed),
                "rstrip" => text.trim_end_matches(listed),
                _ => strip(text, chars),
            })
        }
        "split" | "rsplit" => split(text, method == "rsplit", args)?,
        "splitlines" => {
            let (keep_ends, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep_ends = keep_ends.or(kwargs.get("keepends")?).unwrap_or(false);
            kwargs.assert_all_used()?;
            split_lines(text, keep_ends).into_iter().map(Value::from).collect::<Vec<_>>().into()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, not_empty(separator)?, method == "rpartition")
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "find" | "rfind" | "index" | "rindex" | "count" => search(text, method, args)?,
        "startswith" | "endswith" => affix(text, method == "startswith", args)?,
        "zfill" | "ljust" | "rjust" | "center" => {
            let padded = pad(text, method, args)?;
            state.consume_fuel(padded.len() as u64 / 64)?;
            padded.into()
        }
        "join" => join(state, text, args)?,
        _ => return simple(text, method, args),
    };
    Ok(Some(result))
}

/// Methods without arguments.
fn simple(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let all = |test: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(test));
    let result = match method {
        "lower" => lower(text).into(),
        "casefold" => lower(text).replace('ß', "ss").into(),
        "capitalize" => capitalize(text).into(),
        "title" => title(text).into(),
        "swapcase" => text
            .chars()
            .flat_map(|c| -> Vec<char> {
                if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                }
            })
            .collect::<String>()
            .into(),
        "isspace" => all(is_space),
        "isdecimal" => all(is_decimal),
        "isdigit" => all(is_digit),
        "isidentifier" => {
            let mut chars = text.chars();
            let first = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
            Value::from(first && chars.all(|c| c == '_' || c.is_alphanumeric()))
        }
        _ => return Ok(None),
    };
    let () = from_args(args)?;
    Ok(Some(result))
}

/// Decimal digits in the scripts that people write to a model in; Unicode has more.
fn is_decimal(c: char) -> bool {
    matches!(
        c,
        '0'..='9'
            | '\u{660}'..='\u{669}'
            | '\u{6f0}'..='\u{6f9}'
            | '\u{966}'..='\u{96f}'
            | '\u{e50}'..='\u{e59}'
            | '\u{ff10}'..='\u{ff19}'
    )
}

fn is_digit(c: char) -> bool {
    is_decimal(c)
        || matches!(
            c,
            '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{2070}' | '\u{2074}'..='\u{2079}'
                | '\u{2080}'..='\u{2089}' | '\u{2460}'..='\u{2468}'
        )
}

fn optional_str(value: Option<&Value>) -> Result<Option<&str>, Error> {
    match value {
        None => Ok(None),
        Some(value) if value.is_none() => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(wrong(format!("expected str, got {}", type_name(value)))),
        },
    }
}

fn not_empty(separator: &str) -> Result<&str, Error> {
    if separator.is_empty() { Err(wrong("empty separator")) } else { Ok(separator) }
}

fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, n_max, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(separator) => Some(separator),
        None => kwargs.get::<Option<Value>>("sep")?,
    };
    let n_max = n_max.or(kwargs.get("maxsplit")?).unwrap_or(-1);
    kwargs.assert_all_used()?;
    // A negative number means: no limit.
    let n_pieces = usize::try_from(n_max).map_or(usize::MAX, |n| n.saturating_add(1));
    let pieces: Vec<&str> = match optional_str(separator.as_ref())? {
        Some(separator) if from_right => {
            let mut pieces: Vec<_> = text.rsplitn(n_pieces, not_empty(separator)?).collect();
            pieces.reverse();
            pieces
        }
        Some(separator) => text.splitn(n_pieces, not_empty(separator)?).collect(),
        None if from_right => {
            let mut pieces = Vec::new();
            let mut rest = text.trim_end_matches(is_space);
            while !rest.is_empty() {
                let cut = if pieces.len() + 1 < n_pieces { rest.rfind(is_space) } else { None };
                let Some(at) = cut else {
                    pieces.push(rest);
                    break;
                };
                let start = at + rest[at..].chars().next().map_or(1, char::len_utf8);
                pieces.push(&rest[start..]);
                rest = rest[..at].trim_end_matches(is_space);
            }
            pieces.reverse();
            pieces
        }
        None => {
            let mut pieces = Vec::new();
            let mut rest = text.trim_start_matches(is_space);
            while !rest.is_empty() {
                let cut = if pieces.len() + 1 < n_pieces { rest.find(is_space) } else { None };
                let Some(at) = cut else {
                    pieces.push(rest);
                    break;
                };
                pieces.push(&rest[..at]);
                rest = rest[at..].trim_start_matches(is_space);
            }
            pieces
        }
    };
    Ok(pieces.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    const ENDS: [char; 10] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line_end, next) = match rest.find(ENDS) {
            None => (rest.len(), rest.len()),
            Some(at) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some(at) => (at, at + rest[at..].chars().next().map_or(1, char::len_utf8)),
        };
        lines.push(&rest[..if keep_ends { next } else { line_end }]);
        rest = &rest[next..];
    }
    lines
}

fn partition(text: &str, separator: &str, from_right: bool) -> Value {
    let cut = if from_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match cut {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Value::from(Tuple::from(parts.map(Value::from)))
}

/// The bytes of `text[start:end]` by characters, as Python cuts.
fn window(text: &str, start: Option<i64>, end: Option<i64>) -> Option<Range<usize>> {
    if start.is_none() && end.is_none() {
        return Some(0..text.len());
    }
    let n_chars = text.chars().count();
    let place = |index: i64| {
        let from_end =
            n_chars.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX));
        usize::try_from(index).unwrap_or(from_end)
    };
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(i64::MAX)).min(n_chars));
    if start > end {
        return None;
    }
    let byte = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    Some(byte(start)..byte(end))
}

fn search(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (wanted, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let range = window(text, start, end);
    if method == "count" {
        let n = range.map_or(0, |range| text[range].matches(wanted).count());
        return Ok(Value::from(n));
    }
    let found = range.and_then(|range| {
        let part = &text[range.clone()];
        let at = if method.starts_with('r') { part.rfind(wanted) } else { part.find(wanted) };
        at.map(|at| text[..range.start + at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::from(at)),
        None if method.ends_with("index") => Err(wrong("substring not found")),
        None => Ok(Value::from(-1)),
    }
}

fn affix(text: &str, at_start: bool, args: &[Value]) -> Result<Value, Error> {
    let (wanted, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    let part = window(text, start, end).map(|range| &text[range]);
    let fits = |wanted: &Value| match wanted.as_str() {
        Some(wanted) if at_start => Ok(part.is_some_and(|part| part.starts_with(wanted))),
        Some(wanted) => Ok(part.is_some_and(|part| part.ends_with(wanted))),
        None => Err(wrong(format!("expected str, got {}", type_name(wanted)))),
    };
    if !wanted.is_tuple() {
        return fits(wanted).map(Value::from);
    }
    for wanted in wanted.try_iter()? {
        if fits(&wanted)? {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

/// Wider text than any prompt has a use for.
const WIDTH_MAX: usize = 1 << 20;

fn pad(text: &str, method: &str, args: &[Value]) -> Result<String, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let width = usize::try_from(width).unwrap_or(0);
    if width > WIDTH_MAX {
        return Err(wrong(format!("the width is {width} but {WIDTH_MAX} is the most")));
    }
    let n_missing = width.saturating_sub(text.chars().count());
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(wrong("the fill must be one character"));
    }
    Ok(match method {
        "ljust" => format!("{text}{}", fill.repeat(n_missing)),
        "rjust" => format!("{}{text}", fill.repeat(n_missing)),
        "zfill" => {
            let sign = text.len() - text.trim_start_matches(['+', '-']).len();
            let (sign, digits) = text.split_at(sign.min(1));
            format!("{sign}{}{digits}", "0".repeat(n_missing))
        }
        _ => {
            // The odd space goes where CPython puts it.
            let left = n_missing / 2 + (n_missing & width & 1);
            format!("{}{text}{}", fill.repeat(left), fill.repeat(n_missing - left))
        }
    })
}

fn join(state: &State<'_, '_>, separator: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut text = String::new();
    for (i, item) in items.try_iter()?.checked().enumerate() {
        let item = item?;
        let Some(piece) = item.as_str() else {
            let problem = format!("item {i}: expected str, got {}", type_name(&item));
            return Err(wrong(problem));
        };
        state.consume_fuel((piece.len() + separator.len()) as u64 / 64)?;
        if i > 0 {
            text.push_str(separator);
        }
        text.push_str(piece);
    }
    Ok(text.into())
}

/// `str.title`: every run of letters starts anew, apostrophes included.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        let cased =
            c.is_lowercase() || c.is_uppercase() || c.is_alphabetic() && !c.to_uppercase().eq([c]);
        if in_word {
            titled.extend(c.to_lowercase());
        } else {
            titled.push_str(&title_case(c));
        }
        in_word = cased;
    }
    titled
}
