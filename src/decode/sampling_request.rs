//! How a request picks its tokens.

use super::burst::Burst;
use super::drafter::Drafter;
use super::grammar_state::GrammarState;
use super::logit_biases::LogitBiases;
use super::sampling::{Sampling, sampling_stage};
use crate::exec::state::Sampler;
use crate::op::table::SamplingStage;

/// How tokens are picked, and how many.
#[derive(Debug)]
pub(super) struct SamplingRequest {
    /// As the device has it.
    pub(super) sampler: Sampler,
    /// What it has beside numbers.
    pub(super) logit_biases: LogitBiases,
    /// The tail of tables that picks so.
    pub(super) stage: SamplingStage,
    /// Tokens at most; the context ends it in any case.
    pub(super) limit: usize,
    /// How many come in one submission.
    pub(super) burst: Burst,
    /// The grammar that they follow.
    pub(super) grammar_state: Option<Box<GrammarState>>,
    /// What makes guesses at them.
    pub(super) drafter: Option<Drafter>,
}

/// What steps tell beside tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogProbsMode {
    Off,
    On,
}

impl SamplingRequest {
    /// One token.
    pub(super) fn one(sampling: &Sampling) -> Self {
        Self::plain(sampling, 1, 1)
    }

    /// At most `limit` tokens by `sampling` alone, in submissions of at most `longest` tokens.
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

    /// Whether its tokens follow a grammar.
    pub(super) fn uses_grammar(&self) -> bool {
        self.sampler.masked != 0
    }

    /// What its steps tell beside tokens.
    pub(super) fn log_probs_mode(&self) -> LogProbsMode {
        match self.sampler.log_probs {
            0 => LogProbsMode::Off,
            _ => LogProbsMode::On,
        }
    }
}
