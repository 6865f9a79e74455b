//! Ids of a conversation in which nobody but the template writes special tokens.
//!
//! A template joins what it writes itself with what users wrote, and may trim, cut and escape the
//! latter on the way. To tell the two apart afterwards, characters of users' texts that special
//! tokens begin or end with are hidden while the template runs: each stands as one character of a
//! private plane, so that lengths and white space are what they were. Special tokens are then
//! looked for, and the characters shown again behind that.

use super::template::{ChatTemplate, Conversation};
use crate::{Encode, Specials, Tokenizer};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tabla_core::error::{Context, Result, bail};

/// Private characters that stand for others, where a text has none of them already.
const PRIVATE: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10fffd}';

impl ChatTemplate {
    /// The ids of a conversation. Special tokens come from the template and its tokenizer alone:
    /// where a message spells one, it is text.
    ///
    /// # Errors
    /// As [`render`](Self::render), and as [`Tokenizer::encode`].
    pub fn encode(
        &self,
        conversation: &Conversation<'_>,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>> {
        encode(self, conversation, tokenizer)
    }
}

fn encode(
    template: &ChatTemplate,
    conversation: &Conversation<'_>,
    tokenizer: &Tokenizer,
) -> Result<Vec<u32>> {
    let marks = Marks::of(tokenizer);
    let any = Cell::new(false);
    let plain = template.render_with(conversation, &|text| {
        any.set(any.get() || text.contains(|c| marks.ends.contains(&c)));
        text.to_string()
    })?;
    let encode = Encode {
        add_special: false,
        specials: Specials::Tokens,
    };
    if !any.get() {
        return tokenizer.encode(&plain, encode);
    }
    let veil = Veil::new(&marks.ends, &plain)?;
    let hidden = template
        .render_with(conversation, &|text| veil.hide(text, |_| true))
        .context("with the characters of special tokens hidden")?;
    let ids = tokenizer.encode_veiled(&hidden, &|text| veil.show(text))?;
    if veil.show(&hidden) == plain {
        return Ok(ids);
    }
    // The template looks for such characters in what users wrote, </think> for example. So only
    // those stay hidden that spell a special token; that no other comes up is checked.
    let hidden = template.render_with(conversation, &|text| {
        veil.hide(text, |rest| marks.spelt_at(rest))
    })?;
    let found = tokenizer.encode_veiled(&hidden, &|text| veil.show(text))?;
    let special = |ids: &[u32]| -> Vec<u32> {
        let special = ids.iter().filter(|id| tokenizer.is_control(**id));
        special.copied().collect()
    };
    if special(&found) != special(&ids) {
        bail!(
            Argument,
            "chat template: the messages and the template spell a special token together"
        );
    }
    Ok(found)
}

/// The special tokens of a vocabulary, by what gives them away.
struct Marks<'t> {
    /// Characters that they begin or end with; letters and digits are too common to hide.
    ends: BTreeSet<char>,
    spellings: HashSet<&'t str>,
    /// Lengths in bytes.
    lengths: BTreeSet<usize>,
}

impl<'t> Marks<'t> {
    fn of(tokenizer: &'t Tokenizer) -> Self {
        let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let control = ids.filter(|id| tokenizer.is_control(*id));
        let spelling = |id| str::from_utf8(tokenizer.token_spelling(id)).ok();
        let spellings: HashSet<&str> = control.filter_map(spelling).collect();
        let ends = spellings.iter().flat_map(|text| {
            let mut chars = text.chars();
            [chars.next(), chars.next_back()].into_iter().flatten()
        });
        Self {
            ends: ends.filter(|c| !c.is_alphanumeric()).collect(),
            lengths: spellings.iter().map(|text| text.len()).collect(),
            spellings,
        }
    }

    /// Whether a text begins with a special token.
    fn spelt_at(&self, text: &str) -> bool {
        let heads = self.lengths.iter().filter_map(|length| text.get(..*length));
        heads.into_iter().any(|head| self.spellings.contains(head))
    }
}

/// Characters and what stands for them.
struct Veil {
    hidden: BTreeMap<char, char>,
    shown: BTreeMap<char, char>,
}

impl Veil {
    /// For these characters, in a text that shall not be mistaken.
    fn new(chars: &BTreeSet<char>, text: &str) -> Result<Self> {
        let used: HashSet<char> = text.chars().filter(|c| PRIVATE.contains(c)).collect();
        let free = PRIVATE.filter(|c| !used.contains(c));
        let hidden: BTreeMap<char, char> = chars.iter().copied().zip(free).collect();
        if hidden.len() < chars.len() {
            bail!(
                TooLarge,
                "the conversation has {} private characters, which leaves none to use",
                used.len()
            );
        }
        let shown = hidden.iter().map(|(from, to)| (*to, *from)).collect();
        Ok(Self { hidden, shown })
    }

    /// The text with its characters hidden where `wanted` says so of what begins there.
    fn hide(&self, text: &str, wanted: impl Fn(&str) -> bool) -> String {
        let hide = |(at, c)| match self.hidden.get(&c) {
            Some(hidden) if wanted(&text[at..]) => *hidden,
            _ => c,
        };
        text.char_indices().map(hide).collect()
    }

    /// The text with its characters shown.
    fn show<'s>(&self, text: &'s str) -> Cow<'s, str> {
        if !text.contains(|c| PRIVATE.contains(&c)) {
            return Cow::Borrowed(text);
        }
        let show = |c| self.shown.get(&c).copied().unwrap_or(c);
        text.chars().map(show).collect()
    }
}
