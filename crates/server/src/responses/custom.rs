//! The input of a custom tool. The model calls it as a function with one string, and the client
//! wants that string while it is written: `{"input": "…"}` is taken apart as it comes.

use serde_json::Value;

/// Name of the one parameter.
pub(super) const PARAMETER: &str = "input";

/// The input in the making.
#[derive(Debug, Default)]
pub(super) struct InputText {
    json: String,
    /// Bytes of `json` that are understood.
    at: usize,
    place: Place,
    text: String,
}

#[derive(Debug, Default, PartialEq)]
enum Place {
    /// Before the string.
    #[default]
    Before,
    Inside,
    /// After the string, or in something else than was expected.
    After,
}

impl InputText {
    /// Takes more JSON and returns what it adds to the input.
    pub(super) fn push(&mut self, json: &str) -> String {
        self.json.push_str(json);
        let start = self.text.len();
        if self.place == Place::Before {
            self.enter();
        }
        while self.place == Place::Inside && self.step() {}
        self.text[start..].to_owned()
    }

    /// The end of the call: what is missing of the input, which then is complete.
    pub(super) fn end(&mut self) -> String {
        if self.place != Place::Before {
            return String::new();
        }
        // Not the call that was asked for. Nothing that the model wrote is lost.
        self.text = match serde_json::from_str(&self.json) {
            Ok(Value::Object(mut fields)) => match fields.remove(PARAMETER) {
                Some(Value::String(text)) => text,
                Some(other) => other.to_string(),
                None if fields.is_empty() => String::new(),
                None => self.json.clone(),
            },
            _ => self.json.clone(),
        };
        self.place = Place::After;
        self.text.clone()
    }

    /// Looks for the start of the string.
    fn enter(&mut self) {
        let mut rest = self.json.as_str();
        for token in ["{", "\"input\"", ":", "\""] {
            match rest.trim_start().strip_prefix(token) {
                Some(after) => rest = after,
                None => return,
            }
        }
        self.at = self.json.len() - rest.len();
        self.place = Place::Inside;
    }

    /// Reads one character or escape; false if it is not complete.
    fn step(&mut self) -> bool {
        let rest = &self.json[self.at..];
        let (n_bytes, text) = match rest.chars().next() {
            None => return false,
            Some('"') => {
                self.place = Place::After;
                return false;
            }
            Some('\\') => {
                let Some(n_bytes) = escape_len(rest) else { return false };
                let text = serde_json::from_str(&format!("\"{}\"", &rest[..n_bytes]));
                (n_bytes, text.unwrap_or_else(|_| char::REPLACEMENT_CHARACTER.to_string()))
            }
            Some(_) => {
                let plain = rest.find(['"', '\\']).unwrap_or(rest.len());
                (plain, rest[..plain].to_owned())
            }
        };
        self.at += n_bytes;
        self.text.push_str(&text);
        true
    }
}

/// Bytes of the escape that a text starts with, both halves of a pair; `None` if it goes on.
fn escape_len(text: &str) -> Option<usize> {
    const UNIT: usize = r"\u0000".len();
    let kind = text[1..].chars().next()?;
    if kind != 'u' {
        return Some(1 + kind.len_utf8());
    }
    let Some(unit) = text.get(..UNIT) else { return (text.len() >= UNIT).then_some(2) };
    let is_high = matches!(u16::from_str_radix(&unit[2..], 16), Ok(0xD800..0xDC00));
    if !is_high {
        return Some(UNIT);
    }
    match text.as_bytes().get(UNIT..UNIT + 2) {
        Some(br"\u") if text.len() < 2 * UNIT => None,
        Some(br"\u") => Some(text.get(..2 * UNIT).map_or(UNIT, str::len)),
        None if text.len() == UNIT || text[UNIT..].starts_with('\\') => None,
        Some(_) | None => Some(UNIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The input, from JSON in pieces that end after these bytes.
    fn read(json: &str, cuts: &[usize]) -> String {
        let (mut input, mut text, mut start) = (InputText::default(), String::new(), 0);
        for cut in cuts.iter().map(|&cut| json.floor_char_boundary(cut)).chain([json.len()]) {
            if cut > start {
                text.push_str(&input.push(&json[start..cut]));
                start = cut;
            }
        }
        text.push_str(&input.end());
        assert_eq!(text, input.text, "the pieces are the whole");
        text
    }

    #[test]
    fn calls_that_nobody_asked_for_lose_nothing() {
        assert_eq!(read("{}", &[]), "");
        assert_eq!(read(r#"{"patch": "x"}"#, &[]), r#"{"patch": "x"}"#);
        assert_eq!(read(r#"{"a": 1, "input": "x"}"#, &[3]), "x");
        assert_eq!(read(r#"{"input": [1]}"#, &[3]), "[1]");
        assert_eq!(read(r#" { "input" : "x" } "#, &[1, 4]), "x");
        assert_eq!(
            read(r#"{"input": "\ud83d\ude00 \ud83d! \ud83d\n"}"#, &[15, 20]),
            "😀 \u{FFFD}! \u{FFFD}\n"
        );
        assert_eq!(read(r#"{"input": "cut of"#, &[]), "cut of");
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_string(text in "\\PC{0,20}|[\\\\\"\n\u{1}é😀]{0,9}", mut cuts in proptest::collection::vec(0usize..80, 0..6), spelled: bool) {
            cuts.sort_unstable();
            let mut json = json!({"input": text}).to_string();
            if spelled {
                let units: Vec<_> = text.encode_utf16().map(|u| format!("\\u{u:04x}")).collect();
                let units = units.concat();
                json = format!("{{\"input\":\"{units}\"}}");
            }
            prop_assert_eq!(read(&json, &cuts), text);
        }

        #[test]
        fn no_json_panics(json in r#"\{"input":"([\\ud8dc"n}x0😀]){0,20}"#, cut in 0usize..40) {
            read(&json, &[cut]);
        }
    }
}
