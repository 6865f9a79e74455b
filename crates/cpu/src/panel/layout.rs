//! Layouts: how the fields of blocks are arranged in a panel.
//!
//! A panel is a sequence of blocks, so it is read in the order of memory, as fast as memory allows.
//! Fields smaller than a cache line are stored together for a group of blocks, before the other
//! fields of the group, so that all others are aligned to cache lines.

use crate::simd::rows::{AHEAD, Column, Half, ROWS, Word};
use crate::simd::{Simd, words};
use std::ops::Range;
use tabla_quant::{CHUNK, Matrix};

/// Columns of a block: their activations share a scale, as in ggml's `QK8_0`.
pub const QK: usize = 32;

/// Words of a block: four columns of each row.
pub(crate) const WORDS: usize = QK / 4;

/// Layout of the bytes of a block in the file.
#[derive(Debug)]
pub struct Layout {
    /// Columns of a block.
    pub columns: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Fields of a block.
    pub fields: &'static [Field],
}

/// A range of bytes of a block.
#[derive(Debug)]
pub struct Field {
    /// Offset of the first byte.
    pub(super) at: usize,
    /// Bytes that stay together: 4, 2 or 1.
    pub(super) unit: usize,
    /// Number of units.
    pub(super) count: usize,
    /// Order of the bits of each word in a panel.
    pub(super) order: BitOrder,
}

/// Order of the bits of a word in a panel, so that a shift extracts the codes of four columns.
#[derive(Clone, Copy, Debug)]
pub(super) enum BitOrder {
    /// As in the file.
    Same,
    /// One bit per column: bit `4 w + i` moves to bit `w` of byte `i`.
    Bits,
    /// Two bits per column: bits `8 w + 2 i` and above move to bits `2 w` and above of byte `i`.
    Pairs,
}

impl Field {
    pub(super) const fn new(unit: usize, at: usize, count: usize) -> Self {
        Self {
            at,
            unit,
            count,
            order: BitOrder::Same,
        }
    }

    /// Words with one bit per column.
    pub(super) const fn bits(at: usize, count: usize) -> Self {
        Self {
            order: BitOrder::Bits,
            ..Self::new(4, at, count)
        }
    }

    /// Words with two bits per column.
    pub(super) const fn pairs(at: usize, count: usize) -> Self {
        Self {
            order: BitOrder::Pairs,
            ..Self::new(4, at, count)
        }
    }

    /// Bytes of the field in one block of a panel.
    const fn block_bytes(&self) -> usize {
        self.unit * self.count * ROWS
    }

    /// Interleaves the field of all blocks of at most `ROWS` rows.
    fn pack(&self, rows: &[&[u8]], blocks: FieldOffsets, out: &mut [u8]) {
        match (self.unit, self.order) {
            (4, BitOrder::Bits) => self.interleave::<4>(rows, blocks, out, spread_bits),
            (4, BitOrder::Pairs) => self.interleave::<4>(rows, blocks, out, transpose_pairs),
            (4, _) if rows.len() == ROWS && self.count.is_multiple_of(4) => {
                self.transpose_words(rows, blocks, out);
            }
            (4, _) => self.interleave::<4>(rows, blocks, out, |word| word),
            (2, _) => self.interleave::<2>(rows, blocks, out, |half| half),
            _ => self.interleave::<1>(rows, blocks, out, |byte| byte),
        }
    }

    /// Interleaves words of all rows, four rows at a time.
    fn transpose_words(&self, rows: &[&[u8]], blocks: FieldOffsets, out: &mut [u8]) {
        for (lanes, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
            blocks.for_each(self, out, |from, out| {
                let out: &mut [Columns] = out.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0;
                let four = rows.map(|row| row[from.clone()].as_chunks::<4>().0);
                for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    let words = four.map(|words| words.as_chunks().0[i]);
                    for (out, column) in out.iter_mut().zip(words::transpose(words)) {
                        out[lanes] = column;
                    }
                }
            });
        }
    }

    #[inline(always)]
    fn interleave<const UNIT: usize>(
        &self,
        rows: &[&[u8]],
        blocks: FieldOffsets,
        out: &mut [u8],
        transform: impl Fn([u8; UNIT]) -> [u8; UNIT],
    ) {
        blocks.for_each(self, out, |from, out| {
            let out: &mut [[[u8; UNIT]; ROWS]] = out.as_chunks_mut::<UNIT>().0.as_chunks_mut().0;
            for (lanes, first) in out.iter_mut().zip(from.step_by(UNIT)) {
                for (lane, row) in lanes.iter_mut().zip(rows) {
                    let unit = row[first..].first_chunk();
                    *lane = transform(*unit.expect("rows are whole blocks"));
                }
            }
        });
    }

    const fn size(&self) -> Size {
        match self.block_bytes().is_multiple_of(LINE) {
            true => Size::Lines,
            false => Size::Small,
        }
    }
}

