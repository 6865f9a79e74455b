//! How a request picks its tokens.

use super::chain::Chain;
use super::drafter::Guesser;
use super::follow::Follow;
use super::sampling::{Sampling, tail};
use super::steering::Steering;
use crate::exec::state::Sampler;
use crate::op::table::Tail;

/// How tokens are picked, and how many.
#[derive(Debug)]
pub(super) struct Picking {
    /// As the device has it.
    pub(super) sampler: Sampler,
    /// What it has beside numbers.
    pub(super) steering: Steering,
    /// The tail of tables that picks so.
    pub(super) tail: Tail,
    /// Tokens at most; the context ends it in any case.
    pub(super) limit: usize,
    /// How many come in one submission.
    pub(super) chain: Chain,
    /// The grammar that they follow.
    pub(super) follow: Option<Box<Follow>>,
    /// What makes guesses at them.
    pub(super) guesser: Option<Guesser>,
}

/// What steps tell beside tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    Nothing,
    LogProbs,
}

impl Picking {
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
            steering: Steering::default(),
            limit: limit as usize,
            chain: Chain::new(limit, longest),
            follow: None,
            guesser: None,
        }
    }

    /// Whether its tokens follow a grammar.
    pub(super) fn follows(&self) -> bool {
        self.sampler.masked != 0
    }

    /// What its steps tell beside tokens.
    pub(super) fn tells(&self) -> Tells {
        match self.sampler.log_probs {
            0 => Tells::Nothing,
            _ => Tells::LogProbs,
        }
    }
}
