//! Options of text generation.

use super::generate_fields::generate_options;
use super::grammar_start::GrammarStart;
use super::logit_biases::{LogitBiases, breaker_bits, merged};
use super::model::Model;
use super::reasoning::ReasoningMarkers;
use super::sampling::Sampling;
use super::speculate::SpeculateOptions;
use super::text_limits::{BYTES_MAX, COUNT_MAX, check_texts};
use crate::error::{Result, bail};
use crate::exec::state::STOPS_MAX;
use crate::op::params::Sampler;
use crate::op::table::BIASES_MAX;
use crate::text::Tokenizer;

generate_options! {
    tabla_core::options,
    /// Options of [`Session::generate`](crate::Session::generate). The default samples with
    /// [`Sampling::default`](crate::Sampling::default) until a stop token or a full context.
    #[derive(Clone, Debug)]
    pub struct GenerateOptions
}

impl GenerateOptions {
    /// Maximum number of stop tokens.
    pub const STOPS_MAX: usize = STOPS_MAX;
    /// Maximum number of stop strings.
    pub const STOP_STRINGS_MAX: usize = COUNT_MAX;
    /// Maximum length of a stop string in bytes.
    pub const STOP_STRING_BYTES_MAX: usize = BYTES_MAX;

    /// Maximum number of tokens with a bias.
    pub const BIASES_MAX: u32 = BIASES_MAX;
    /// Maximum of [`GenerateOptions::logprobs`].
    pub const LOGPROBS_MAX: u32 = 20;
    /// Default DRY sequence breakers, the same as in llama.cpp.
    pub const DRY_SEQUENCE_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

    /// Checks every option, as [`Session::generate`](crate::Session::generate) does before it starts.
    ///
    /// # Errors
    ///
    /// `Argument`, with the option, its value and the limit; `Unsupported` for a context shift of a model with
    /// recurrent layers.
    pub fn check(&self, model: &Model) -> Result<()> {
        self.sampling.check()?;
        let (count, max) = (self.logprobs.unwrap_or(0), Self::LOGPROBS_MAX);
        if count > max {
            bail!(Argument, "logprobs must be at most {max}, got {count}");
        }
        let (count, max) = (self.stop_token_ids.len(), Self::STOPS_MAX);
        if count > max {
            bail!(Argument, "expected at most {max} stop tokens, got {count}");
        }
        check_texts("stop string", &self.stop)?;
        let breakers = self.dry_sequence_breakers.as_deref();
        check_texts("DRY breaker", breakers.unwrap_or(&[]))?;
        self.speculate.check(model)?;
        if matches!(self.overflow, Overflow::Shift { .. }) && model.facts().state_bytes > 0 {
            bail!(
                Unsupported,
                "context shift: the model has recurrent layers, whose state cannot forget tokens"
            );
        }
        let count = self.all_stop_tokens(model.tokenizer()).len();
        if count > max {
            bail!(
                Argument,
                "expected at most {max} stop tokens including the model's own, got {count}"
            );
        }
        let vocab = model.facts().vocab;
        if let Some(bad) = self.stop_token_ids.iter().find(|token| **token >= vocab) {
            bail!(
                Argument,
                "stop token {bad} is outside the vocabulary of {vocab}"
            );
        }
        if let Some(grammar) = &self.grammar
            && !grammar.is_for(model.tokenizer())
        {
            bail!(Argument, "the grammar was compiled for another model");
        }
        if self.grammar.is_none() && !self.grammar_start.is_immediate() {
            bail!(
                Argument,
                "grammar_start requires a grammar: set GenerateOptions::grammar"
            );
        }
        self.grammar_start.check()?;
        self.reasoning
            .as_ref()
            .map_or(Ok(()), ReasoningMarkers::check)?;
        merged(vocab, &self.logit_bias).map(drop)
    }

    /// Returns the additional stop tokens and the model's own.
    pub(super) fn all_stop_tokens(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let own_stops = if self.ignore_eos {
            &[]
        } else {
            tokenizer.stops()
        };
        [&self.stop_token_ids, own_stops].concat()
    }

    /// Creates the logit biases and DRY sequence breakers.
    pub(super) fn logit_biases(&self, tokenizer: &Tokenizer, vocab: u32) -> Result<LogitBiases> {
        let breakers = match &self.dry_sequence_breakers {
            _ if self.sampling.dry_multiplier == 0.0 => Vec::new(),
            None => breaker_bits(tokenizer, vocab, &Self::DRY_SEQUENCE_BREAKERS),
            Some(breakers) => breaker_bits(tokenizer, vocab, breakers),
        };
        LogitBiases::new(vocab, &self.logit_bias, breakers)
    }

    /// Creates the sampler for the tokens after a sequence of `len` tokens, of which `sampled` were
    /// generated.
    pub(super) fn sampler(
        &self,
        logit_biases: &LogitBiases,
        stops: &[u32],
        len: usize,
        sampled: usize,
    ) -> Sampler {
        let count = u32::try_from(logit_biases.biases.len()).expect("at most BIASES_MAX biases");
        let early = (self.min_tokens as usize).saturating_sub(sampled);
        let stop_from = match early {
            0 => 0,
            // Positions are less than the context length, which is less than `u32::MAX`.
            early => u32::try_from(len + early).unwrap_or(u32::MAX),
        };
        Sampler {
            bias_count: count,
            stop_from,
            logprobs: u32::from(self.logprobs.is_some()),
            ..self.sampling.sampler(stops)
        }
    }
}

/// Behavior when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// Ends the generation.
    #[default]
    Stop,
    /// Context shift: discards the older half of the sequence after its first `n_keep` tokens, and
    /// recomputes the rest at its new positions.
    Shift {
        /// Number of tokens to keep at the start, at most half of the context. A BOS token at the
        /// start is always kept.
        n_keep: u32,
    },
}
