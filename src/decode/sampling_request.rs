//! Sampling settings of a request.

use super::burst::Burst;
use super::drafter::Drafter;
use super::grammar_state::GrammarState;
use super::logit_biases::LogitBiases;
use super::sampling::{Sampling, sampling_stage};
use crate::op::params::Sampler;
use crate::op::table::SamplingStage;

/// How many tokens a request samples, and how.
#[derive(Debug)]
pub(super) struct SamplingRequest {
    /// Sampler parameters in the layout of the device.
    pub(super) sampler: Sampler,
    /// Logit biases and DRY breakers.
    pub(super) logit_biases: LogitBiases,
    /// Sampling stage that these settings need.
    pub(super) stage: SamplingStage,
    /// Maximum number of tokens. A full context also ends the request.
    pub(super) limit: usize,
    /// Burst size.
    pub(super) burst: Burst,
    /// Grammar that constrains the tokens.
    pub(super) grammar_state: Option<Box<GrammarState>>,
    /// Drafter for speculative decoding.
    pub(super) drafter: Option<Drafter>,
}

/// Whether steps output log-probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogprobsMode {
    Off,
    On,
}

impl SamplingRequest {
    /// Creates a request for one token.
    pub(super) fn one(sampling: &Sampling) -> Self {
        Self::plain(sampling, 1, 1)
    }

    /// Creates a request for at most `limit` tokens without further options, in bursts of at most
    /// `max_burst` steps.
    pub(super) fn plain(sampling: &Sampling, limit: u32, max_burst: u32) -> Self {
        let sampler = sampling.sampler(&[]);
        Self {
            stage: sampling_stage(&sampler),
            sampler,
            logit_biases: LogitBiases::default(),
            limit: limit as usize,
            burst: Burst::new(limit, max_burst),
            grammar_state: None,
            drafter: None,
        }
    }

    /// Returns whether a grammar constrains the tokens.
    pub(super) fn uses_grammar(&self) -> bool {
        self.sampler.masked != 0
    }

    /// Returns whether steps output log-probabilities.
    pub(super) fn logprobs_mode(&self) -> LogprobsMode {
        match self.sampler.logprobs {
            0 => LogprobsMode::Off,
            _ => LogprobsMode::On,
        }
    }
}
