//! States of recurrent layers: the current one of a sequence, and those that are kept for its prefix.
//!
//! A state has no positions: a sequence can only continue after the positions of its last block
//! ([`KeptState::usable`]). So a few earlier states are kept, each at the end of a page: the pass that
//! begins the next page then writes another state instead of the same. A slot keeps the one at the end of
//! the last page, and those of its prompt.

use super::pool::{KeptState, Page, Pool};
use crate::op::params::PAGE;

/// Number of positions of a page.
const POSITIONS: usize = PAGE as usize;

/// A state is kept every this many pages of a prompt.
const KEPT_PAGES: usize = 16;

/// Where the states of a prompt are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::decode) struct PromptBorders {
    /// Number of tokens of the prompt, with everything before it.
    pub(in crate::decode) end: usize,
    /// Sequences continue only at multiples of this.
    pub(in crate::decode) unit: usize,
}

impl PromptBorders {
    /// Returns whether to keep the state after the pages before `page`.
    pub(super) fn keeps(self, page: usize) -> bool {
        let unit = (self.unit / POSITIONS).max(1);
        let last = self.end.saturating_sub(1) / POSITIONS / unit * unit;
        page == last || page < last && page.is_multiple_of(KEPT_PAGES.next_multiple_of(unit))
    }
}

/// States of a slot.
#[derive(Debug)]
pub(super) struct SequenceStates {
    /// Pages of positions in ascending order, with the state at the end of each; the last is the current
    /// one.
    pub(super) pages: Vec<(usize, Page)>,
    /// End of the positions that passes have written.
    pub(super) written: usize,
    pub(super) prompt: PromptBorders,
}

impl SequenceStates {
    pub(super) fn with_capacity(pages: usize) -> Self {
        Self {
            pages: Vec::with_capacity(pages),
            written: 0,
            prompt: PromptBorders::default(),
        }
    }

    /// Releases the states of pages from `keep` on. Earlier pages have no state without them.
    pub(super) fn truncate(&mut self, keep: usize, pool: &mut Pool) {
        let first = self.pages.partition_point(|(at, _)| *at < keep);
        let released = self.pages.drain(first..);
        released.for_each(|(_, page)| pool.release(page));
        self.written = self.written.min(keep * POSITIONS);
    }

    /// Returns the state to keep for page `at` of a sequence of which `tokens` tokens are computed.
    pub(super) fn kept(&self, at: usize, tokens: usize) -> Option<KeptState> {
        let index = self.pages.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        // Passes may have gone beyond these tokens, but a block keeps its earlier positions.
        let end = self.written.min((at + 1) * POSITIONS);
        let state = KeptState {
            page: self.pages[index].1,
            positions: end.checked_sub(at * POSITIONS).filter(|n| *n > 0)?,
        };
        let own = tokens.saturating_sub(at * POSITIONS).min(POSITIONS);
        let positions = state.usable(own)?;
        Some(KeptState { positions, ..state })
    }
}
