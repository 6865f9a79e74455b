//! The KV cache as sequences share it: pages, who holds them, and the prefixes that stay behind.
//!
//! Layers that see all positions and layers with a window have pages of two kinds. A sequence that is
//! at work has a seat, which is a row of the page table on the device. Pages are shared by holding
//! them; whoever is about to write a shared page takes one of its own first, with a copy of what is
//! in it. What is to be done on the device comes out as edits.

mod pool;
mod prefixes;
pub(super) mod saved;

use crate::op::pages::{PAGE, Pages};
pub(super) use pool::Pair;
use pool::{Page, Pool, Pools};
use prefixes::{Path, Prefixes};
use std::ops::Range;

/// Positions of a page.
const POSITIONS: usize = PAGE as usize;

/// What is to be done on the device before a pass.
#[derive(Debug)]
pub(super) struct Edits {
    /// Pages that become copies of others, in this order.
    pub(super) copies: Vec<PageCopy>,
    /// Whether the seat's row of the page table is another.
    pub(super) entries: bool,
}

impl Edits {
    /// Room for as many copies as a seat grows by at once.
    pub(super) fn new() -> Self {
        Self {
            copies: Vec::with_capacity(2),
            entries: false,
        }
    }
}

/// A page that becomes a copy of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageCopy {
    pub(super) kind: Kind,
    pub(super) from: Page,
    pub(super) to: Page,
}

/// Which layers a page is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Whole,
    Ringed,
}

/// The pages of a sequence.
#[derive(Debug)]
struct SequenceSlot {
    whole: Vec<Page>,
    /// The page of each entry, and which of the sequence's pages it is.
    ringed: Vec<Option<(usize, Page)>>,
}

/// Who holds what.
#[derive(Debug)]
pub(super) struct Kv {
    layout: Pages,
    /// The page table, as the device has it once edits are done.
    table: Vec<u32>,
    pools: Pools,
    prefixes: Prefixes,
    seats: Vec<SequenceSlot>,
    path: Path,
}

impl Kv {
    /// Empty seats, and nothing behind them.
    pub(super) fn new(seats: usize, layout: Pages) -> Self {
        let [entries, ring] = [layout.whole, layout.ringed].map(|n| n as usize);
        let seat = || SequenceSlot {
            whole: Vec::with_capacity(entries),
            ringed: vec![None; ring],
        };
        Self {
            table: vec![0; seats * (entries + ring)],
            pools: Pools::new(layout.whole_pool, layout.ringed_pool),
            prefixes: Prefixes::new(layout.kept as usize),
            seats: (0..seats).map(|_| seat()).collect(),
            path: Path::with_room(entries),
            layout,
        }
    }

    /// A seat's row of the page table.
    pub(super) fn row(&self, seat: usize) -> &[u32] {
        let stride = self.layout.stride() as usize;
        &self.table[seat * stride..][..stride]
    }

    fn set(&mut self, seat: usize, at: usize, page: Page, edits: &mut Edits) {
        let stride = self.layout.stride() as usize;
        self.table[seat * stride + at] = page;
        edits.entries = true;
    }

    /// Entries of a sequence in layers that see all positions.
    fn entries(&self) -> usize {
        self.layout.whole as usize
    }

    /// Entries of a sequence in layers with a window.
    fn ring(&self) -> usize {
        self.layout.ringed as usize
    }

    /// Gives an empty seat the longest known beginning of some tokens, in positions. `fits` shortens a
    /// length to one that may be taken.
    pub(super) fn begin(
        &mut self,
        seat: usize,
        keys: &[u32],
        fits: impl Fn(usize) -> usize,
        edits: &mut Edits,
    ) -> usize {
        let window = self.layout.window as usize;
        let mut path = std::mem::take(&mut self.path);
        self.prefixes.find(keys, &mut path);
        let mut tokens = path.tokens();
        loop {
            let fitting = fits(tokens);
            Prefixes::cut(&mut path, fitting);
            tokens = self.prefixes.with_window(&path, window);
            Prefixes::cut(&mut path, tokens);
            if tokens == fitting {
                break;
            }
        }
        self.prefixes.touch_path(&path);
        let first_seen = tokens.saturating_sub(window) / POSITIONS;
        debug_assert!(self.seats[seat].whole.is_empty(), "seat {seat} is taken");
        for at in 0..path.pages() {
            let pages = self.prefixes.pages(&path, at);
            self.pools.whole.hold(pages.whole);
            self.seats[seat].whole.push(pages.whole);
            self.set(seat, at, pages.whole, edits);
            if let Some(page) = pages.ringed.filter(|_| at >= first_seen) {
                self.pools.ringed.hold(page);
                let entry = at % self.ring();
                self.seats[seat].ringed[entry] = Some((at, page));
                self.set(seat, self.entries() + entry, page, edits);
            }
        }
        self.path = path;
        tokens
    }

