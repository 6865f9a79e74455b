//! Finding the special tokens that are spelt out in a text.

use std::collections::HashMap;

/// A stretch of the text between or at special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    /// Ordinary text.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// The special tokens by their spelling.
///
/// A spelling is looked up by its length, longest first, so that the cost at a place does not grow
/// with the number of tokens (Gemma has more than six thousand), and content is never compiled.
#[derive(Debug)]
pub(super) struct Specials {
    ids: HashMap<Box<str>, u32>,
    /// Lengths in bytes, longest first, by first byte.
    lengths: Vec<Vec<usize>>,
}

impl Specials {
    /// Of two tokens with one spelling the first counts. Empty spellings are left out.
    pub(super) fn new<'a>(tokens: impl Iterator<Item = (u32, &'a str)>) -> Self {
        let mut specials = Self {
            ids: HashMap::new(),
            lengths: vec![Vec::new(); 256],
        };
        for (id, text) in tokens {
            let Some(&first) = text.as_bytes().first() else {
                continue;
            };
            specials.ids.entry(text.into()).or_insert(id);
            let lengths = &mut specials.lengths[usize::from(first)];
            if let Err(at) = lengths.binary_search_by(|&have| text.len().cmp(&have)) {
                lengths.insert(at, text.len());
            }
        }
        specials
    }

    /// The token that is spelt exactly so.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Cuts a text at the leftmost longest special tokens among those that `wanted` accepts.
    pub(super) fn split<'t>(&self, text: &'t str, wanted: impl Fn(u32) -> bool) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let (mut done, mut at) = (0, 0);
        while let Some(&first) = text.as_bytes().get(at) {
            let found = self.lengths[usize::from(first)].iter().find_map(|&length| {
                let id = *self.ids.get(text.get(at..at + length)?)?;
                wanted(id).then_some((id, length))
            });
            let Some((id, length)) = found else {
                at += 1;
                continue;
            };
            if done < at {
                parts.push(Part::Text(&text[done..at]));
            }
            parts.push(Part::Token(id));
            at += length;
            done = at;
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Part::{Text, Token};

    fn check(text: &str, expected: &[Part<'_>]) {
        let tokens = ["<a>", "<a><b>", "", "日本", "<a>", "\n\n"];
        let specials = Specials::new((0..).zip(tokens));
        assert_eq!(specials.split(text, |id| id != 5), expected, "{text:?}");
    }

    #[test]
    fn the_longest_token_at_the_leftmost_place() {
        check("", &[]);
        check("plain", &[Text("plain")]);
        check("x<a>y", &[Text("x"), Token(0), Text("y")]);
        check("<a><b><a>", &[Token(1), Token(0)]);
        check("<<a>", &[Text("<"), Token(0)]);
        check("<a", &[Text("<a")]);
    }

    #[test]
    fn characters_are_not_cut() {
        check("日本日", &[Token(3), Text("日")]);
        check("\u{65e5}\u{672c}", &[Token(3)]);
        check("旦日本", &[Text("旦"), Token(3)]);
    }

    #[test]
    fn an_unwanted_token_is_text() {
        check("a\n\nb", &[Text("a\n\nb")]);
    }
}
