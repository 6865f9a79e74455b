//! Vocabularies of tiktoken: tokens as bytes, in the order in which they are merged.

use super::bpe::{Alphabet, IgnoreMerges};
use super::fallback::Unknown;
use super::kind::VocabKind;
use super::pieces::{TOKENS_MAX, TokenType};
use super::spec::{MergeOrder, ModelSpec, TokenizerSpec};
use super::{bytelevel, pre};
use std::borrow::Cow;
use std::collections::HashMap;
use tabla_core::error::{Result, bail};

/// Maximum length in bytes of a token with a merge. The time to find a merge grows with its square.
const MERGED_BYTES_MAX: usize = 256;

/// A vocabulary of tiktoken with the pre-tokenizer of GPT-2.
#[derive(Clone, Debug, Default)]
pub struct RankedVocab<'a> {
    /// Tokens of text as bytes, by rank, which is the id.
    pub tokens: Vec<&'a [u8]>,
    /// Control tokens, whose ids follow those of text.
    pub controls: Vec<String>,
    /// Tokens that are matched in text, such as timestamps, whose ids follow those of control tokens.
    pub added: Vec<String>,
    /// Ids before a text.
    pub before: Vec<u32>,
    /// Ids after a text.
    pub after: Vec<u32>,
}

/// Returns the merges of a vocabulary, best first: the parts of each token.
pub(super) fn merges<'a>(tokens: &[&'a [u8]]) -> Vec<[&'a [u8]; 2]> {
    let mut ranks = HashMap::new();
    for (rank, token) in tokens.iter().enumerate() {
        ranks.entry(*token).or_insert(rank);
    }
    let listed = tokens.iter().enumerate();
    let parts = listed.filter_map(|(rank, token)| {
        let at = last_merge(token, rank, &ranks)?;
        Some(token.split_at(at).into())
    });
    parts.collect()
}

/// Returns the position in a token between the two parts that training merged last: those that the
/// better merges produce. `None` for a token that they do not produce, such as a single byte.
fn last_merge(token: &[u8], rank: usize, ranks: &HashMap<&[u8], usize>) -> Option<usize> {
    if !(2..=MERGED_BYTES_MAX).contains(&token.len()) {
        return None;
    }
    let rank_of = |from: usize, to: usize| ranks.get(&token[from..to]).filter(|r| **r < rank);
    // Starts of parts with the rank of the part and the next one, and the end.
    let mut starts: Vec<usize> = (0..=token.len()).collect();
    let mut pairs: Vec<Option<usize>> = starts
        .array_windows()
        .map(|[from, _, to]| rank_of(*from, *to).copied())
        .collect();
    while starts.len() > 3 {
        let ranked = pairs.iter().enumerate();
        let best = ranked.filter_map(|(at, rank)| Some((rank.as_ref()?, at)));
        let (_, at) = best.min()?;
        starts.remove(at + 1);
        pairs.remove(at);
        for pair in at.saturating_sub(1)..=at {
            if let Some(slot) = pairs.get_mut(pair) {
                *slot = rank_of(starts[pair], starts[pair + 2]).copied();
            }
        }
    }
    // Both parts are better tokens; a single byte that is no token has no merge.
    let at = starts[1];
    (rank_of(0, at).is_some() && rank_of(at, token.len()).is_some()).then_some(at)
}

/// Returns the specification of a tokenizer with the pre-tokenizer of GPT-2: `tokens` by rank, which
/// is their id, then `specials`. Two symbols whose bytes together are a token are merged, the token
/// with the lowest rank first.
///
/// # Errors
///
/// `TooLarge` for a vocabulary over the limits.
pub(super) fn spec<'a>(tokens: &[&[u8]], specials: &'a [String]) -> Result<TokenizerSpec<'a>> {
    let count = tokens.len() + specials.len();
    if count > TOKENS_MAX {
        bail!(TooLarge, "{count} tokens exceed the limit of {TOKENS_MAX}");
    }
    let (name, row) = pre::find(Some("gpt-2"), count)?;
    let texts = tokens
        .iter()
        .map(|token| Cow::Owned(bytelevel::encode(token)));
    let special_texts = specials.iter().map(|text| Cow::Borrowed(text.as_str()));
    let mut token_types = vec![TokenType::Normal; tokens.len()];
    token_types.resize(count, TokenType::Control);
    let ranks = (0..count).map(|rank| -f64::from(u32::try_from(rank).unwrap_or(u32::MAX)));
    Ok(TokenizerSpec {
        kind: VocabKind::Gpt2,
        pre: Some(name),
        tokens: texts.chain(special_texts).collect(),
        token_types,
        added_token_options: HashMap::new(),
        steps: row.steps()?,
        normalizer_steps: 0,
        model: ModelSpec::Bpe {
            alphabet: Alphabet::Bytes,
            order: MergeOrder::Scores(ranks.collect()),
            ignore_merges: IgnoreMerges::Always,
            unknown: Unknown::Fused,
        },
        unk: None,
        before: Vec::new(),
        after: Vec::new(),
        pair: None,
        bos: None,
        eos: None,
        stops: Vec::new(),
        add_space_prefix: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<'a>(tokens: &[&'a str]) -> Vec<&'a [u8]> {
        tokens.iter().map(|token| token.as_bytes()).collect()
    }

    #[test]
    fn merges_follow_ranks() {
        // `abc` is `ab` and `c`, because `ab` is merged before `bc`. `xy` has a part that is no token.
        let tokens = bytes(&["a", "b", "c", "ab", "bc", "abc", "bcab", "x", "xy", ""]);
        let text = |part: &[u8]| String::from_utf8(part.to_vec()).unwrap();
        let merges: Vec<_> = merges(&tokens)
            .iter()
            .map(|parts| parts.map(text).join(" "))
            .collect();
        assert_eq!(merges, ["a b", "b c", "ab c", "bc ab"]);
    }

    #[test]
    fn long_tokens_have_no_merge() {
        let long = "a".repeat(MERGED_BYTES_MAX);
        let longer = "a".repeat(2 * MERGED_BYTES_MAX);
        let half = "a".repeat(MERGED_BYTES_MAX / 2);
        let tokens = bytes(&["a", &half, &long, &longer]);
        assert!(merges(&tokens).is_empty());
    }
}
