//! The KV cache in pages: how many a sequence has, and where a position lies.

pub use super::params::PAGE;

/// How the KV cache lies in pages of [`PAGE`] positions.
///
/// A table, [`BufferId::Pages`](super::table::BufferId::Pages), has a row for each sequence: the pages
/// of its positions in layers without a window, `whole` of them, then those in layers with one,
/// `ringed` of them, where position `p` lies in the `p / PAGE % ringed`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Pages of a sequence in a layer whose positions all stay.
    pub whole: u32,
    /// Pages of a sequence in a layer with a window, fewer than `whole`; 0: there is no such layer.
    pub ringed: u32,
    /// The widest window of those layers. Wider ones have whole pages.
    pub window: u32,
    /// Pages that a layer of the first kind has for all sequences.
    pub whole_pool: u32,
    /// The same of the second kind.
    pub ringed_pool: u32,
    /// Pages that stay, at most, for whoever comes with the same tokens when their sequence has gone.
    pub kept: u32,
}

/// The pages of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPages {
    /// Where they begin in a row of the table.
    pub first: u32,
    /// How many there are in it.
    pub ring: u32,
    /// How many the layer has for all sequences.
    pub pool: u32,
}

impl Pages {
    /// Pages for sequences of so many positions in layers with these windows, 0 for none, where a
    /// pass has `rows` tokens at most: pools have one for each that a sequence may have.
    ///
    /// The rows of a pass are stored before the first of them looks at its window. A ring holds one
    /// page more than both take: where a page begins anew, nothing of it is still seen.
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
            kept: sequences.saturating_mul(whole),
        }
    }

    /// The same with so many pages that stay, which no sequence takes away.
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

    /// Entries of a row of the table.
    pub fn stride(&self) -> u32 {
        self.whole + self.ringed
    }

    /// The pages of a layer with this window; 0: none.
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

    /// The table that gives every sequence pages of its own, in their order.
    pub fn in_order(&self, sequences: u32) -> Vec<u32> {
        let row = |s: u32| {
            let whole = s * self.whole..(s + 1) * self.whole;
            whole.chain(s * self.ringed..(s + 1) * self.ringed)
        };
        (0..sequences).flat_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_begins_anew_holds_nothing_that_a_pass_sees() {
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
                // What a pass stores, and what its first row sees before it.
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
    fn rings_are_shorter_than_the_context_or_there_are_none() {
        let of = |context, windows: &[u32]| Pages::new(2, context, windows, 8);
        let none = of(100, &[0]);
        assert_eq!(
            [none.whole, none.ringed, none.whole_pool, none.ringed_pool],
            [2, 0, 4, 0]
        );
        assert_eq!(none.stride(), 2);
        assert_eq!(of(128, &[16]).ringed, 0, "two pages are all");
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
