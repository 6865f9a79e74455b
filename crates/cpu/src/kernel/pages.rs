//! Page tables: the cache rows of a sequence's positions.

use tabla_core::op::params::PAGE;

/// Positions per page.
const POSITIONS: usize = PAGE as usize;

/// Pages of a sequence in a layer.
#[derive(Clone, Copy)]
pub(super) struct Pages<'a>(&'a [u32]);

impl<'a> Pages<'a> {
    /// The pages in entries `first..first + ring` of a row of the table, which has `stride` entries
    /// per row.
    #[inline(always)]
    pub(super) fn of(table: &'a [u8], sequence: u32, [stride, first, ring]: [u32; 3]) -> Self {
        let table: &[u32] = bytemuck::cast_slice(table);
        let row = &table[sequence as usize * stride as usize..][..stride as usize];
        Self(&row[first as usize..][..ring as usize])
    }

    /// Cache row of a position.
    #[inline(always)]
    pub(super) fn row(self, position: usize) -> usize {
        let page = self.0[position / POSITIONS % self.0.len()] as usize;
        page * POSITIONS + position % POSITIONS
    }
}