/// Offsets of a field in successive blocks, in rows and in a panel.
#[derive(Clone, Copy)]
struct FieldOffsets {
    /// Bytes of a block in a row.
    row_bytes: usize,
    /// Bytes of a group in the panel.
    group_bytes: usize,
    /// Blocks of a group.
    count: usize,
    /// Offset of the first block's field in a group.
    first: usize,
    /// Distance between the fields of two blocks of a group.
    step: usize,
}

impl FieldOffsets {
    /// Calls `each` with the bytes of the field in the row and in the panel, for every block.
    #[inline(always)]
    fn for_each(
        self,
        field: &Field,
        panel: &mut [u8],
        mut each: impl FnMut(Range<usize>, &mut [u8]),
    ) {
        let (bytes, to) = (field.unit * field.count, field.block_bytes());
        let mut at = field.at;
        for group in panel.chunks_exact_mut(self.group_bytes) {
            for block in 0..self.count {
                let first = self.first + block * self.step;
                each(at..at + bytes, &mut group[first..first + to]);
                at += self.row_bytes;
            }
        }
    }
}

/// Size of a field in one block of a panel.
#[derive(Clone, Copy)]
enum Size {
    /// Less than a cache line.
    Small,
    /// Whole cache lines.
    Lines,
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl Layout {
    /// Bytes of `columns` columns of a row, which must be whole blocks.
    pub fn row_bytes(&self, columns: usize) -> usize {
        columns / self.columns * self.bytes
    }

    /// Bytes of a block of a panel.
    const fn block_bytes(&self) -> usize {
        self.bytes * ROWS
    }

    /// Blocks of a group: as few as fill whole cache lines. The last group of a panel may have fewer.
    const fn group(&self) -> usize {
        let mut blocks = 1;
        while !(blocks * self.block_bytes()).is_multiple_of(LINE) {
            blocks *= 2;
        }
        blocks
    }

    /// Bytes in one block of those of the first `fields` fields that have this size.
    const fn bytes_before(&self, fields: usize, size: Size) -> usize {
        let (mut bytes, mut i) = (0, 0);
        while i < fields {
            if self.fields[i].size() as u8 == size as u8 {
                bytes += self.fields[i].block_bytes();
            }
            i += 1;
        }
        bytes
    }

    /// Bytes of a field of block `at` in a group of `count` blocks.
    #[inline(always)]
    const fn field_bytes(&self, field: usize, at: usize, count: usize) -> Range<usize> {
        let bytes = self.fields[field].block_bytes();
        let all = self.fields.len();
        let small = self.bytes_before(all, Size::Small) * count;
        let first = match self.fields[field].size() {
            Size::Small => self.bytes_before(field, Size::Small) * count + at * bytes,
            Size::Lines => {
                let before = self.bytes_before(field, Size::Lines);
                small.next_multiple_of(LINE) + at * self.bytes_before(all, Size::Lines) + before
            }
        };
        first..first + bytes
    }

    /// Bytes of a panel with this many columns, which must be whole blocks; rounded up to whole cache
    /// lines.
    pub fn panel_bytes(&self, columns: usize) -> usize {
        (columns / self.columns * self.block_bytes()).next_multiple_of(LINE)
    }

    /// Interleaves at most `ROWS` rows; the places of missing rows stay as they are.
    pub fn pack(&self, rows: &[&[u8]], panel: &mut [u8]) {
        /// Bytes that are interleaved at a time, one field after the other: they stay in the L1
        /// cache.
        const TILE_BYTES: usize = 8 << 10;
        let (group, bytes) = (self.group(), self.block_bytes());
        let tile = (TILE_BYTES / (group * bytes)).max(1) * group;
        let mut blocks = 0..rows.first().map_or(0, |row| row.len() / self.bytes);
        while !blocks.is_empty() {
            // The last group may have fewer blocks; it fills whole cache lines.
            let count = group.min(blocks.len());
            let part = (blocks.len() / count * count).min(tile);
            let out = &mut panel[blocks.start * bytes..];
            let out_bytes = (part * bytes).next_multiple_of(LINE);
            self.pack_groups(
                rows,
                blocks.start..blocks.start + part,
                count,
                &mut out[..out_bytes],
            );
            blocks.start += part;
        }
    }

    /// Interleaves these blocks of the rows, in groups of `count`.
    fn pack_groups(&self, rows: &[&[u8]], blocks: Range<usize>, count: usize, out: &mut [u8]) {
        let mut parts = [&[][..]; ROWS];
        for (part, row) in parts.iter_mut().zip(rows) {
            *part = &row[blocks.start * self.bytes..blocks.end * self.bytes];
        }
        for (i, field) in self.fields.iter().enumerate() {
            let first = self.field_bytes(i, 0, count).start;
            let offsets = FieldOffsets {
                row_bytes: self.bytes,
                group_bytes: out.len() * count / blocks.len(),
                count,
                first,
                step: self.field_bytes(i, 1, count).start - first,
            };
            field.pack(&parts[..rows.len().min(ROWS)], offsets, out);
        }
    }

    /// Restores the bytes of some columns of a row of a packed matrix. The columns must be whole
    /// blocks of at most `to.len()` bytes.
    pub fn unpack<'a>(
        &self,
        packed: &Matrix<'_>,
        row: usize,
        columns: Range<usize>,
        to: &'a mut [u8],
    ) -> &'a [u8] {
        let to = &mut to[..self.row_bytes(columns.len())];
        let bytes = self.panel_bytes(packed.cols);
        let panel = self.open(&packed.bytes[row / ROWS * bytes..][..bytes], packed.cols);
        let blocks = to.chunks_exact_mut(self.bytes);
        for (to, block) in blocks.zip(columns.start / self.columns..) {
            let block = panel.block(self, block);
            for (i, field) in self.fields.iter().enumerate() {
                let to = to[field.at..].chunks_exact_mut(field.unit);
                let lanes = block.field(i).chunks_exact(field.unit * ROWS);
                for (to, lanes) in to.zip(lanes) {
                    to.copy_from_slice(&lanes[row % ROWS * field.unit..][..field.unit]);
                    match (field.order, to.first_chunk_mut()) {
                        (BitOrder::Bits, Some(word)) => *word = gather_bits(*word),
                        (BitOrder::Pairs, Some(word)) => *word = transpose_pairs(*word),
                        _ => {}
                    }
                }
            }
        }
        to
    }

    /// Opens panel `at` of a matrix with this many columns, whose panels are read in order.
    #[inline(always)]
    pub(crate) fn open_at<'a>(&self, panels: &'a [u8], at: usize, columns: usize) -> Panel<'a> {
        let bytes = self.panel_bytes(columns);
        Panel {
            ahead: AHEAD,
            ..self.open(&panels[at * bytes..][..bytes], columns)
        }
    }

    /// Opens a panel with this many columns.
    #[inline(always)]
    pub(crate) fn open<'a>(&self, panel: &'a [u8], columns: usize) -> Panel<'a> {
        Panel {
            bytes: panel,
            blocks: columns / self.columns,
            ahead: 0,
        }
    }
}

