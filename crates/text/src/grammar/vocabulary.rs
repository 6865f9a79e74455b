//! A tokenizer as the library wants it: what each token writes, in a trie.

use crate::Tokenizer;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use std::sync::Arc;
use tabla_core::error::{Result, bail};

/// Longer tokens are never allowed: the trie is no deeper than this.
const TOKEN_BYTES_MAX: usize = 1000;
/// All tokens together: a trie has less than four million nodes.
const VOCABULARY_BYTES_MAX: usize = 4_000_000;

struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

/// The vocabulary of a tokenizer.
///
/// # Errors
/// `TooLarge` over the limits of the trie, `Unsupported` where nothing ends an answer.
pub(super) fn environment(tokenizer: &Arc<Tokenizer>) -> Result<TokEnv> {
    let Some(&end) = tokenizer.stops().first() else {
        bail!(
            Unsupported,
            "the vocabulary has no token that ends an answer, which a grammar needs"
        );
    };
    let size = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let words: Vec<Vec<u8>> = (0..size).map(|id| word(tokenizer, id)).collect();
    let bytes: usize = words.iter().map(Vec::len).sum();
    if bytes > VOCABULARY_BYTES_MAX {
        bail!(
            TooLarge,
            "a vocabulary of {bytes} bytes is over the limit of {VOCABULARY_BYTES_MAX} for grammars"
        );
    }
    let trie = TokTrie::from(&TokRxInfo::new(size, end), &words);
    Ok(Arc::new(Vocabulary {
        tokenizer: tokenizer.clone(),
        trie: trie.with_eos_tokens(tokenizer.stops()),
    }))
}

/// What a token writes. Markup and what ends an answer have a mark in front that no text has, so
/// that only their names in a grammar stand for them.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let spelling = tokenizer.token_spelling(id);
    if spelling.len() > TOKEN_BYTES_MAX {
        return Vec::new();
    }
    if tokenizer.is_control(id) || tokenizer.is_stop(id) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], spelling].concat();
    }
    spelling.to_vec()
}

impl Vocabulary {
    /// The tokens that the model was trained to see for a text, which lies behind another one.
    fn usual(&self, text: &str) -> Vec<TokenId> {
        // A tokenizer that changes texts has no ids for exactly this one.
        let ids = self.tokenizer.encode_within(text).ok();
        ids.filter(|ids| self.trie.decode_raw(ids) == text.as_bytes())
            .unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie
            .tokenize_with_greedy_fallback(bytes, |text| self.usual(text))
    }
}
