//! How a request picks its tokens.

use super::burst::Burst;
use super::drafter::Drafter;
use super::grammar_state::GrammarState;
use super::logit_biases::LogitBiases;
use super::sampling::{Sampling, tail};
use crate::exec::state::Sampler;
use crate::op::table::SamplingStage;

/// How tokens are picked, and how many.
#[derive(Debug)]
pub(super) struct SamplingRequest {
    /// As the device has it.
    pub(super) sampler: Sampler,
    /// What it has beside numbers.
    pub(super) steering: LogitBiases,
    /// The tail of tables that picks so.
    pub(super) tail: SamplingStage,
    /// Tokens at most; the context ends it in any case.
    pub(super) limit: usize,
    /// How many come in one submission.
    pub(super) chain: Burst,
    /// The grammar that they follow.
    pub(super) follow: Option<Box<GrammarState>>,
    /// What makes guesses at them.
    pub(super) guesser: Option<Drafter>,
}

/// What steps tell beside tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogProbsMode {
    Nothing,
    LogProbs,
}

impl SamplingRequest {
    /// One token.
    pub(super) fn one(sampling: &Sampling) -> Self {
        Self::plain(sampling, 1, 1)
    }

    /// At most `limit` tokens by `sampling` alone, in submissions of at most `longest` tokens.
    pub(super) fn plain(sampling: &Sampling, limit: u32, longest: u32) -> Self {
        let sampler = sampling.sampler(&[]);
        Self {
            tail: tail(&sampler),
            sampler,
            steering: LogitBiases::default(),
            limit: limit as usize,
            chain: Burst::new(limit, longest),
            follow: None,
            guesser: None,
        }
    }

    /// Whether its tokens follow a grammar.
    pub(super) fn follows(&self) -> bool {
        self.sampler.masked != 0
    }

    /// What its steps tell beside tokens.
    pub(super) fn tells(&self) -> LogProbsMode {
        match self.sampler.log_probs {
            0 => LogProbsMode::Nothing,
            _ => LogProbsMode::LogProbs,
        }
    }
}
