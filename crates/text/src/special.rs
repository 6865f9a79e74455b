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

/// What a special token takes with it, and where it may stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// White space in front of it goes away.
    pub(super) left: Space,
    /// White space behind it goes away.
    pub(super) right: Space,
    pub(super) place: Place,
}

/// What becomes of white space beside a special token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Space {
    #[default]
    Stays,
    Goes,
}

/// Where a special token is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Anywhere,
    /// Not beside a letter, a digit or an underscore.
    WholeWord,
}

/// The special tokens by their spelling.
///
/// A spelling is looked up by its length, longest first, so that the cost at a place does not grow
/// with the number of tokens (Gemma has more than six thousand), and content is never compiled.
#[derive(Debug)]
pub(super) struct Specials {
    ids: HashMap<Box<str>, u32>,
    /// Of those that are not like most.
    reach: HashMap<u32, Reach>,
    /// Lengths in bytes, longest first, by first byte.
    lengths: Vec<Vec<usize>>,
}

impl Specials {
    /// Of two tokens with one spelling the first counts. Empty spellings are left out.
    pub(super) fn new<'a>(
        tokens: impl Iterator<Item = (u32, &'a str)>,
        reach: HashMap<u32, Reach>,
    ) -> Self {
        let mut specials = Self {
            ids: HashMap::new(),
            reach,
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
                wanted(id).then_some((id, at + length))
            });
            let Some((id, end)) = found else {
                at += 1;
                continue;
            };
            let reach = self.reach.get(&id).copied().unwrap_or_default();
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let sides = [
                text[..at].ends_with(is_word),
                text[end..].starts_with(is_word),
            ];
            if reach.place == Place::WholeWord && sides.contains(&true) {
                at = end;
                continue;
            }
            let mut before = &text[done..at];
            if reach.left == Space::Goes {
                before = before.trim_end();
            }
            if !before.is_empty() {
                parts.push(Part::Text(before));
            }
            parts.push(Part::Token(id));
            done = end;
            if reach.right == Space::Goes {
                done = text.len() - text[end..].trim_start().len();
            }
            at = done;
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
        let tokens = ["<a>", "<a><b>", "", "日本", "<a>", "\n\n", "<t>", "on"];
        let goes = Reach {
            left: Space::Goes,
            right: Space::Goes,
            place: Place::Anywhere,
        };
        let word = Reach {
            place: Place::WholeWord,
            ..Reach::default()
        };
        let specials = Specials::new((0..).zip(tokens), HashMap::from([(6, goes), (7, word)]));
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

    #[test]
    fn white_space_goes_where_a_token_says_so() {
        check("a \n<t>  b", &[Text("a"), Token(6), Text("b")]);
        check(" <t> <t> <a> ", &[Token(6), Token(6), Token(0), Text(" ")]);
    }

    #[test]
    fn a_whole_word_stands_alone() {
        check("on", &[Token(7)]);
        check("upon on, only", &[Text("upon "), Token(7), Text(", only")]);
    }
}
