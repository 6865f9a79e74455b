//! Pages of the KV cache, each with the number of those who hold it.

/// The number of a page.
pub(in crate::decode) type Page = u32;

/// Pages of one kind. A page that nobody holds is free; one that several hold is not written.
#[derive(Debug)]
pub(super) struct Pool {
    ref_counts: Vec<u32>,
    free: Vec<Page>,
}

impl Pool {
    /// So many pages, all free.
    pub(super) fn new(count: u32) -> Self {
        Self {
            ref_counts: vec![0; count as usize],
            free: (0..count).rev().collect(),
        }
    }

    /// A free page, held once.
    pub(super) fn allocate(&mut self) -> Option<Page> {
        let page = self.free.pop()?;
        self.ref_counts[page as usize] = 1;
        Some(page)
    }

    /// One more holds it.
    pub(super) fn retain(&mut self, page: Page) {
        let ref_counts = &mut self.ref_counts[page as usize];
        debug_assert!(*ref_counts > 0, "page {page} is free");
        *ref_counts += 1;
    }

    /// One fewer holds it.
    pub(super) fn release(&mut self, page: Page) {
        let ref_counts = &mut self.ref_counts[page as usize];
        debug_assert!(*ref_counts > 0, "page {page} is free");
        *ref_counts -= 1;
        if *ref_counts == 0 {
            self.free.push(page);
        }
    }

    /// Whether more than one hold it.
    pub(super) fn is_shared(&self, page: Page) -> bool {
        self.ref_counts[page as usize] > 1
    }

    /// Pages that nobody holds.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages in all.
    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.ref_counts.len()
    }
}

/// The pages of a run of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) struct PagePair {
    /// Of layers that see all positions.
    pub(in crate::decode) full: Page,
    /// Of layers with a window; `None` where the model has none, and where they were forgotten.
    pub(in crate::decode) windowed: Option<Page>,
}

/// The pages of both kinds.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) full: Pool,
    pub(super) windowed: Pool,
}

impl Pools {
    /// So many of each, all free.
    pub(super) fn new(full: u32, windowed: u32) -> Self {
        Self {
            full: Pool::new(full),
            windowed: Pool::new(windowed),
        }
    }

    /// One more holds them.
    pub(super) fn retain(&mut self, pair: PagePair) {
        self.full.retain(pair.full);
        pair.windowed
            .into_iter()
            .for_each(|page| self.windowed.retain(page));
    }

    /// One fewer holds them.
    pub(super) fn release(&mut self, pair: PagePair) {
        self.full.release(pair.full);
        pair.windowed
            .into_iter()
            .for_each(|page| self.windowed.release(page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_free_when_the_last_one_leaves_it() {
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
