//! The paged KV cache: page table, reference-counted pages, and the prefix cache.
//!
//! Full-attention layers, sliding-window layers and recurrent layers have separate kinds of pages. A
//! running sequence has a slot, which is a row of the page table on the device. Shared pages are
//! copy-on-write. Changes to apply on the device are returned as [`Edits`].

mod pool;
mod prefixes;
pub(super) mod saved;
mod slot_states;
mod states;

use crate::op::pages::{PageKind, Pages};
use crate::op::params::PAGE;
pub(super) use pool::PagePair;
use pool::{Page, Pool, Pools};
pub(super) use prefixes::PrefixKey;
use prefixes::{PrefixPath, PrefixTree};
pub(super) use states::PromptBorders;
use states::SequenceStates;
use std::ops::Range;

/// Number of positions of a page.
const POSITIONS: usize = PAGE as usize;

/// Changes to apply on the device before a pass.
#[derive(Debug)]
pub(super) struct Edits {
    /// Pages to copy, in this order.
    pub(super) copies: Vec<PageCopy>,
    /// Whether the row of the slot in the page table has changed.
    pub(super) entries: bool,
}

impl Edits {
    /// Reserves space for the maximum number of copies of one growth.
    pub(super) fn new() -> Self {
        Self {
            copies: Vec::with_capacity(2),
            entries: false,
        }
    }
}

/// Copy of a page to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageCopy {
    pub(super) kind: PageKind,
    pub(super) from: Page,
    pub(super) to: Page,
}

/// Length of a cached prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttachedPrefix {
    pub(super) tokens: usize,
    /// Number of leading tokens for which the keys and values of the drafting head are cached, too.
    pub(super) head_keys: usize,
}

/// Pages of a slot.
#[derive(Debug)]
struct SequenceSlot {
    full: Vec<Page>,
    /// For each entry of the window, the index of the page in the sequence, and the page.
    windowed: Vec<Option<(usize, Page)>>,
    states: SequenceStates,
}

/// Page table, pages and prefix cache.
#[derive(Debug)]
pub(super) struct Kv {
    layout: Pages,
    /// Page table on the device after the pending edits.
    table: Vec<u32>,
    pools: Pools,
    prefixes: PrefixTree,
    slots: Vec<SequenceSlot>,
    path: PrefixPath,
}

impl Kv {
    /// Creates a cache with empty slots.
    pub(super) fn new(slots: usize, layout: Pages) -> Self {
        let [entries, window_entries] = [layout.whole, layout.ringed].map(|n| n as usize);
        let slot = || SequenceSlot {
            full: Vec::with_capacity(entries),
            windowed: vec![None; window_entries],
            states: SequenceStates::with_capacity(entries),
        };
        Self {
            table: vec![0; slots * layout.stride() as usize],
            pools: Pools::new(&layout),
            prefixes: PrefixTree::new(layout.kept as usize),
            slots: (0..slots).map(|_| slot()).collect(),
            path: PrefixPath::with_capacity(entries),
            layout,
        }
    }

    /// Returns the row of a slot in the page table.
    pub(super) fn row(&self, slot: usize) -> &[u32] {
        let stride = self.layout.stride() as usize;
        &self.table[slot * stride..][..stride]
    }

    fn set(&mut self, slot: usize, at: usize, page: Page, edits: &mut Edits) {
        let stride = self.layout.stride() as usize;
        self.table[slot * stride + at] = page;
        edits.entries = true;
    }

    /// Number of page table entries of a sequence for full-attention layers.
    fn entries(&self) -> usize {
        self.layout.whole as usize
    }

    /// Number of page table entries of a sequence for sliding-window layers.
    fn window_entries(&self) -> usize {
        self.layout.ringed as usize
    }

    /// Attaches the longest cached prefix to an empty slot. `fits` shortens a length to one that may be used.
    pub(super) fn attach_prefix(
        &mut self,
        slot: usize,
        key: PrefixKey<'_>,
        fits: impl Fn(usize) -> usize,
        edits: &mut Edits,
    ) -> AttachedPrefix {
        let window = self.layout.window as usize;
        let mut path = std::mem::take(&mut self.path);
        self.prefixes.find(key, &mut path);
        let mut tokens = path.tokens();
        loop {
            let fitting = fits(tokens);
            PrefixTree::truncate(&mut path, fitting);
            tokens = self.prefixes.len_with_window(&path, window);
            PrefixTree::truncate(&mut path, tokens);
            if self.layout.states > 0 {
                tokens = self.prefixes.len_with_state(&path);
                PrefixTree::truncate(&mut path, tokens);
            }
            if tokens == fitting {
                break;
            }
        }
        self.prefixes.touch_path(&path);
        let first_window_page = tokens.saturating_sub(window) / POSITIONS;
        debug_assert!(self.slots[slot].full.is_empty(), "slot {slot} is in use");
        for at in 0..path.pages() {
            let pages = self.prefixes.pages(&path, at);
            self.pools.full.retain(pages.full);
            self.slots[slot].full.push(pages.full);
            self.set(slot, at, pages.full, edits);
            if let Some(page) = pages.windowed.filter(|_| at >= first_window_page) {
                self.pools.windowed.retain(page);
                let entry = at % self.window_entries();
                self.slots[slot].windowed[entry] = Some((at, page));
                self.set(slot, self.entries() + entry, page, edits);
            }
        }
        self.attach_state(slot, &path, edits);
        let head_keys = self.prefixes.len_with_head_keys(&path);
        self.path = path;
        AttachedPrefix { tokens, head_keys }
    }

