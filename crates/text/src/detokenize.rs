//! Ids to text while they arrive: only whole characters leave.

use crate::{TokenId, Tokenizer};
use std::sync::Arc;

/// Turns ids into text one at a time. The pieces joined are what `String::from_utf8_lossy` makes
/// of all bytes at once, however the ids cut them.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    /// The start of a character that is not complete: at most 3 bytes.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Starts with nothing held back.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, pending: Vec::new() }
    }

    /// The characters that this id completes; ids without a token add nothing.
    pub fn push(&mut self, id: TokenId) -> String {
        self.pending.extend_from_slice(self.tokenizer.token_bytes(id));
        take_complete(&mut self.pending)
    }

    /// The end of the text: a broken last character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// Removes the complete part of the bytes. Invalid bytes become U+FFFD; an end that more bytes
/// could complete stays.
fn take_complete(bytes: &mut Vec<u8>) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut done = 0;
    loop {
        match std::str::from_utf8(&bytes[done..]) {
            Ok(valid) => {
                text.push_str(valid);
                done = bytes.len();
                break;
            }
            Err(error) => {
                let valid_end = done + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[done..valid_end]));
                done = valid_end;
                let Some(invalid) = error.error_len() else { break };
                text.push(char::REPLACEMENT_CHARACTER);
                done += invalid;
            }
        }
    }
    bytes.drain(..done);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(bytes: &[u8], cuts: &[usize]) -> String {
        let mut pending = Vec::new();
        let mut text = String::new();
        let mut at = 0;
        for cut in cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]) {
            if cut > at {
                pending.extend_from_slice(&bytes[at..cut]);
                text.push_str(&take_complete(&mut pending));
                assert!(pending.len() <= 3, "{pending:?}");
                at = cut;
            }
        }
        text + &String::from_utf8_lossy(&pending)
    }

    /// Bytes that make broken UTF-8 likely.
    fn nasty() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop::sample::select(vec![
            b'a', 0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe2, 0xed, 0xef, 0xf0,
            0xf1, 0xf4, 0xf5, 0xff,
        ]);
        prop::collection::vec(byte, 0..24)
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_lossy_whole(
            bytes in prop_oneof![nasty(), any::<String>().prop_map(String::into_bytes)],
            cuts in prop::collection::vec(0usize..64, 0..12),
        ) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            prop_assert_eq!(pieces(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }
    }
}
