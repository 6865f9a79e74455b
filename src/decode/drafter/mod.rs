//! Draft tokens of a sequence: how many a pass checks, and which of them are right.

mod controller;
pub(super) mod lookup;

use super::outputs::DraftStats;
use crate::model::STEP_ROWS_MAX;
use controller::SpeculationController;
use std::time::Duration;

/// DraftStats of a pass at most: with the last token, they are the rows of a table.
const GUESSES_MAX: usize = STEP_ROWS_MAX as usize - 1;

/// What makes guesses for a sequence.
#[derive(Debug)]
pub(super) struct Drafter {
    source: Box<dyn Source>,
    pace: SpeculationController,
    /// The last token and the guesses behind it.
    tokens: Vec<u32>,
    pub(super) count: DraftStats,
}

/// A source of guesses. It is told apart at run time: a draft model is as much as the model itself.
pub(super) trait Source: std::fmt::Debug + Send {
    /// Appends guesses at what follows these tokens, `count` at most. Returns whether it has read them all:
    /// else it goes on when it is asked next.
    fn guess(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool;
}

impl Drafter {
    /// Creates a guesser that takes its guesses from `source`.
    pub(super) fn new(source: Box<dyn Source>) -> Self {
        Self {
            source,
            pace: SpeculationController::new(GUESSES_MAX),
            tokens: Vec::with_capacity(1 + GUESSES_MAX),
            count: DraftStats::default(),
        }
    }

    /// Steps that are to go without guesses, at least.
    pub(super) fn rest(&self) -> u32 {
        self.pace.rest()
    }

    /// Hears of steps without guesses.
    pub(super) fn stepped(&mut self, took: Duration, steps: u32) {
        self.pace.stepped(took, steps);
    }

    /// The last of these tokens and guesses at what follows it, `most` at most. No guesses: it is not
    /// known, or not worth it.
    pub(super) fn guess(&mut self, tokens: &[u32], most: usize) -> Option<&[u32]> {
        let count = self.pace.guesses().min(most);
        if count == 0 || self.rest() > 0 {
            return None;
        }
        self.tokens.clear();
        self.tokens.extend(tokens.last());
        let read = self.source.guess(tokens, count, &mut self.tokens);
        if self.tokens.len() < 2 {
            match read {
                true => self.pace.missed(),
                false => self.pace.later(),
            }
            return None;
        }
        Some(&self.tokens)
    }

    /// How many guesses are right where this was picked behind each of the tokens.
    pub(super) fn right(&self, picked: impl Iterator<Item = u32>) -> usize {
        let guesses = self.tokens[1..].iter();
        let same = guesses
            .zip(picked)
            .take_while(|(guess, pick)| **guess == *pick);
        same.count()
    }

    /// Hears what became of the guesses, and how long they and their check took.
    pub(super) fn checked(&mut self, right: usize, took: Duration) {
        let made = self.tokens.len() - 1;
        let few = |n| u32::try_from(n).expect("no more than rows of a table");
        self.count += DraftStats {
            made: few(made),
            right: few(right),
        };
        self.pace.checked(made, right, took);
    }
}
