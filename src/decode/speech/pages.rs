//! Pages of the beams of a window. Beams with a common prefix share its pages; a shared page is
//! copied before a beam writes to it.

use crate::model::BEAMS_MAX;
use crate::op::pages::Pages;
use crate::op::params::PAGE;

/// Copy of a page to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageCopy {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Page tables of the beams of a window.
#[derive(Debug)]
pub(super) struct BeamPages {
    layout: Pages,
    /// First page of the window.
    first: u32,
    /// Number of pages of a window for the self-attention of its beams.
    pool: u32,
    /// Page table on the device: a row per beam.
    table: Vec<u32>,
    /// The next page table, while beams are reordered.
    next: Vec<u32>,
    /// Number of pages of each beam.
    counts: Vec<usize>,
    next_counts: Vec<usize>,
    /// Number of beams that use each page.
    users: Vec<u32>,
    free: Vec<u32>,
}

impl BeamPages {
    /// Creates the tables of the first of `windows` windows, without pages for self-attention.
    pub(super) fn new(layout: Pages, windows: u32) -> Self {
        let pool = layout.whole_pool / windows;
        let table = vec![0; (BEAMS_MAX * layout.stride()) as usize];
        let beams = BEAMS_MAX as usize;
        let mut pages = Self {
            layout,
            first: 0,
            pool,
            next: table.clone(),
            table,
            counts: vec![0; beams],
            next_counts: vec![0; beams],
            users: vec![0; pool as usize],
            free: Vec::with_capacity(pool as usize),
        };
        pages.enter(0);
        pages
    }

    /// Returns the page tables as the device stores them.
    pub(super) fn table(&self) -> &[u32] {
        &self.table
    }

    /// Moves to a window: all beams attend to its cross-attention, and have no other pages.
    pub(super) fn enter(&mut self, window: u32) {
        self.first = window * self.pool;
        let [whole, ringed] = [self.layout.whole, self.layout.ringed];
        for table in [&mut self.table, &mut self.next] {
            for row in table.chunks_exact_mut((whole + ringed) as usize) {
                for (page, at) in row[whole as usize..].iter_mut().zip(0..) {
                    *page = window * ringed + at;
                }
            }
        }
        self.clear();
    }

    /// Releases all pages of the beams.
    pub(super) fn clear(&mut self) {
        self.counts.fill(0);
        self.users.fill(0);
        self.free.clear();
        self.free.extend((self.first..self.first + self.pool).rev());
    }

    /// Replaces the beams: beam `i` continues the former beam `parents[i]`.
    pub(super) fn reorder(&mut self, parents: &[usize]) {
        let stride = self.layout.stride() as usize;
        for (beam, &parent) in parents.iter().enumerate() {
            let count = self.counts[parent];
            self.next_counts[beam] = count;
            let pages = &self.table[parent * stride..][..count];
            self.next[beam * stride..][..count].copy_from_slice(pages);
            for page in pages {
                self.users[(*page - self.first) as usize] += 1;
            }
        }
        self.next_counts[parents.len()..].fill(0);
        for (beam, count) in self.counts.iter_mut().enumerate() {
            for page in &self.table[beam * stride..][..*count] {
                self.users[(*page - self.first) as usize] -= 1;
                if self.users[(*page - self.first) as usize] == 0 {
                    self.free.push(*page);
                }
            }
            *count = self.next_counts[beam];
        }
        std::mem::swap(&mut self.table, &mut self.next);
    }

    /// Makes a position of a beam writable. Returns whether the table has changed, and the copy to
    /// make before the next pass.
    pub(super) fn make_writable(
        &mut self,
        beam: usize,
        position: usize,
    ) -> (bool, Option<PageCopy>) {
        let stride = self.layout.stride() as usize;
        let at = position / PAGE as usize;
        let mut changed = false;
        while self.counts[beam] <= at {
            let page = self.allocate();
            self.table[beam * stride + self.counts[beam]] = page;
            self.counts[beam] += 1;
            changed = true;
        }
        let page = self.table[beam * stride + at];
        if self.users[(page - self.first) as usize] == 1 {
            return (changed, None);
        }
        let to = self.allocate();
        self.users[(page - self.first) as usize] -= 1;
        self.table[beam * stride + at] = to;
        (true, Some(PageCopy { from: page, to }))
    }

    /// Takes a free page. The pool has one page more per beam than a beam can use.
    fn allocate(&mut self) -> u32 {
        let page = self.free.pop().expect("the pool has pages for all beams");
        self.users[(page - self.first) as usize] = 1;
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> BeamPages {
        let layout = Pages {
            whole: 3,
            ringed: 2,
            window: 100,
            whole_pool: 2 * 8 * 4,
            ringed_pool: 2 * 2,
            states: 0,
            states_pool: 0,
            kept: 0,
        };
        BeamPages::new(layout, 2)
    }

    #[test]
    fn beams_share_the_window() {
        let mut p = pages();
        for row in p.table().chunks(5) {
            assert_eq!(row[3..], [0, 1]);
        }
        p.enter(1);
        for row in p.table().chunks(5) {
            assert_eq!(row[3..], [2, 3]);
        }
    }

    #[test]
    fn windows_have_their_own_pages() {
        let mut p = pages();
        let used = [0, 1].map(|window| {
            p.enter(window);
            for beam in 0..8 {
                p.make_writable(beam, 191);
            }
            let rows = p.table().chunks(5);
            let mut used: Vec<u32> = rows.flat_map(|row| row[..3].to_vec()).collect();
            used.sort_unstable();
            used.dedup();
            used
        });
        assert_eq!(used.each_ref().map(Vec::len), [24, 24]);
        assert!(used[0].iter().all(|page| *page < 32), "{used:?}");
        assert!(
            used[1].iter().all(|page| (32..64).contains(page)),
            "{used:?}"
        );
    }

    #[test]
    fn shared_pages_are_copied_before_a_write() {
        let mut p = pages();
        assert_eq!(p.make_writable(0, 63), (true, None));
        assert_eq!(p.make_writable(0, 63), (false, None));
        assert_eq!(p.make_writable(0, 64), (true, None));
        let prompt = p.table()[..2].to_vec();
        p.reorder(&[0, 0, 0]);
        for beam in 0..3 {
            assert_eq!(p.table()[beam * 5..][..2], prompt);
        }
        let copies: Vec<_> = (0..3).map(|beam| p.make_writable(beam, 65).1).collect();
        let from: Vec<_> = copies.iter().flatten().map(|copy| copy.from).collect();
        assert_eq!(from, [prompt[1]; 2], "the last beam keeps the page");
        assert_eq!(copies[2], None);
        // All beams continue the last one; the pages of the others are free again.
        p.reorder(&[2, 2]);
        p.reorder(&[1]);
        assert_eq!(p.table()[..2], prompt);
        assert_eq!(p.free.len(), 30);
        p.clear();
        assert_eq!(p.free.len(), 32);
    }

    #[test]
    fn the_pool_suffices_for_any_order() {
        let mut p = pages();
        p.make_writable(0, 0);
        p.reorder(&[0, 0, 0]);
        for position in 1..192 {
            for beam in 0..3 {
                p.make_writable(beam, position);
            }
            p.reorder(&[position % 3, (position / 2) % 3, (position * 7) % 3]);
        }
    }
}
