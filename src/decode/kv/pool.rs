//! Reference-counted pages of the KV cache.

use crate::op::pages::Pages;
use crate::op::params::STATE_BLOCK;

/// Index of a page.
pub(in crate::decode) type Page = u32;

/// Pages of one kind. Pages without references are free; shared pages are read-only.
#[derive(Debug)]
pub(super) struct Pool {
    ref_counts: Vec<u32>,
    free: Vec<Page>,
}

impl Pool {
    /// Creates `count` free pages.
    pub(super) fn new(count: u32) -> Self {
        Self {
            ref_counts: vec![0; count as usize],
            free: (0..count).rev().collect(),
        }
    }

    /// Allocates a free page with one reference.
    pub(super) fn allocate(&mut self) -> Option<Page> {
        let page = self.free.pop()?;
        self.ref_counts[page as usize] = 1;
        Some(page)
    }

    /// Adds a reference.
    pub(super) fn retain(&mut self, page: Page) {
        let ref_counts = &mut self.ref_counts[page as usize];
        debug_assert!(*ref_counts > 0, "page {page} is free");
        *ref_counts += 1;
    }

    /// Removes a reference.
    pub(super) fn release(&mut self, page: Page) {
        let ref_counts = &mut self.ref_counts[page as usize];
        debug_assert!(*ref_counts > 0, "page {page} is free");
        *ref_counts -= 1;
        if *ref_counts == 0 {
            self.free.push(page);
        }
    }

    /// Returns whether the page has several references.
    pub(super) fn is_shared(&self, page: Page) -> bool {
        self.ref_counts[page as usize] > 1
    }

    /// Returns the number of free pages.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the total number of pages.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.ref_counts.len()
    }
}

/// Pages of a range of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) struct PagePair {
    /// Page of the full-attention layers.
    pub(in crate::decode) full: Page,
    /// Page of the sliding-window layers; `None` if the model has none or the page was evicted.
    pub(in crate::decode) windowed: Option<Page>,
    /// State of the recurrent layers within these positions; `None` if the model has none or it was not
    /// kept.
    pub(in crate::decode) state: Option<KeptState>,
    /// Whether the page of the full-attention layers has the keys and values of the drafting head, too.
    pub(in crate::decode) has_head_keys: bool,
}

/// State of the recurrent layers that is kept for a page of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) struct KeptState {
    pub(in crate::decode) page: Page,
    /// Number of positions of the page that the state includes, 1 to all.
    pub(in crate::decode) positions: usize,
}

impl KeptState {
    /// Returns the number of positions of the page, at most `positions`, after which a sequence can
    /// continue with this state: those in the block of its last position.
    pub(super) fn usable(self, positions: usize) -> Option<usize> {
        let block = STATE_BLOCK as usize;
        let start = (self.positions - 1) / block * block;
        Some(positions.min(self.positions)).filter(|n| *n > start)
    }
}

/// Pages of all kinds.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) full: Pool,
    pub(super) windowed: Pool,
    pub(super) states: Pool,
}

impl Pools {
    /// Creates free pages of all kinds.
    pub(super) fn new(layout: &Pages) -> Self {
        Self {
            full: Pool::new(layout.whole_pool),
            windowed: Pool::new(layout.ringed_pool),
            states: Pool::new(layout.states_pool),
        }
    }

    /// Adds a reference to all pages of the pair.
    pub(super) fn retain(&mut self, pair: PagePair) {
        self.full.retain(pair.full);
        pair.windowed
            .into_iter()
            .for_each(|page| self.windowed.retain(page));
        pair.state
            .into_iter()
            .for_each(|state| self.states.retain(state.page));
    }

    /// Removes a reference from all pages of the pair.
    pub(super) fn release(&mut self, pair: PagePair) {
        self.full.release(pair.full);
        pair.windowed
            .into_iter()
            .for_each(|page| self.windowed.release(page));
        pair.state
            .into_iter()
            .for_each(|state| self.states.release(state.page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_without_references_is_free() {
        let mut pool = Pool::new(2);
        let page = pool.allocate().expect("two are free");
        assert!(!pool.is_shared(page));
        pool.retain(page);
        assert!(pool.is_shared(page));
        assert_eq!((pool.free(), pool.pages()), (1, 2));
        pool.release(page);
        assert!(!pool.is_shared(page));
        let other = pool.allocate().expect("one is free");
        assert_ne!(page, other);
        assert_eq!(pool.allocate(), None);
        pool.release(page);
        assert_eq!(pool.allocate(), Some(page));
    }
}
