//! Text to ids and ids to bytes, by the checkpoint's own `tokenizer.json`.
//!
//! Added tokens (`<|im_end|>`, `<think>`, ...) are cut out first; what is left is ordinary text:
//! normalised, split and merged by the `tokenizers` crate.

use crate::TextError;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, Normalizer, NormalizerWrapper, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
};

/// A row of the embedding matrix.
pub type TokenId = u32;

/// The tokenizer of a checkpoint. Shared behind an `Arc`.
pub struct Tokenizer {
    normalizer: Option<NormalizerWrapper>,
    splitter: Option<PreTokenizerWrapper>,
    model: ModelWrapper,
    added: AddedTokens,
    special: HashSet<TokenId>,
    n_tokens: usize,
    bytes: TokenBytes,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("n_tokens", &self.n_tokens).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] when it is not a byte-level tokenizer.
    pub fn from_bytes(tokenizer_json: &[u8]) -> Result<Self, TextError> {
        let inner = tokenizers::Tokenizer::from_bytes(tokenizer_json)
            .map_err(|e| TextError::Tokenizer { problem: e.to_string() })?;
        if !matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            let problem = "its decoder is not ByteLevel".to_string();
            return Err(TextError::Tokenizer { problem });
        }
        let decoder = inner.get_added_tokens_decoder();
        let mut texts: Vec<(String, TokenId)> =
            decoder.iter().map(|(id, token)| (token.content.clone(), *id)).collect();
        texts.sort_unstable_by_key(|(_, id)| *id);
        let special = decoder.iter().filter(|(_, t)| t.special).map(|(id, _)| *id).collect();
        let vocab = inner.get_model().get_vocab();
        let n_tokens = inner.get_vocab_size(true);
        let bytes = TokenBytes::new(&vocab, &texts)?;
        Ok(Self {
            normalizer: inner.get_normalizer().cloned(),
            splitter: inner.get_pre_tokenizer().cloned(),
            model: inner.get_model().clone(),
            added: AddedTokens::new(texts),
            special,
            n_tokens,
            bytes,
        })
    }

    /// Number of named tokens; the model may have more rows, which are padding.
    pub fn vocab_size(&self) -> usize {
        self.n_tokens
    }

    /// Ids of a text in which the strings of added tokens stand for these tokens. Never for text
    /// of users: see [`Self::encode_plain`].
    ///
    /// # Errors
    /// [`TextError::Encode`] when the tokenizer gives up.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        let mut ids = Vec::new();
        self.encode_with(text, Cow::Borrowed, &mut ids)?;
        Ok(ids)
    }

    /// Ids of a text in which the strings of added tokens are ordinary text.
    ///
    /// # Errors
    /// [`TextError::Encode`] when the tokenizer gives up.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        let mut ids = Vec::new();
        self.push_plain(text, &mut ids)?;
        Ok(ids)
    }

    /// Like [`Self::encode`], but each run between added tokens goes through `reveal` before it is
    /// encoded as ordinary text.
    pub(crate) fn encode_with<'t>(
        &self,
        text: &'t str,
        reveal: impl Fn(&'t str) -> Cow<'t, str>,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), TextError> {
        let mut start = 0;
        while let Some((at, len, id)) = self.added.find(text, start) {
            self.push_plain(&reveal(&text[start..at]), ids)?;
            ids.push(id);
            start = at + len;
        }
        self.push_plain(&reveal(&text[start..]), ids)
    }

    /// Text of ids, added tokens included; broken UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.token_bytes(*id)).copied().collect();
        String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }

    /// The bytes of one token: for added tokens their text, for ids without a token nothing.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.bytes.of(id)
    }

    /// The added token with exactly this text.
    pub fn token_id(&self, text: &str) -> Option<TokenId> {
        self.added.ids.get(text).copied()
    }

    /// Whether the token is flagged special: not part of the text that people see.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.special.contains(&id)
    }

    pub(crate) fn added(&self) -> &AddedTokens {
        &self.added
    }

    fn push_plain(&self, text: &str, ids: &mut Vec<TokenId>) -> Result<(), TextError> {
        if text.is_empty() {
            return Ok(());
        }
        let fail = |e: tokenizers::Error| TextError::Encode {
            text_bytes: text.len(),
            problem: e.to_string(),
        };
        let mut pieces = PreTokenizedString::from(text);
        if let Some(normalizer) = &self.normalizer {
            pieces.normalize(|piece| normalizer.normalize(piece)).map_err(fail)?;
        }
        if let Some(splitter) = &self.splitter {
            splitter.pre_tokenize(&mut pieces).map_err(fail)?;
        }
        for (piece, _, _) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            ids.extend(self.model.tokenize(piece).map_err(fail)?.into_iter().map(|t| t.id));
        }
        Ok(())
    }
}

