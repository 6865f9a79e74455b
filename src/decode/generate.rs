//! LoadOptions of a generation.

use super::logit_biases::{LogitBiases, breaker_bits};
use super::sampling::Sampling;
use super::speculate::SpeculateOptions;
use crate::error::{Result, bail};
use crate::exec::state::{STOPS_MAX, Sampler};
use crate::op::table::BIASES_MAX;
use crate::text::{CompiledGrammar, Tokenizer};
use std::sync::Arc;

/// What to generate.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// How tokens are picked.
    pub sampling: Sampling,
    /// Tokens at most; 0 goes on until a stop token or a full context.
    pub max_tokens: u32,
    /// Tokens of one submission; 0 adapts: short at the start, longer as long as pieces keep
    /// coming at least every 40 ms. The device's own limit holds, 32 on a CPU.
    pub chain: u32,
    /// Whether the model's own stop tokens are ordinary.
    pub ignore_stops: bool,
    /// Further tokens that end the answer; with the model's own [`GenerateOptions::STOPS_MAX`] at most.
    pub stop_tokens: Vec<u32>,
    /// Texts that end the answer, wherever tokens end, [`GenerateOptions::STOP_STRINGS_MAX`] at most of
    /// [`GenerateOptions::STOP_STRING_BYTES_MAX`] each. No part of one gets out.
    pub stop: Vec<String>,
    /// What happens when the context is full.
    pub overflow: Overflow,
    /// Where guesses at the next tokens come from.
    pub speculate: SpeculateOptions,
    /// The grammar that the answer follows, from [`Model::compile_grammar`](crate::Model::compile_grammar).
    /// It ends where nothing can follow; what can come in one way only is not picked,
    /// unless log-probabilities are asked for.
    pub grammar: Option<Arc<CompiledGrammar>>,
    /// What is added to the logits of tokens in front of every sampler, [`GenerateOptions::BIASES_MAX`] tokens
    /// at most; -inf bans one. Those of one token add up.
    pub logit_bias: Vec<(u32, f32)>,
    /// So many tokens come before a stop token may.
    pub min_tokens: u32,
    /// What repetitions end at for DRY: any token with one of these texts in it, so many and so long as
    /// stop strings at most. `None`: [`GenerateOptions::DRY_BREAKERS`].
    pub dry_breakers: Option<Vec<String>>,
    /// Has every piece tell how likely its token was, and so many of the likeliest,
    /// [`GenerateOptions::LOG_PROBS_MAX`] at most. Steps are submitted one by one then.
    pub log_probs: Option<u32>,
}

impl GenerateOptions {
    /// Stop tokens at most.
    pub const STOPS_MAX: usize = STOPS_MAX;
    /// Stop strings at most.
    pub const STOP_STRINGS_MAX: usize = 64;
    /// Bytes of a stop string at most.
    pub const STOP_STRING_BYTES_MAX: usize = 1024;

    /// Tokens that have a bias at most.
    pub const BIASES_MAX: u32 = BIASES_MAX;
    /// Likeliest tokens that are told at most.
    pub const LOG_PROBS_MAX: u32 = 20;
    /// What repetitions end at for DRY unless somebody says otherwise, as llama.cpp has it.
    pub const DRY_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

    /// Holds every option to its range.
    pub(super) fn check(&self) -> Result<()> {
        self.sampling.check()?;
        let (wanted, most) = (self.log_probs.unwrap_or(0), Self::LOG_PROBS_MAX);
        if wanted > most {
            bail!(Argument, "log_probs {wanted} is over {most}");
        }
        let (own, most) = (self.stop_tokens.len(), Self::STOPS_MAX);
        if own > most {
            bail!(Argument, "{own} stop tokens are over the limit of {most}");
        }
        check_texts("stop string", &self.stop)?;
        let breakers = self.dry_breakers.as_deref();
        check_texts("DRY breaker", breakers.unwrap_or(&[]))
    }

    /// Creates the logit biases and DRY breakers of the answer.
    pub(super) fn steering(&self, tokenizer: &Tokenizer, vocab: u32) -> Result<LogitBiases> {
        let breakers = match &self.dry_breakers {
            _ if self.sampling.dry_multiplier == 0.0 => Vec::new(),
            None => breaker_bits(tokenizer, vocab, &Self::DRY_BREAKERS),
            Some(breakers) => breaker_bits(tokenizer, vocab, breakers),
        };
        LogitBiases::new(vocab, &self.logit_bias, breakers)
    }

    /// How an answer picks the tokens behind `len`, `picked` of them its own.
    pub(super) fn sampler(
        &self,
        steering: &LogitBiases,
        stops: &[u32],
        (len, picked): (usize, usize),
    ) -> Sampler {
        let count = u32::try_from(steering.biases.len()).expect("no more than have room");
        let early = (self.min_tokens as usize).saturating_sub(picked);
        let stop_from = match early {
            0 => 0,
            // Positions are under the context, which is less than that.
            early => u32::try_from(len + early).unwrap_or(u32::MAX),
        };
        Sampler {
            bias_count: count,
            stop_from,
            log_probs: u32::from(self.log_probs.is_some()),
            masked: u32::from(self.grammar.is_some()),
            ..self.sampling.sampler(stops)
        }
    }
}

/// Holds texts to a number and a length.
fn check_texts(what: &str, texts: &[String]) -> Result<()> {
    let (count, most) = (texts.len(), GenerateOptions::STOP_STRINGS_MAX);
    if count > most {
        bail!(Argument, "{count} {what}s are over the limit of {most}");
    }
    let most = GenerateOptions::STOP_STRING_BYTES_MAX;
    for (at, text) in texts.iter().enumerate() {
        let bytes = text.len();
        if !(1..=most).contains(&bytes) {
            bail!(Argument, "{what} {at} has {bytes} bytes, not 1 to {most}");
        }
    }
    Ok(())
}

/// What happens when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Generation ends.
    #[default]
    Stop,
    /// The older half of the sequence behind its first `keep` tokens is forgotten, and the rest
    /// computed anew at its new positions.
    Shift {
        /// Tokens at the front that stay, half of the context at most; one that begins texts
        /// (BOS) stays in any case.
        keep: u32,
    },
}
