//! Page tables: the cache rows of a sequence's positions, and its states.

use std::ops::Range;
use tabla_core::op::params::{PAGE, Row};

/// Positions per page.
const POSITIONS: usize = PAGE as usize;

/// Pages of a sequence in a layer.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a>(&'a [u32]);

impl<'a> Pages<'a> {
    /// The pages in entries `first..first + ring` of a row of the table, which has `stride` entries
    /// per row.
    #[inline(always)]
    pub(crate) fn of(table: &'a [u8], sequence: u32, [stride, first, ring]: [u32; 3]) -> Self {
        let table: &[u32] = bytemuck::cast_slice(table);
        let row = &table[sequence as usize * stride as usize..][..stride as usize];
        Self(&row[first as usize..][..ring as usize])
    }

    /// Cache row of a position.
    #[inline(always)]
    pub(crate) fn row(self, position: usize) -> usize {
        let page = self.0[position / POSITIONS % self.0.len()] as usize;
        page * POSITIONS + position % POSITIONS
    }
}

/// States of a sequence in a recurrent layer.
#[derive(Clone, Copy)]
pub(crate) struct StatePages<'a>(Pages<'a>);

impl<'a> StatePages<'a> {
    /// As for [`Pages::of`].
    #[inline(always)]
    pub(crate) fn of(table: &'a [u8], sequence: u32, layout: [u32; 3]) -> Self {
        Self(Pages::of(table, sequence, layout))
    }

    /// State after a position.
    #[inline(always)]
    pub(crate) fn state(self, position: usize) -> usize {
        self.0.0[position / POSITIONS] as usize
    }
}

/// Splits rows into runs of the same sequence.
pub(crate) fn runs(rows: &[Row], of: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut end = of.start;
    let runs = rows[of].chunk_by(|a, b| a.sequence == b.sequence);
    runs.map(move |run| {
        end += run.len();
        end - run.len()..end
    })
}
