//! Logit biases and DRY sequence breakers of a generation.

use crate::error::{Result, bail};
use crate::op::params::Bias;
use crate::op::table::BIASES_MAX;
use crate::text::Tokenizer;
use std::sync::Arc;

/// Logit biases and DRY breakers, shared by all requests of a generation.
#[derive(Clone, Debug, Default)]
pub(super) struct LogitBiases {
    /// Bias of each token.
    pub(super) biases: Arc<[Bias]>,
    /// Bit set of the tokens that end a repetition; empty if DRY is off.
    pub(super) breakers: Arc<[u32]>,
}

impl LogitBiases {
    /// Checks and merges the biases. `breakers` comes from [`breaker_bits`], or is empty if DRY is
    /// off.
    pub(super) fn new(vocab: u32, biases: &[(u32, f32)], breakers: Vec<u32>) -> Result<Self> {
        Ok(Self {
            biases: merged(vocab, biases)?.into(),
            breakers: breakers.into(),
        })
    }
}

/// Adds up the biases of each token.
///
/// # Errors
///
/// `Argument` for a token outside the vocabulary, an invalid sum, or too many tokens.
pub(super) fn merged(vocab: u32, biases: &[(u32, f32)]) -> Result<Vec<Bias>> {
    let mut merged: Vec<Bias> = Vec::new();
    for &(token, bias) in biases {
        if token >= vocab {
            bail!(
                Argument,
                "token {token} is outside the vocabulary of {vocab}"
            );
        }
        let existing = merged.iter().position(|existing| existing.token == token);
        let sum = existing.map_or(0.0, |at| merged[at].bias) + bias;
        if sum.is_nan() || sum == f32::INFINITY {
            bail!(Argument, "invalid logit bias of token {token}: {sum}");
        }
        match existing {
            Some(at) => merged[at].bias = sum,
            None if merged.len() == BIASES_MAX as usize => {
                bail!(
                    Argument,
                    "at most {BIASES_MAX} tokens can have a logit bias"
                );
            }
            None => merged.push(Bias { token, bias }),
        }
    }
    Ok(merged)
}

/// Returns the bit set of tokens whose text contains one of `breakers`.
pub(super) fn breaker_bits(
    tokenizer: &Tokenizer,
    vocab: u32,
    breakers: &[impl AsRef<str>],
) -> Vec<u32> {
    let within = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|w| w == part);
    let breaks = |token: u32| {
        let text = tokenizer.token_bytes(token);
        let mut parts = breakers.iter().map(|part| part.as_ref().as_bytes());
        parts.any(|part| within(text, part))
    };
    let mut bits = vec![0; vocab.div_ceil(u32::BITS) as usize];
    for token in (0..vocab).filter(|token| breaks(*token)) {
        bits[(token / u32::BITS) as usize] |= 1 << (token % u32::BITS);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_biases_of_same_token() {
        let bias = |token, bias| Bias { token, bias };
        let actual = merged(9, &[(3, 1.5), (8, f32::NEG_INFINITY), (3, -1.0)]);
        assert_eq!(
            actual.expect("three"),
            [bias(3, 0.5), bias(8, f32::NEG_INFINITY)]
        );
        let many: Vec<(u32, f32)> = (0..=BIASES_MAX).map(|token| (token, 1.0)).collect();
        for (bad, words) in [
            (&[(9, 1.0)][..], "token 9 is outside the vocabulary of 9"),
            (&[(2, f32::NAN)], "invalid logit bias of token 2: NaN"),
            (&[(2, f32::INFINITY)], "invalid logit bias of token 2: inf"),
            (
                &[(2, f32::MAX), (2, f32::MAX)],
                "invalid logit bias of token 2: inf",
            ),
        ] {
            assert_eq!(merged(9, bad).expect_err(words).message(), words);
        }
        let error = merged(1000, &many).expect_err("one too many");
        assert_eq!(error.message(), "at most 512 tokens can have a logit bias");
    }
}
