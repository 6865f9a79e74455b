//! The tokenizer interface of llguidance: a trie of the token bytes.

use crate::Tokenizer;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use std::sync::Arc;
use tabla_core::error::{Result, bail};

/// Maximum depth of the trie. Longer tokens are never allowed.
const TOKEN_BYTES_MAX: usize = 1000;
/// Maximum length of all tokens together: llguidance limits the trie to four million nodes.
const VOCABULARY_BYTES_MAX: usize = 4_000_000;

struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

/// Builds the llguidance environment of a tokenizer.
///
/// # Errors
/// `TooLarge` over the limits of the trie, `Unsupported` without an end-of-generation token.
pub(super) fn environment(tokenizer: &Arc<Tokenizer>) -> Result<TokEnv> {
    let Some(&end) = tokenizer.stops().first() else {
        bail!(
            Unsupported,
            "the vocabulary has no end-of-generation token, which grammars require"
        );
    };
    let size = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let tokens: Vec<Vec<u8>> = (0..size).map(|id| trie_bytes(tokenizer, id)).collect();
    let bytes: usize = tokens.iter().map(Vec::len).sum();
    if bytes > VOCABULARY_BYTES_MAX {
        bail!(
            TooLarge,
            "a vocabulary of {bytes} bytes exceeds the limit of {VOCABULARY_BYTES_MAX} for grammars"
        );
    }
    let trie = TokTrie::from(&TokRxInfo::new(size, end), &tokens);
    Ok(Arc::new(Vocabulary {
        tokenizer: tokenizer.clone(),
        trie: trie.with_eos_tokens(tokenizer.stops()),
    }))
}

/// Returns the bytes of a token in the trie. Control and end-of-generation tokens start with a
/// marker byte that does not occur in text, so that a grammar can match them only by name.
fn trie_bytes(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes_with_special(id);
    if bytes.len() > TOKEN_BYTES_MAX {
        return Vec::new();
    }
    if tokenizer.is_control(id) || tokenizer.is_stop(id) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat();
    }
    bytes.to_vec()
}

impl Vocabulary {
    /// Returns the canonical tokens of a text that continues another one.
    fn canonical_tokens(&self, text: &str) -> Vec<TokenId> {
        // A tokenizer that normalizes may have no ids for exactly this text.
        let ids = self.tokenizer.encode_continuation(text).ok();
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
            .tokenize_with_greedy_fallback(bytes, |text| self.canonical_tokens(text))
    }
}