/// Strings that stand for one token wherever they occur.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    ids: HashMap<String, TokenId>,
    /// By first byte; the longest first.
    by_first: HashMap<u8, Vec<(String, TokenId)>>,
}

impl AddedTokens {
    fn new(texts: Vec<(String, TokenId)>) -> Self {
        let mut longest_first: Vec<_> = texts.iter().collect();
        longest_first.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let mut by_first: HashMap<u8, Vec<(String, TokenId)>> = HashMap::new();
        for (text, id) in longest_first {
            if let Some(first) = text.bytes().next() {
                by_first.entry(first).or_default().push((text.clone(), *id));
            }
        }
        Self { ids: texts.into_iter().collect(), by_first }
    }

    /// The first added token at or after `start`, the longest where several begin: its place, its
    /// length and its id.
    fn find(&self, text: &str, start: usize) -> Option<(usize, usize, TokenId)> {
        text.bytes().enumerate().skip(start).find_map(|(at, byte)| {
            let group = self.by_first.get(&byte)?;
            let rest = &text.as_bytes()[at..];
            let (token, id) = group.iter().find(|(t, _)| rest.starts_with(t.as_bytes()))?;
            Some((at, token.len(), *id))
        })
    }

    /// Characters that added tokens begin with, in order.
    pub(crate) fn first_chars(&self) -> BTreeSet<char> {
        self.ids.keys().filter_map(|text| text.chars().next()).collect()
    }

    /// Whether an added token begins at `at`, or would if the text were cut at `visible_end` and
    /// then went on.
    pub(crate) fn may_begin(&self, text: &str, at: usize, visible_end: usize) -> bool {
        let Some(group) = self.by_first.get(&text.as_bytes()[at]) else { return false };
        let rest = &text.as_bytes()[at..];
        let visible = &text.as_bytes()[at..visible_end.max(at)];
        group.iter().any(|(token, _)| {
            rest.starts_with(token.as_bytes()) || token.as_bytes().starts_with(visible)
        })
    }

    /// Where a template that strips the text cuts it. Python strips U+001C to U+001F too.
    pub(crate) fn visible_end(text: &str) -> usize {
        let blank = |c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
        text.trim_end_matches(blank).len()
    }
}

/// The bytes of all tokens in one buffer.
struct TokenBytes {
    bytes: Vec<u8>,
    /// Start of each id's bytes; one more than ids.
    starts: Vec<u32>,
}

/// Ids beyond this are an error of the file, not a vocabulary.
const IDS_MAX: usize = 1 << 22;

impl TokenBytes {
    fn new(
        vocab: &HashMap<String, TokenId>,
        added: &[(String, TokenId)],
    ) -> Result<Self, TextError> {
        let all_ids = vocab.values().copied().chain(added.iter().map(|(_, id)| *id));
        let n_ids = all_ids.max().map_or(0, |id| id as usize + 1);
        if n_ids > IDS_MAX {
            let problem = format!("it has an id of {n_ids} but {IDS_MAX} is the most");
            return Err(TextError::Tokenizer { problem });
        }
        let mut texts: Vec<(&str, bool)> = vec![("", true); n_ids];
        #[expect(clippy::iter_over_hash_type, reason = "each id is written once")]
        for (text, id) in vocab {
            texts[*id as usize] = (text, false);
        }
        for (text, id) in added {
            texts[*id as usize] = (text, true);
        }
        let alphabet = byte_alphabet();
        let mut bytes = Vec::new();
        let mut starts = vec![0];
        for (text, literal) in texts {
            if literal {
                bytes.extend_from_slice(text.as_bytes());
            } else {
                for c in text.chars() {
                    let problem = || format!("token `{text}` is not in the byte alphabet");
                    let byte = alphabet
                        .get(&c)
                        .ok_or_else(|| TextError::Tokenizer { problem: problem() })?;
                    bytes.push(*byte);
                }
            }
            let end = u32::try_from(bytes.len()).map_err(|_| TextError::Tokenizer {
                problem: "its tokens are longer than 4 GiB".to_string(),
            })?;
            starts.push(end);
        }
        Ok(Self { bytes, starts })
    }

    fn of(&self, id: TokenId) -> &[u8] {
        let id = id as usize;
        match (self.starts.get(id), self.starts.get(id + 1)) {
            (Some(start), Some(end)) => &self.bytes[*start as usize..*end as usize],
            _ => &[],
        }
    }
}

/// The alphabet of GPT-2: printable bytes stand for themselves, the others for the characters
/// from U+0100 on.
fn byte_alphabet() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..=255).filter(|byte| !printable(*byte));
    let shifted = ('\u{100}'..).zip(others);
    (0..=255).filter(|byte| printable(*byte)).map(|b| (char::from(b), b)).chain(shifted).collect()
}
