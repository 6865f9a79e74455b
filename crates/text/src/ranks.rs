//! Vocabularies of tiktoken: tokens as bytes, in the order in which they are merged.

use super::bpe::{Alphabet, IgnoreMerges};
use super::bytelevel;
use super::kind::VocabKind;
use super::pieces::{TOKENS_MAX, TokenType};
use super::pre;
use super::spec::{MergeOrder, ModelSpec, TokenizerSpec, Unknown};
use std::borrow::Cow;
use std::collections::HashMap;
use tabla_core::error::{Result, bail};

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
        model: ModelSpec::Bpe {
            alphabet: Alphabet::Bytes,
            order: MergeOrder::Scores(ranks.collect()),
            ignore_merges: IgnoreMerges::Always,
            unknown: Unknown::Fused,
        },
        unk: None,
        before: Vec::new(),
        after: Vec::new(),
        bos: None,
        eos: None,
        stops: Vec::new(),
        add_space_prefix: false,
    })
}