    /// Lets a seat write some positions, all in front of which it has.
    pub(super) fn grow(&mut self, seat: usize, positions: Range<usize>, edits: &mut Edits) {
        if positions.is_empty() {
            return;
        }
        let pages = positions.start / POSITIONS..positions.end.div_ceil(POSITIONS);
        for page in pages {
            self.own_whole(seat, page, positions.start, edits);
            if self.ring() > 0 {
                self.own_ringed(seat, page, positions.start, edits);
            }
        }
    }

    /// Lets a seat write one of its pages, of which what lies in front of `start` stays.
    fn own_whole(&mut self, seat: usize, at: usize, start: usize, edits: &mut Edits) {
        let old = self.seats[seat].whole.get(at).copied();
        let page = match old {
            Some(old) if !self.is_contested(Kind::Whole, old) => return,
            Some(old) => {
                let page = self.take(Kind::Whole);
                if start > at * POSITIONS {
                    let kind = Kind::Whole;
                    edits.copies.push(PageCopy {
                        kind,
                        from: old,
                        to: page,
                    });
                }
                self.pools.whole.leave(old);
                self.seats[seat].whole[at] = page;
                page
            }
            None => {
                let page = self.take(Kind::Whole);
                debug_assert_eq!(self.seats[seat].whole.len(), at, "a hole in seat {seat}");
                self.seats[seat].whole.push(page);
                page
            }
        };
        self.set(seat, at, page, edits);
    }

    /// The same of the pages of layers with a window.
    fn own_ringed(&mut self, seat: usize, of: usize, start: usize, edits: &mut Edits) {
        let entry = of % self.ring();
        let old = self.seats[seat].ringed[entry];
        let page = match old {
            Some((at, old)) if at == of && !self.is_contested(Kind::Ringed, old) => return,
            Some((at, old)) => {
                // Nobody sees it any more where it is another's, and it may be the one that is taken.
                let copied = at == of && start > of * POSITIONS;
                if !copied {
                    self.pools.ringed.leave(old);
                }
                let page = self.take(Kind::Ringed);
                if copied {
                    let kind = Kind::Ringed;
                    edits.copies.push(PageCopy {
                        kind,
                        from: old,
                        to: page,
                    });
                    self.pools.ringed.leave(old);
                }
                page
            }
            None => self.take(Kind::Ringed),
        };
        self.seats[seat].ringed[entry] = Some((of, page));
        self.set(seat, self.entries() + entry, page, edits);
    }

    fn pool(&mut self, kind: Kind) -> &mut Pool {
        match kind {
            Kind::Whole => &mut self.pools.whole,
            Kind::Ringed => &mut self.pools.ringed,
        }
    }

    /// Whether others hold a page, who cannot be made to forget it for want of free ones.
    fn is_contested(&mut self, kind: Kind, page: Page) -> bool {
        while self.pool(kind).is_shared(page) && self.pool(kind).free() == 0 {
            if !self.forget(kind) {
                break;
            }
        }
        self.pool(kind).is_shared(page)
    }

    fn forget(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Whole => self.prefixes.forget_one(&mut self.pools),
            Kind::Ringed => self.prefixes.forget_ringed(&mut self.pools.ringed),
        }
    }

    /// A free page. There are as many as all seats need, so that some are free once prefixes are
    /// forgotten.
    fn take(&mut self, kind: Kind) -> Page {
        loop {
            if let Some(page) = self.pool(kind).take() {
                return page;
            }
            let forgotten = self.forget(kind);
            assert!(forgotten, "seats hold more pages than they have entries");
        }
    }

    /// Forgets what a seat holds behind so many positions.
    pub(super) fn trim(&mut self, seat: usize, positions: usize) {
        let keep = positions.div_ceil(POSITIONS);
        let Self { pools, seats, .. } = self;
        let seat = &mut seats[seat];
        let gone = seat.whole.drain(keep.min(seat.whole.len())..);
        gone.for_each(|page| pools.whole.leave(page));
        for entry in &mut seat.ringed {
            if let Some((_, page)) = entry.take_if(|(at, _)| *at >= keep) {
                pools.ringed.leave(page);
            }
        }
    }

    /// Keeps what a seat has computed for these tokens, for whoever comes with the same.
    pub(super) fn keep(&mut self, seat: usize, keys: &[u32]) {
        let Self {
            pools,
            prefixes,
            seats,
            ..
        } = self;
        let SequenceSlot {
            whole: pages,
            ringed: rings,
        } = &seats[seat];
        let pages = pages.iter().enumerate().map(|(at, &whole)| Pair {
            whole,
            ringed: rings
                .get(at % rings.len().max(1))
                .copied()
                .flatten()
                .and_then(|(of, page)| (of == at).then_some(page)),
        });
        prefixes.insert(keys, pages, pools);
    }

    /// Forgets every prefix.
    pub(super) fn forget_prefixes(&mut self) {
        while self.forget(Kind::Whole) {}
    }
}