/// Maximum number of bytes of a chunk of a row.
pub const CHUNK_BYTES: usize = 2 * CHUNK;

/// BF16: two columns of each row per word.
#[cfg(target_arch = "x86_64")]
pub const FLOATS: Layout = Layout {
    columns: 32,
    bytes: 64,
    fields: &[Field::new(4, 0, 16)],
};

/// A word of each row, in groups of four rows.
type Columns = [[[u8; 4]; 4]; ROWS / 4];

/// Rearranges 32 bits, one per column, so that a shift extracts those of four columns.
#[inline(always)]
fn spread_bits(word: [u8; 4]) -> [u8; 4] {
    let bits = u32::from_le_bytes(word);
    let mut out = 0;
    for w in 0..WORDS {
        // Four bits, one per byte: the copies do not overlap.
        let four = bits >> (4 * w) & 15;
        out |= (four.wrapping_mul(0x0020_4081) & 0x0101_0101) << w;
    }
    u32::to_le_bytes(out)
}

/// Inverse of [`spread_bits`].
fn gather_bits(word: [u8; 4]) -> [u8; 4] {
    let word = u32::from_le_bytes(word);
    let from = |bit: usize| word >> (8 * (bit % 4) + bit / 4) & 1;
    let bits = (0..u32::BITS as usize).fold(0, |bits, bit| bits | from(bit) << bit);
    u32::to_le_bytes(bits)
}