    /// Makes positions of a slot writable. All earlier positions must exist.
    pub(super) fn make_writable(
        &mut self,
        slot: usize,
        positions: Range<usize>,
        edits: &mut Edits,
    ) {
        if positions.is_empty() {
            return;
        }
        if self.layout.states > 0 {
            self.make_state_writable(slot, positions.clone(), edits);
        }
        let pages = positions.start / POSITIONS..positions.end.div_ceil(POSITIONS);
        for page in pages {
            self.make_full_writable(slot, page, positions.start, edits);
            if self.window_entries() > 0 {
                self.make_windowed_writable(slot, page, positions.start, edits);
            }
        }
    }

    /// Makes a page of a slot writable and preserves positions before `start`.
    fn make_full_writable(&mut self, slot: usize, at: usize, start: usize, edits: &mut Edits) {
        let old = self.slots[slot].full.get(at).copied();
        let page = match old {
            Some(old) if !self.must_copy(PageKind::Full, old) => return,
            Some(old) => {
                let page = self.allocate(PageKind::Full);
                if start > at * POSITIONS {
                    let kind = PageKind::Full;
                    edits.copies.push(PageCopy {
                        kind,
                        from: old,
                        to: page,
                    });
                }
                self.pools.full.release(old);
                self.slots[slot].full[at] = page;
                page
            }
            None => {
                let page = self.allocate(PageKind::Full);
                debug_assert_eq!(self.slots[slot].full.len(), at, "slot {slot} skips a page");
                self.slots[slot].full.push(page);
                page
            }
        };
        self.set(slot, at, page, edits);
    }

    /// Makes a page of the sliding-window layers writable.
    fn make_windowed_writable(&mut self, slot: usize, of: usize, start: usize, edits: &mut Edits) {
        let entry = of % self.window_entries();
        let old = self.slots[slot].windowed[entry];
        let page = match old {
            Some((at, old)) if at == of && !self.must_copy(PageKind::Windowed, old) => return,
            Some((at, old)) => {
                // A page that is not copied has left the window: release it first, so that it can
                // be allocated again.
                let copied = at == of && start > of * POSITIONS;
                if !copied {
                    self.pools.windowed.release(old);
                }
                let page = self.allocate(PageKind::Windowed);
                if copied {
                    let kind = PageKind::Windowed;
                    edits.copies.push(PageCopy {
                        kind,
                        from: old,
                        to: page,
                    });
                    self.pools.windowed.release(old);
                }
                page
            }
            None => self.allocate(PageKind::Windowed),
        };
        self.slots[slot].windowed[entry] = Some((of, page));
        self.set(slot, self.entries() + entry, page, edits);
    }

    fn pool(&mut self, kind: PageKind) -> &mut Pool {
        match kind {
            PageKind::Full => &mut self.pools.full,
            PageKind::Windowed => &mut self.pools.windowed,
            PageKind::State => &mut self.pools.states,
        }
    }

    /// Returns whether a page must be copied before writing. Evicts prefixes if they share the page
    /// and no page is free.
    fn must_copy(&mut self, kind: PageKind, page: Page) -> bool {
        while self.pool(kind).is_shared(page) && self.pool(kind).free() == 0 {
            if !self.evict(kind) {
                break;
            }
        }
        self.pool(kind).is_shared(page)
    }

    fn evict(&mut self, kind: PageKind) -> bool {
        match kind {
            PageKind::Full => self.prefixes.evict_lru(&mut self.pools),
            PageKind::Windowed => self.prefixes.evict_windowed(&mut self.pools.windowed),
            PageKind::State => self.prefixes.evict_state(&mut self.pools.states),
        }
    }

    /// Allocates a page of keys and values. There are enough pages for all slots, so evicting prefixes
    /// always succeeds.
    fn allocate(&mut self, kind: PageKind) -> Page {
        loop {
            if let Some(page) = self.pool(kind).allocate() {
                return page;
            }
            let evicted = self.evict(kind);
            assert!(evicted, "slots use more pages than they have entries");
        }
    }

    /// Releases the pages of a slot after the first `positions` positions.
    pub(super) fn release_pages_after(&mut self, slot: usize, positions: usize) {
        let keep = positions.div_ceil(POSITIONS);
        let Self { pools, slots, .. } = self;
        let slot = &mut slots[slot];
        let released = slot.full.drain(keep.min(slot.full.len())..);
        released.for_each(|page| pools.full.release(page));
        for entry in &mut slot.windowed {
            if let Some((_, page)) = entry.take_if(|(at, _)| *at >= keep) {
                pools.windowed.release(page);
            }
        }
        slot.states.truncate(keep, &mut pools.states);
    }

    /// Adds the pages of a slot to the prefix cache. The first `head_keys` positions have the keys and values of
    /// the drafting head.
    pub(super) fn insert_prefix(&mut self, slot: usize, key: PrefixKey<'_>, head_keys: usize) {
        let Self {
            pools,
            prefixes,
            slots,
            ..
        } = self;
        let SequenceSlot {
            full: pages,
            windowed: windowed_pages,
            states,
        } = &slots[slot];
        let tokens = key.token_ids.len();
        let pages = pages.iter().enumerate().map(|(at, &full)| PagePair {
            full,
            windowed: windowed_pages
                .get(at % windowed_pages.len().max(1))
                .copied()
                .flatten()
                .and_then(|(of, page)| (of == at).then_some(page)),
            state: states.kept(at, tokens),
            has_head_keys: head_keys >= tokens.min((at + 1) * POSITIONS),
        });
        prefixes.insert(key, pages, pools);
    }

    /// Clears the prefix cache.
    pub(super) fn clear_prefixes(&mut self) {
        while self.evict(PageKind::Full) {}
    }
}
