//! Layout of the paged KV cache.

use super::params::PAGE;

/// Returns the number of positions per part of split attention if `seen` are visible: `part`, or whole
/// pages if that is more than `parts` parts.
#[must_use]
pub fn part_size(part: u32, parts: u32, seen: u32) -> u32 {
    match seen.div_ceil(parts.max(1)) {
        least if least > part => least.next_multiple_of(PAGE),
        _ => part,
    }
}

/// Layout of the KV cache in pages of [`PAGE`] positions.
///
/// The page table, [`BufferId::Pages`](super::table::BufferId::Pages), has one row per sequence:
/// `whole` pages for layers with full attention, then `ringed` pages for sliding-window layers, then
/// `states` pages for recurrent layers. Position `p` is in page `p / PAGE % ringed` of sliding-window
/// layers. A page of recurrent layers has the whole state of a sequence; entry `p / PAGE` is the state
/// after position `p`, and entries of adjacent positions are the same page unless the earlier state is
/// kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Pages per sequence in a layer with full attention.
    pub whole: u32,
    /// Pages per sequence in a sliding-window layer, less than `whole`; 0 if there is no such
    /// layer.
    pub ringed: u32,
    /// Largest window of the sliding-window layers. Layers with a larger window use `whole` pages.
    pub window: u32,
    /// Pages per full-attention layer for all sequences.
    pub whole_pool: u32,
    /// Pages per sliding-window layer for all sequences.
    pub ringed_pool: u32,
    /// Entries per sequence for recurrent layers; 0 if there is no such layer.
    pub states: u32,
    /// States per recurrent layer for all sequences.
    pub states_pool: u32,
    /// Maximum number of pages cached for prefix reuse after their sequence has ended.
    pub kept: u32,
}

/// Kind of layers that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Attention to all positions.
    Full,
    /// Attention to a sliding window.
    Windowed,
    /// A recurrent state: the page is the whole state of a sequence.
    State,
}

/// Pages of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPages {
    /// Index of the first page in a row of the page table.
    pub first: u32,
    /// Number of pages per sequence.
    pub ring: u32,
    /// Number of pages of the layer for all sequences.
    pub pool: u32,
}

impl Pages {
    /// Computes the layout for `sequences` sequences of `context` positions and layers with these
    /// windows (0: full attention). Pools hold the maximum number of pages of all sequences.
    ///
    /// A pass stores up to `rows` rows before the first of them reads its window. The ring has one
    /// page more than both need, so that a page is not overwritten while its positions are visible.
    pub fn new(sequences: u32, context: u32, windows: &[u32], rows: u32) -> Self {
        let whole = context.div_ceil(PAGE);
        let ring = |window: u32| window.saturating_add(rows - 1).div_ceil(PAGE) + 1;
        let ringed = windows.iter().filter(|w| **w > 0 && ring(**w) < whole);
        let window = ringed.copied().max().unwrap_or(0);
        let ringed = if window > 0 { ring(window) } else { 0 };
        Self {
            whole,
            ringed,
            window,
            whole_pool: sequences.saturating_mul(whole),
            ringed_pool: sequences.saturating_mul(ringed),
            states: 0,
            states_pool: 0,
            kept: sequences.saturating_mul(whole),
        }
    }

    /// Returns the layout with `pool` states for recurrent layers.
    #[must_use]
    pub fn with_states(self, pool: u32) -> Self {
        Self {
            states: self.whole,
            states_pool: pool,
            ..self
        }
    }

    /// Returns the layout with `kept` additional pages for prefix reuse.
    #[must_use]
    pub fn keeping(self, kept: u32) -> Self {
        let ringed = if self.ringed > 0 { kept } else { 0 };
        Self {
            whole_pool: self.whole_pool.saturating_add(kept),
            ringed_pool: self.ringed_pool.saturating_add(ringed),
            kept,
            ..self
        }
    }

    /// Returns the number of entries per row of the page table.
    pub fn stride(&self) -> u32 {
        self.whole + self.ringed + self.states
    }

    /// Returns the pages of a recurrent layer.
    pub fn of_states(&self) -> LayerPages {
        LayerPages {
            first: self.whole + self.ringed,
            ring: self.states,
            pool: self.states_pool,
        }
    }

    /// Returns the pages of a layer with this window; 0: full attention.
    pub fn of(&self, window: u32) -> LayerPages {
        if (1..=self.window).contains(&window) {
            LayerPages {
                first: self.whole,
                ring: self.ringed,
                pool: self.ringed_pool,
            }
        } else {
            LayerPages {
                first: 0,
                ring: self.whole,
                pool: self.whole_pool,
            }
        }
    }

    /// Returns the page table in which each sequence owns consecutive pages, as long as there are enough,
    /// and one state.
    pub fn in_order(&self, sequences: u32) -> Vec<u32> {
        let row = |s: u32| {
            let whole = s * self.whole..(s + 1) * self.whole;
            let ringed = s * self.ringed..(s + 1) * self.ringed;
            let states = (0..self.states).map(move |_| s % self.states_pool);
            whole
                .chain(ringed.map(|page| page % self.ringed_pool))
                .chain(states)
        };
        (0..sequences).flat_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwritten_ring_pages_are_outside_all_windows() {
        for (window, rows) in [
            (1, 1),
            (1, 65),
            (4, 8),
            (16, 49),
            (63, 2),
            (64, 1),
            (64, 64),
            (65, 1),
            (300, 256),
        ] {
            let pages = Pages::new(3, 4000, &[0, window, 1], rows);
            let ring = pages.of(window).ring;
            assert_eq!(ring, pages.ringed);
            for first in 0..1500u32 {
                // Pages that a pass writes, and earlier pages that its first row reads.
                let stored = first / PAGE..=(first + rows - 1) / PAGE;
                let seen = (first + 1).saturating_sub(window) / PAGE..first / PAGE;
                for page in seen {
                    let meets = |other: u32| other % ring == page % ring;
                    assert!(
                        !stored.clone().any(meets),
                        "window {window}, {rows} rows, {first}"
                    );
                }
            }
        }
    }

    #[test]
    fn rings_are_shorter_than_the_context() {
        let of = |context, windows: &[u32]| Pages::new(2, context, windows, 8);
        let none = of(100, &[0]);
        assert_eq!(
            [none.whole, none.ringed, none.whole_pool, none.ringed_pool],
            [2, 0, 4, 0]
        );
        assert_eq!(none.stride(), 2);
        assert_eq!(
            of(128, &[16]).ringed,
            0,
            "a ring of two pages is not shorter than the context"
        );
        assert_eq!(of(129, &[16]).ringed, 2);
        assert_eq!(of(4096, &[u32::MAX]).ringed, 0);
        let both = of(640, &[0, 16, 300, 600]);
        assert_eq!([both.whole, both.ringed, both.window], [10, 6, 300]);
        assert_eq!(both.of(600), both.of(0));
        assert_eq!(both.of(16), both.of(300));
        assert_eq!(
            both.of(0),
            LayerPages {
                first: 0,
                ring: 10,
                pool: 20
            }
        );
        assert_eq!(
            both.of(300),
            LayerPages {
                first: 10,
                ring: 6,
                pool: 12
            }
        );
        let more = both.keeping(7);
        assert_eq!([more.kept, more.whole_pool, more.ringed_pool], [7, 27, 19]);
        assert_eq!((none.keeping(7).ringed_pool, none.kept), (0, 4));
        let table = both.in_order(2);
        assert_eq!(table.len(), 2 * 16);
        assert_eq!((table[10], table[16], table[26]), (0, 10, 6));
    }
}