/// Rearranges sixteen pairs of bits, one per column, so that a shift extracts those of four columns: a
/// transposition, and so its own inverse.
#[inline(always)]
fn transpose_pairs(word: [u8; 4]) -> [u8; 4] {
    let mut pairs = u32::from_le_bytes(word);
    // Swaps single pairs, then groups of two by two.
    for (distance, mask) in [(6, 0x00cc_00cc), (12, 0x0000_f0f0)] {
        let differing = (pairs ^ pairs >> distance) & mask;
        pairs ^= differing | differing << distance;
    }
    pairs.to_le_bytes()
}

/// A panel, opened for reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panel<'a> {
    bytes: &'a [u8],
    blocks: usize,
    /// Prefetch distance in bytes; 0 if the panel is in cache.
    ahead: usize,
}

impl<'a> Panel<'a> {
    /// Prefetches a part of a block further on, in this panel or the next one. It is called in
    /// several parts per block, because many prefetches at once would stall each other and all other
    /// loads.
    ///
    /// A core drops prefetches while it waits for too many lines. That does not matter for small
    /// blocks, because it executes several of them at a time. Lines of large blocks are prefetched
    /// again, to the L1 cache.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd>(
        &self,
        s: S,
        layout: &'static Layout,
        block: usize,
        [part, parts]: [usize; 2],
    ) {
        if self.ahead == 0 {
            return;
        }
        let first = block * layout.block_bytes() + self.ahead;
        let lines = layout.block_bytes().div_ceil(LINE);
        for line in lines * part / parts..lines * (part + 1) / parts {
            let at = first + LINE * line;
            if layout.block_bytes() > 8 * LINE {
                s.prefetch(self.bytes, at + AHEAD);
                s.prefetch_l1(self.bytes, at);
            } else {
                s.prefetch(self.bytes, at);
            }
        }
    }

    /// Opens a block.
    #[inline(always)]
    pub(super) fn block<'l>(&self, layout: &'l Layout, block: usize) -> Block<'a, 'l> {
        let group = layout.group();
        let first = block / group * group;
        Block {
            layout,
            group: &self.bytes[first * layout.block_bytes()..],
            at: block - first,
            count: group.min(self.blocks - first),
        }
    }
}

/// A block of a panel.
pub(super) struct Block<'a, 'l> {
    layout: &'l Layout,
    /// Bytes from its group on.
    group: &'a [u8],
    /// Index in the group.
    at: usize,
    /// Blocks of the group.
    count: usize,
}

impl<'a> Block<'a, '_> {
    /// Bytes of a field.
    #[inline(always)]
    fn field(&self, field: usize) -> &'a [u8] {
        &self.group[self.layout.field_bytes(field, self.at, self.count)]
    }

    /// A field of `N` words: four bytes of each row.
    #[inline(always)]
    pub(super) fn words<const N: usize>(&self, field: usize) -> &'a [Word; N] {
        let words = self.field(field).as_chunks::<{ 4 * ROWS }>().0;
        words.first_chunk().expect(COUNT)
    }

    /// A field of two bytes of each row.
    #[inline(always)]
    pub(super) fn half(&self, field: usize) -> &'a Half {
        self.field(field).first_chunk().expect(COUNT)
    }

    /// A field of one byte of each row.
    #[inline(always)]
    pub(super) fn bytes(&self, field: usize) -> &'a [u8; ROWS] {
        self.field(field).first_chunk().expect(COUNT)
    }
}

const COUNT: &str = "the field has as many units";

/// The codes of a decoded block in memory.
pub(crate) type StoredCodes = [Word; WORDS];
/// Scales or minima of a decoded block in memory.
pub(crate) type StoredScales = [Column; 2];
