//! Special tokens: lookup by text, and splitting of texts at them.

use super::pieces::TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tabla_core::error::{Result, bail};

/// A fragment of a text: a special token, or the text between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// Ordinary text.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// Options of an added token, as in `tokenizer.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the fields of AddedToken in tokenizer.json"
)]
pub(super) struct AddedTokenOptions {
    /// Whether the white space before it is removed.
    pub(super) lstrip: bool,
    /// Whether the white space after it is removed.
    pub(super) rstrip: bool,
    /// Whether it matches only if no letter, digit or underscore is adjacent.
    pub(super) single_word: bool,
    /// Whether it is matched in normalized text.
    pub(super) normalized: bool,
}

/// The special tokens of a vocabulary.
///
/// Each position of a text is looked up once per distinct token length, longest first. So the cost
/// does not grow with the number of tokens (Gemma has more than six thousand).
#[derive(Debug)]
pub(super) struct SpecialTokenIndex {
    ids: HashMap<Box<str>, u32>,
    /// Options that differ from the default, by id.
    pub(super) options: HashMap<u32, AddedTokenOptions>,
    /// Distinct lengths in bytes, longest first, by first byte.
    lengths: Vec<Vec<usize>>,
}

impl SpecialTokenIndex {
    /// Creates the table. The first of duplicate texts wins; empty texts are skipped.
    pub(super) fn new<'a>(
        tokens: impl Iterator<Item = (u32, &'a str)>,
        options: HashMap<u32, AddedTokenOptions>,
    ) -> Self {
        let mut specials = Self {
            ids: HashMap::new(),
            options,
            lengths: vec![Vec::new(); 256],
        };
        for (id, text) in tokens {
            let Some(&first) = text.as_bytes().first() else {
                continue;
            };
            specials.ids.entry(text.into()).or_insert(id);
            let lengths = &mut specials.lengths[usize::from(first)];
            if let Err(at) = lengths.binary_search_by(|length| text.len().cmp(length)) {
                lengths.insert(at, text.len());
            }
        }
        specials
    }

    /// Returns the id of a special token by its text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Returns the texts of the special tokens, in the order of ids.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.ids.iter().collect();
        all.sort_unstable_by_key(|(_, id)| **id);
        all.into_iter().map(|(text, _)| &**text).collect()
    }

    /// Returns the table of the tokens that are matched in normalized text, whose texts `normalize` normalizes;
    /// `None` if there are none.
    ///
    /// # Errors
    /// Those of `normalize`, `TooLarge` for texts over the limit.
    pub(super) fn of_normalized(
        &self,
        normalize: impl Fn(&str) -> Result<String>,
    ) -> Result<Option<Self>> {
        let is_normalized = |id: &u32| self.options.get(id).is_some_and(|o| o.normalized);
        let all = self.ids.iter().filter(|(_, id)| is_normalized(id));
        let (mut tokens, mut bytes) = (Vec::new(), 0);
        for (text, id) in all {
            let text = normalize(text)?;
            bytes += text.len();
            if bytes > TEXT_BYTES_MAX {
                bail!(
                    TooLarge,
                    "normalized special tokens exceed the limit of {TEXT_BYTES_MAX} bytes"
                );
            }
            tokens.push((*id, text));
        }
        tokens.sort_unstable();
        let mut options = self.options.clone();
        for options in options.values_mut() {
            options.normalized = false;
        }
        let texts = tokens.iter().map(|(id, text)| (*id, &**text));
        Ok((!tokens.is_empty()).then(|| Self::new(texts, options)))
    }

    /// Splits a text at the leftmost longest special tokens that `accepts` accepts, except those that are matched
    /// in normalized text.
    pub(super) fn split<'t>(
        &self,
        text: &'t str,
        accepts: impl Fn(u32) -> bool,
    ) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        let (mut start, mut at) = (0, 0);
        while let Some(&first) = text.as_bytes().get(at) {
            let token = self.lengths[usize::from(first)].iter().find_map(|&length| {
                let id = *self.ids.get(text.get(at..at + length)?)?;
                let is_normalized = self.options.get(&id).is_some_and(|o| o.normalized);
                (!is_normalized && accepts(id)).then_some((id, at + length))
            });
            let Some((id, end)) = token else {
                at += 1;
                continue;
            };
            let options = self.options.get(&id).copied().unwrap_or_default();
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let is_in_word = text[..at].ends_with(is_word) || text[end..].starts_with(is_word);
            if options.single_word && is_in_word {
                at = end;
                continue;
            }
            let mut before = &text[start..at];
            if options.lstrip {
                before = before.trim_end();
            }
            if !before.is_empty() {
                fragments.push(Fragment::Text(before));
            }
            fragments.push(Fragment::Token(id));
            start = end;
            if options.rstrip {
                start = text.len() - text[end..].trim_start().len();
            }
            at = start;
        }
        if start < text.len() {
            fragments.push(Fragment::Text(&text[start..]));
        }
        fragments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fragment::{Text, Token};

    fn check(text: &str, expected: &[Fragment<'_>]) {
        let tokens = ["<a>", "<a><b>", "", "日本", "<a>", "\n\n", "<t>", "on"];
        let strip = AddedTokenOptions {
            lstrip: true,
            rstrip: true,
            ..AddedTokenOptions::default()
        };
        let word = AddedTokenOptions {
            single_word: true,
            ..AddedTokenOptions::default()
        };
        let specials =
            SpecialTokenIndex::new((0..).zip(tokens), HashMap::from([(6, strip), (7, word)]));
        assert_eq!(specials.split(text, |id| id != 5), expected, "{text:?}");
    }

    #[test]
    fn finds_longest_token_at_leftmost_position() {
        check("", &[]);
        check("plain", &[Text("plain")]);
        check("x<a>y", &[Text("x"), Token(0), Text("y")]);
        check("<a><b><a>", &[Token(1), Token(0)]);
        check("<<a>", &[Text("<"), Token(0)]);
        check("<a", &[Text("<a")]);
    }

    #[test]
    fn does_not_split_characters() {
        check("日本日", &[Token(3), Text("日")]);
        check("\u{65e5}\u{672c}", &[Token(3)]);
        check("旦日本", &[Text("旦"), Token(3)]);
    }

    #[test]
    fn rejected_token_is_text() {
        check("a\n\nb", &[Text("a\n\nb")]);
    }

    #[test]
    fn strips_white_space_around_tokens() {
        check("a \n<t>  b", &[Text("a"), Token(6), Text("b")]);
        check(" <t> <t> <a> ", &[Token(6), Token(6), Token(0), Text(" ")]);
    }

    #[test]
    fn single_word_token_needs_word_boundaries() {
        check("on", &[Token(7)]);
        check("upon on, only", &[Text("upon "), Token(7), Text(", only")]);
    }
}
