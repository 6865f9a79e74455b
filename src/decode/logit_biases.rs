//! Logit biases and DRY sequence breakers of an answer.

use crate::error::{Result, bail};
use crate::exec::state::Bias;
use crate::op::table::BIASES_MAX;
use crate::text::Tokenizer;
use std::sync::Arc;

/// It goes with every request of an answer, and nothing of it is copied.
#[derive(Clone, Debug, Default)]
pub(super) struct LogitBiases {
    /// What is added to logits, each for a token of its own.
    pub(super) biases: Arc<[Bias]>,
    /// A bit for each token that no repetition holds; none where DRY is off.
    pub(super) breakers: Arc<[u32]>,
}

impl LogitBiases {
    /// Checks and merges the biases. `breakers` is what [`breaker_bits`] returns; empty: DRY is off.
    pub(super) fn new(vocab: u32, biases: &[(u32, f32)], breakers: Vec<u32>) -> Result<Self> {
        Ok(Self {
            biases: merged(vocab, biases)?.into(),
            breakers: breakers.into(),
        })
    }
}

/// The biases of tokens, each with one.
fn merged(vocab: u32, biases: &[(u32, f32)]) -> Result<Vec<Bias>> {
    let mut merged: Vec<Bias> = Vec::new();
    for &(token, bias) in biases {
        if token >= vocab {
            bail!(
                Argument,
                "token {token} is outside the vocabulary of {vocab}"
            );
        }
        let known = merged.iter().position(|known| known.token == token);
        let sum = known.map_or(0.0, |at| merged[at].bias) + bias;
        if sum.is_nan() || sum == f32::INFINITY {
            bail!(Argument, "the bias of token {token} is {sum}");
        }
        match known {
            Some(at) => merged[at].bias = sum,
            None if merged.len() == BIASES_MAX as usize => {
                bail!(Argument, "more than {BIASES_MAX} tokens have a bias");
            }
            None => merged.push(Bias { token, bias }),
        }
    }
    Ok(merged)
}

/// A bit for each token whose text has one of `breakers` in it.
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
    fn biases_of_one_token_add_up() {
        let bias = |token, bias| Bias { token, bias };
        let found = merged(9, &[(3, 1.5), (8, f32::NEG_INFINITY), (3, -1.0)]);
        assert_eq!(
            found.expect("three"),
            [bias(3, 0.5), bias(8, f32::NEG_INFINITY)]
        );
        let many: Vec<(u32, f32)> = (0..=BIASES_MAX).map(|token| (token, 1.0)).collect();
        for (bad, words) in [
            (&[(9, 1.0)][..], "token 9 is outside the vocabulary of 9"),
            (&[(2, f32::NAN)], "the bias of token 2 is NaN"),
            (&[(2, f32::INFINITY)], "the bias of token 2 is inf"),
            (
                &[(2, f32::MAX), (2, f32::MAX)],
                "the bias of token 2 is inf",
            ),
        ] {
            assert_eq!(merged(9, bad).expect_err(words).message(), words);
        }
        let error = merged(1000, &many).expect_err("one too many");
        assert_eq!(error.message(), "more than 512 tokens have a bias");
    }
}
