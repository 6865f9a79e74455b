//! Pages of the KV cache, each with the number of those who hold it.

/// The number of a page.
pub(in crate::decode) type Page = u32;

/// Pages of one kind. A page that nobody holds is free; one that several hold is not written.
#[derive(Debug)]
pub(super) struct Pool {
    holders: Vec<u32>,
    free: Vec<Page>,
}

impl Pool {
    /// So many pages, all free.
    pub(super) fn new(count: u32) -> Self {
        Self {
            holders: vec![0; count as usize],
            free: (0..count).rev().collect(),
        }
    }

    /// A free page, held once.
    pub(super) fn take(&mut self) -> Option<Page> {
        let page = self.free.pop()?;
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// One more holds it.
    pub(super) fn hold(&mut self, page: Page) {
        let holders = &mut self.holders[page as usize];
        debug_assert!(*holders > 0, "page {page} is free");
        *holders += 1;
    }

    /// One fewer holds it.
    pub(super) fn leave(&mut self, page: Page) {
        let holders = &mut self.holders[page as usize];
        debug_assert!(*holders > 0, "page {page} is free");
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }

    /// Whether more than one hold it.
    pub(super) fn is_shared(&self, page: Page) -> bool {
        self.holders[page as usize] > 1
    }

    /// Pages that nobody holds.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages in all.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.holders.len()
    }
}

/// The pages of a run of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) struct Pair {
    /// Of layers that see all positions.
    pub(in crate::decode) whole: Page,
    /// Of layers with a window; `None` where the model has none, and where they were forgotten.
    pub(in crate::decode) ringed: Option<Page>,
}

/// The pages of both kinds.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) whole: Pool,
    pub(super) ringed: Pool,
}

impl Pools {
    /// So many of each, all free.
    pub(super) fn new(whole: u32, ringed: u32) -> Self {
        Self {
            whole: Pool::new(whole),
            ringed: Pool::new(ringed),
        }
    }

    /// One more holds them.
    pub(super) fn hold(&mut self, pair: Pair) {
        self.whole.hold(pair.whole);
        pair.ringed
            .into_iter()
            .for_each(|page| self.ringed.hold(page));
    }

    /// One fewer holds them.
    pub(super) fn leave(&mut self, pair: Pair) {
        self.whole.leave(pair.whole);
        pair.ringed
            .into_iter()
            .for_each(|page| self.ringed.leave(page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_free_when_the_last_one_leaves_it() {
        let mut pool = Pool::new(2);
        let page = pool.take().expect("two are free");
        assert!(!pool.is_shared(page));
        pool.hold(page);
        assert!(pool.is_shared(page));
        assert_eq!((pool.free(), pool.pages()), (1, 2));
        pool.leave(page);
        assert!(!pool.is_shared(page));
        let other = pool.take().expect("one is free");
        assert_ne!(page, other);
        assert_eq!(pool.take(), None);
        pool.leave(page);
        assert_eq!(pool.take(), Some(page));
    }
}
