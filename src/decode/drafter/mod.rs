//! Draft tokens of a sequence and their acceptance.

mod controller;
pub(super) mod lookup;

use super::outputs::DraftStats;
use crate::error::Result;
use crate::model::STEP_ROWS_MAX;
use controller::SpeculationController;
use std::time::Duration;

/// Maximum number of draft tokens of a pass. With the last token they fill the rows of a table.
const DRAFT_MAX: usize = STEP_ROWS_MAX as usize - 1;

/// Number of draft tokens of a head in the first pass, and the maximum: each computes the output projection, and later
/// ones are rarely right.
const HEAD_DRAFTS: [usize; 2] = [1, 4];

/// Drafts tokens for a sequence.
#[derive(Debug)]
pub(super) struct Drafter {
    source: Drafts,
    controller: SpeculationController,
    /// The last token and the draft tokens after it.
    tokens: Vec<u32>,
    pub(super) stats: DraftStats,
}

/// Where draft tokens come from.
#[derive(Debug)]
pub(super) enum Drafts {
    /// The drafting head of the model.
    Head,
    /// Another source.
    Source(Box<dyn DraftSource>),
}

/// Source of draft tokens. Dynamic dispatch, because a draft model contains a whole session.
pub(super) trait DraftSource: std::fmt::Debug + Send {
    /// Appends at most `count` draft tokens for the position after `tokens`. Returns `false` if the
    /// source is still processing `tokens` and must be called again.
    fn draft(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool;
}

impl Drafter {
    /// Creates a drafter with this source.
    pub(super) fn new(source: Drafts) -> Self {
        let range = match source {
            Drafts::Head => HEAD_DRAFTS,
            Drafts::Source(_) => [3, DRAFT_MAX],
        };
        Self {
            source,
            controller: SpeculationController::new(range),
            tokens: Vec::with_capacity(1 + DRAFT_MAX),
            stats: DraftStats::default(),
        }
    }

    /// Returns the minimum number of steps until the next draft.
    pub(super) fn cooldown(&self) -> u32 {
        self.controller.cooldown()
    }

    /// Records steps without draft tokens.
    pub(super) fn record_steps(&mut self, took: Duration, steps: u32) {
        self.controller.record_steps(took, steps);
    }

    /// Returns the last token followed by at most `max` draft tokens; `None` if there is no draft
    /// or speculation is paused. `by_head` appends at most as many draft tokens as its first argument by the
    /// drafting head of the model.
    ///
    /// # Errors
    ///
    /// Those of `by_head`.
    pub(super) fn draft(
        &mut self,
        tokens: &[u32],
        max: usize,
        by_head: impl FnOnce(usize, &mut Vec<u32>) -> Result<()>,
    ) -> Result<Option<&[u32]>> {
        let count = self.controller.draft_len().min(max);
        if count == 0 || self.cooldown() > 0 {
            return Ok(None);
        }
        self.tokens.clear();
        self.tokens.extend(tokens.last());
        let is_ready = match &mut self.source {
            Drafts::Source(source) => source.draft(tokens, count, &mut self.tokens),
            Drafts::Head => {
                by_head(count, &mut self.tokens)?;
                true
            }
        };
        if self.tokens.len() < 2 {
            match is_ready {
                true => self.controller.record_miss(),
                false => self.controller.postpone(),
            }
            return Ok(None);
        }
        Ok(Some(&self.tokens))
    }

    /// Returns the number of draft tokens that equal the sampled tokens.
    pub(super) fn accepted(&self, sampled: impl Iterator<Item = u32>) -> usize {
        let draft = self.tokens[1..].iter();
        let same = draft
            .zip(sampled)
            .take_while(|(draft, sampled)| **draft == *sampled);
        same.count()
    }

    /// Records the result of a check and the time of draft and check.
    pub(super) fn record_check(&mut self, accepted: usize, took: Duration) {
        let drafted = self.tokens.len() - 1;
        let to_u32 = |n| u32::try_from(n).expect("at most the rows of a table");
        self.stats += DraftStats {
            drafted: to_u32(drafted),
            accepted: to_u32(accepted),
        };
        self.controller.record_check(drafted, accepted, took);
    }
}

#[cfg(test)]
mod tests;
