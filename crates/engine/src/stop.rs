//! Stop strings in a text that arrives in pieces.
//!
//! The rule does not depend on how the text is cut: it ends at the first byte that completes a stop
//! string; if one byte completes several, the longest counts. So the result is that of a model
//! that generates byte by byte.

/// Finds the first stop string and lets out only text that cannot belong to one.
#[derive(Debug)]
pub(crate) struct StopMatcher {
    patterns: Vec<Pattern>,
    /// Text that may be the start of a stop string.
    held: String,
}

/// A stop string with the automaton of Knuth, Morris and Pratt.
#[derive(Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// Per length of a matched prefix, the length of the longest prefix that is also its suffix.
    fallback: Vec<usize>,
    /// Bytes of the prefix that the text ends with.
    n_matched: usize,
}

/// What a piece of text leads to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Matched {
    /// Text before any stop string.
    pub(crate) text: String,
    /// The stop string, if it is complete. Nothing may be pushed after that.
    pub(crate) stop: Option<String>,
}

impl StopMatcher {
    /// Stop strings are not empty; see `validate`.
    pub(crate) fn new(stop: &[String]) -> Self {
        Self { patterns: stop.iter().map(|s| Pattern::new(s)).collect(), held: String::new() }
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: &str) -> Matched {
        let scanned = self.held.len();
        self.held.push_str(piece);
        for (i, &byte) in piece.as_bytes().iter().enumerate() {
            let complete = self.patterns.iter_mut().filter_map(|p| p.advance(byte)).max();
            if let Some(stop_len) = complete {
                let end = scanned + i + 1;
                let stop = self.held[end - stop_len..end].to_owned();
                let mut text = std::mem::take(&mut self.held);
                text.truncate(end - stop_len);
                return Matched { text, stop: Some(stop) };
            }
        }
        let n_held = self.patterns.iter().map(|p| p.n_matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - n_held);
        Matched { text: std::mem::replace(&mut self.held, rest), stop: None }
    }

    /// What is held back, at a place that no stop string spans.
    pub(crate) fn flush(&mut self) -> String {
        for pattern in &mut self.patterns {
            pattern.n_matched = 0;
        }
        std::mem::take(&mut self.held)
    }
}

impl Pattern {
    fn new(stop: &str) -> Self {
        let bytes = stop.as_bytes().to_vec();
        let mut fallback = vec![0; bytes.len() + 1];
        let mut length = 0;
        for i in 1..bytes.len() {
            while length > 0 && bytes[i] != bytes[length] {
                length = fallback[length];
            }
            if bytes[i] == bytes[length] {
                length += 1;
            }
            fallback[i + 1] = length;
        }
        Self { bytes, fallback, n_matched: 0 }
    }

    /// The length of the stop string if this byte completes it.
    fn advance(&mut self, byte: u8) -> Option<usize> {
        while self.n_matched > 0 && self.bytes[self.n_matched] != byte {
            self.n_matched = self.fallback[self.n_matched];
        }
        if self.bytes[self.n_matched] == byte {
            self.n_matched += 1;
        }
        (self.n_matched == self.bytes.len()).then_some(self.n_matched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Looks at every end position and every stop string.
    fn plain(text: &str, stop: &[String]) -> (String, Option<String>) {
        for end in 0..=text.len() {
            let found = stop.iter().filter(|s| text.as_bytes()[..end].ends_with(s.as_bytes()));
            if let Some(longest) = found.max_by_key(|s| s.len()) {
                return (text[..end - longest.len()].to_owned(), Some(longest.clone()));
            }
        }
        (text.to_owned(), None)
    }

    fn check(pieces: &[&str], stop: &[&str], expected: (&str, Option<&str>)) {
        let stop: Vec<String> = stop.iter().map(ToString::to_string).collect();
        let answer = run(pieces, &stop);
        assert_eq!((answer.0.as_str(), answer.1.as_deref()), expected);
        assert_eq!(plain(&pieces.concat(), &stop), answer, "the plain rule says otherwise");
    }

    fn run(pieces: &[&str], stop: &[String]) -> (String, Option<String>) {
        let mut matcher = StopMatcher::new(stop);
        let mut text = String::new();
        for piece in pieces {
            let matched = matcher.push(piece);
            text.push_str(&matched.text);
            if matched.stop.is_some() {
                return (text, matched.stop);
            }
        }
        (text + &matcher.flush(), None)
    }

    #[test]
    fn finds_the_first_to_be_complete() {
        check(&["hello"], &[], ("hello", None));
        check(&["one\n", "\ntwo"], &["\n\n"], ("one", Some("\n\n")));
        check(&["abcd"], &["bc", "abcd"], ("a", Some("bc")));
        check(&["xab"], &["b", "ab"], ("x", Some("ab")));
        check(&["aaab"], &["aab"], ("a", Some("aab")));
        check(&["STO", "P"], &["STOP"], ("", Some("STOP")));
        check(&["STO"], &["STOP"], ("STO", None));
        check(&["stö", "p"], &["öp"], ("st", Some("öp")));
    }

    #[test]
    fn a_flush_forgets_what_was_matched() {
        let mut matcher = StopMatcher::new(&["ab".to_owned()]);
        assert_eq!(matcher.push("xa").text, "x");
        assert_eq!(matcher.flush(), "a");
        assert_eq!(matcher.push("b"), Matched { text: "b".to_owned(), stop: None });
    }

    proptest! {
        #[test]
        fn cutting_the_text_changes_nothing(
            text in "[abä]{0,40}",
            stop in prop::collection::vec("[abä]{1,5}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts
                .iter()
                .map(|cut| cut.index(text.len() + 1))
                .filter(|cut| text.is_char_boundary(*cut))
                .chain([0, text.len()])
                .collect();
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            prop_assert_eq!(run(&pieces, &stop), plain(&text, &stop));
        }
    }
}
