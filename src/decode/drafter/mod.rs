//! Draft tokens of a sequence: how many a pass checks, and which of them are right.

mod controller;
pub(super) mod lookup;

use super::outputs::DraftStats;
use crate::model::STEP_ROWS_MAX;
use controller::SpeculationController;
use std::time::Duration;

/// DraftStats of a pass at most: with the last token, they are the rows of a table.
const DRAFT_MAX: usize = STEP_ROWS_MAX as usize - 1;

/// What makes guesses for a sequence.
#[derive(Debug)]
pub(super) struct Drafter {
    source: Box<dyn DraftSource>,
    controller: SpeculationController,
    /// The last token and the guesses behind it.
    tokens: Vec<u32>,
    pub(super) stats: DraftStats,
}

/// A source of guesses. It is told apart at run time: a draft model is as much as the model itself.
pub(super) trait DraftSource: std::fmt::Debug + Send {
    /// Appends guesses at what follows these tokens, `count` at most. Returns whether it has read them all:
    /// else it goes on when it is asked next.
    fn draft(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool;
}

impl Drafter {
    /// Creates a guesser that takes its guesses from `source`.
    pub(super) fn new(source: Box<dyn DraftSource>) -> Self {
        Self {
            source,
            controller: SpeculationController::new(DRAFT_MAX),
            tokens: Vec::with_capacity(1 + DRAFT_MAX),
            stats: DraftStats::default(),
        }
    }

    /// Steps that are to go without guesses, at least.
    pub(super) fn cooldown(&self) -> u32 {
        self.controller.cooldown()
    }

    /// Hears of steps without guesses.
    pub(super) fn record_steps(&mut self, took: Duration, steps: u32) {
        self.controller.record_steps(took, steps);
    }

    /// The last of these tokens and guesses at what follows it, `most` at most. No guesses: it is not
    /// known, or not worth it.
    pub(super) fn draft(&mut self, tokens: &[u32], max: usize) -> Option<&[u32]> {
        let count = self.controller.draft_len().min(max);
        if count == 0 || self.cooldown() > 0 {
            return None;
        }
        self.tokens.clear();
        self.tokens.extend(tokens.last());
        let is_ready = self.source.draft(tokens, count, &mut self.tokens);
        if self.tokens.len() < 2 {
            match is_ready {
                true => self.controller.record_miss(),
                false => self.controller.postpone(),
            }
            return None;
        }
        Some(&self.tokens)
    }

    /// How many guesses are right where this was picked behind each of the tokens.
    pub(super) fn accepted(&self, sampled: impl Iterator<Item = u32>) -> usize {
        let draft = self.tokens[1..].iter();
        let same = draft
            .zip(sampled)
            .take_while(|(draft, sampled)| **draft == *sampled);
        same.count()
    }

    /// Hears what became of the guesses, and how long they and their check took.
    pub(super) fn record_check(&mut self, accepted: usize, took: Duration) {
        let drafted = self.tokens.len() - 1;
        let to_u32 = |n| u32::try_from(n).expect("no more than rows of a table");
        self.stats += DraftStats {
            drafted: to_u32(drafted),
            accepted: to_u32(accepted),
        };
        self.controller.record_check(drafted, accepted, took);
    }
}
