//! Encodes a conversation so that messages cannot inject special tokens.
//!
//! A template concatenates its own text with untrusted messages, which it may also trim, cut and
//! escape. To distinguish the two in the rendered text, the characters that special tokens start or
//! end with are escaped in all messages before rendering. Each becomes one private-use character,
//! which preserves lengths and white space. Special tokens are parsed in the escaped text; the text
//! between them is unescaped before tokenization.

use super::template::{ChatTemplate, Conversation};
use crate::{EncodeOptions, SpecialTokens, Tokenizer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use tabla_core::error::{Context, Result, bail};

/// Private-use characters for escapes, except those that occur in the text.
const PRIVATE: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10fffd}';

impl ChatTemplate {
    /// Renders and tokenizes a conversation. A special token that is spelled out in a message is
    /// encoded as plain text.
    ///
    /// # Errors
    /// The errors of [`render`](Self::render) and [`Tokenizer::encode`].
    pub fn encode(
        &self,
        conversation: &Conversation<'_>,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>> {
        Ok(self.prompt(conversation, tokenizer)?.1)
    }

    /// Returns a conversation as text, as [`render`](Self::render) does, and as token ids, as
    /// [`encode`](Self::encode) does.
    ///
    /// # Errors
    /// See [`encode`](Self::encode).
    pub fn prompt(
        &self,
        conversation: &Conversation<'_>,
        tokenizer: &Tokenizer,
    ) -> Result<(String, Vec<u32>)> {
        encode(self, conversation, tokenizer)
    }
}

fn encode(
    template: &ChatTemplate,
    conversation: &Conversation<'_>,
    tokenizer: &Tokenizer,
) -> Result<(String, Vec<u32>)> {
    let special_tokens = SpecialTokenTexts::new(tokenizer);
    let needs_escape = AtomicBool::new(false);
    let plain = template.render_with(conversation, &|text| {
        let found = text.contains(|c| special_tokens.delimiters.contains(&c));
        needs_escape.fetch_or(found, Ordering::Relaxed);
        text.to_string()
    })?;
    let encode = EncodeOptions {
        add_special: false,
        specials: SpecialTokens::Tokens,
    };
    if !needs_escape.into_inner() {
        let ids = tokenizer.encode(&plain, encode)?;
        return Ok((plain, ids));
    }
    let escaper = Escaper::new(&special_tokens.delimiters, &plain)?;
    let escaped = template
        .render_with(conversation, &|text| escaper.escape(text, |_| true))
        .context("with escaped special tokens")?;
    let ids = tokenizer.encode_escaped(&escaped, &|text| escaper.unescape(text))?;
    if escaper.unescape(&escaped) == plain {
        return Ok((plain, ids));
    }
    // The template searches messages for escaped characters, for example for </think>. So escape
    // only complete special tokens, and check that the result has no additional ones.
    let escaped = template.render_with(conversation, &|text| {
        escaper.escape(text, |rest| special_tokens.is_prefix_of(rest))
    })?;
    let checked = tokenizer.encode_escaped(&escaped, &|text| escaper.unescape(text))?;
    let special = |ids: &[u32]| -> Vec<u32> {
        let special = ids.iter().filter(|id| tokenizer.is_control(**id));
        special.copied().collect()
    };
    if special(&checked) != special(&ids) {
        bail!(
            Argument,
            "chat template: a message and the template form a special token together"
        );
    }
    Ok((plain, checked))
}

/// The texts of a vocabulary's special tokens.
struct SpecialTokenTexts<'t> {
    /// Their first and last characters, except letters and digits, which are too common to escape.
    delimiters: BTreeSet<char>,
    texts: HashSet<&'t str>,
    /// Their lengths in bytes.
    lengths: BTreeSet<usize>,
}

impl<'t> SpecialTokenTexts<'t> {
    fn new(tokenizer: &'t Tokenizer) -> Self {
        let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let control = ids.filter(|id| tokenizer.is_control(*id));
        let text = |id| str::from_utf8(tokenizer.token_bytes_with_special(id)).ok();
        let texts: HashSet<&str> = control.filter_map(text).collect();
        let delimiters = texts.iter().flat_map(|text| {
            let mut chars = text.chars();
            [chars.next(), chars.next_back()].into_iter().flatten()
        });
        Self {
            delimiters: delimiters.filter(|c| !c.is_alphanumeric()).collect(),
            lengths: texts.iter().map(|text| text.len()).collect(),
            texts,
        }
    }

    /// Whether `text` starts with a special token.
    fn is_prefix_of(&self, text: &str) -> bool {
        let prefixes = self.lengths.iter().filter_map(|length| text.get(..*length));
        prefixes
            .into_iter()
            .any(|prefix| self.texts.contains(prefix))
    }
}

/// A bijection between characters and their private-use escapes.
struct Escaper {
    escapes: BTreeMap<char, char>,
    originals: BTreeMap<char, char>,
}

impl Escaper {
    /// Creates escapes for `chars` that do not occur in `text`.
    fn new(chars: &BTreeSet<char>, text: &str) -> Result<Self> {
        let used: HashSet<char> = text.chars().filter(|c| PRIVATE.contains(c)).collect();
        let free = PRIVATE.filter(|c| !used.contains(c));
        let escapes: BTreeMap<char, char> = chars.iter().copied().zip(free).collect();
        if escapes.len() < chars.len() {
            bail!(
                TooLarge,
                "the conversation has {} private-use characters, too few remain for escapes",
                used.len()
            );
        }
        let originals = escapes.iter().map(|(from, to)| (*to, *from)).collect();
        Ok(Self { escapes, originals })
    }

    /// Escapes the characters of `text` at which `predicate` accepts the remaining text.
    fn escape(&self, text: &str, predicate: impl Fn(&str) -> bool) -> String {
        let escape = |(at, c)| match self.escapes.get(&c) {
            Some(escaped) if predicate(&text[at..]) => *escaped,
            _ => c,
        };
        text.char_indices().map(escape).collect()
    }

    /// Reverses [`escape`](Self::escape).
    fn unescape<'s>(&self, text: &'s str) -> Cow<'s, str> {
        if !text.contains(|c| PRIVATE.contains(&c)) {
            return Cow::Borrowed(text);
        }
        let unescape = |c| self.originals.get(&c).copied().unwrap_or(c);
        text.chars().map(unescape).collect()
    }
}
