//! Layouts: how the fields of blocks are arranged in a panel.

use crate::simd::rows::{AHEAD, Column, Half, ROWS, Word};
use crate::simd::{Simd, words};
use std::ops::Range;
use tabla_quant::{CHUNK, Matrix};

/// Columns of a block: their activations share a scale, as in ggml's `QK8_0`.
pub const QK: usize = 32;

/// Words of a block: four columns of each row.
pub(crate) const WORDS: usize = QK / 4;

/// Maximum number of fields of a format.
const FIELDS_MAX: usize = 5;

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
    /// Whether bit `4 w + i` of each word moves to bit `w` of byte `i`.
    pub(super) spread: bool,
}

impl Field {
    pub(super) const fn new(unit: usize, at: usize, count: usize) -> Self {
        Self {
            at,
            unit,
            count,
            spread: false,
        }
    }

    /// One bit per column in one word, arranged so that a shift extracts those of four columns.
    pub(super) const fn spread(at: usize) -> Self {
        Self {
            spread: true,
            ..Self::new(4, at, 1)
        }
    }

    /// Bytes of the field in one block of a panel.
    const fn block_bytes(&self) -> usize {
        self.unit * self.count * ROWS
    }

    /// Cache lines of the field in one block of a panel.
    const fn lines(&self) -> usize {
        self.block_bytes().div_ceil(64)
    }

    /// Bytes of the field in a panel with `blocks` blocks, rounded up to whole cache lines.
    fn panel_bytes(&self, blocks: usize) -> usize {
        (self.block_bytes() * blocks).next_multiple_of(64)
    }
}

impl Layout {
    /// Bytes of `columns` columns of a row, which must be whole blocks.
    pub fn row_bytes(&self, columns: usize) -> usize {
        columns / self.columns * self.bytes
    }

    /// Bytes of a panel with this many columns, which must be whole blocks.
    pub fn panel_bytes(&self, columns: usize) -> usize {
        let blocks = columns / self.columns;
        self.fields.iter().map(|f| f.panel_bytes(blocks)).sum()
    }

    /// Interleaves at most `ROWS` rows; missing rows are filled with zeros.
    pub fn pack(&self, rows: &[&[u8]], panel: &mut [u8]) {
        let blocks = rows.first().map_or(0, |row| row.len() / self.bytes);
        let mut rest = panel;
        for field in self.fields {
            let (out, tail) = rest.split_at_mut(field.panel_bytes(blocks));
            rest = tail;
            match field.unit {
                4 if field.spread => self.interleave::<4>(rows, field, out, spread),
                4 if rows.len() == ROWS && field.count.is_multiple_of(4) => {
                    self.transpose_words(rows, field, out);
                }
                4 => self.interleave::<4>(rows, field, out, |word| word),
                2 => self.interleave::<2>(rows, field, out, |half| half),
                _ => self.interleave::<1>(rows, field, out, |byte| byte),
            }
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
        let mut rest = &packed.bytes[row / ROWS * bytes..][..bytes];
        for field in self.fields {
            let (panel, tail) = rest.split_at(field.panel_bytes(packed.cols / self.columns));
            rest = tail;
            let blocks = panel.chunks_exact(field.block_bytes());
            let blocks = blocks.skip(columns.start / self.columns);
            for (to, block) in to.chunks_exact_mut(self.bytes).zip(blocks) {
                let to = to[field.at..].chunks_exact_mut(field.unit);
                for (to, lanes) in to.zip(block.chunks_exact(field.unit * ROWS)) {
                    to.copy_from_slice(&lanes[row % ROWS * field.unit..][..field.unit]);
                    if let Some(word) = to.first_chunk_mut().filter(|_| field.spread) {
                        *word = gather(*word);
                    }
                }
            }
        }
        to
    }

    /// Interleaves words of all rows, four rows at a time.
    fn transpose_words(&self, rows: &[&[u8]], field: &Field, out: &mut [u8]) {
        let out: &mut [Columns] = out.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0;
        let bytes = field.at..field.at + 4 * field.count;
        let blocks = rows.first().map_or(0, |row| row.len() / self.bytes);
        for (block, out) in (0..blocks).zip(out.chunks_exact_mut(field.count)) {
            let block = block * self.bytes;
            for (at, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
                let four = rows.map(|row| row[block..][bytes.clone()].as_chunks::<4>().0);
                for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    let words = four.map(|words| words.as_chunks().0[i]);
                    for (out, column) in out.iter_mut().zip(words::transpose(words)) {
                        out[at] = column;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn interleave<const UNIT: usize>(
        &self,
        rows: &[&[u8]],
        field: &Field,
        out: &mut [u8],
        transform: impl Fn([u8; UNIT]) -> [u8; UNIT],
    ) {
        let out: &mut [[[u8; UNIT]; ROWS]] = out.as_chunks_mut::<UNIT>().0.as_chunks_mut().0;
        let bytes = field.at..field.at + UNIT * field.count;
        let blocks = rows.first().map_or(0, |row| row.len() / self.bytes);
        for (block, out) in (0..blocks).zip(out.chunks_exact_mut(field.count)) {
            let block = block * self.bytes;
            for (row, lane) in rows.iter().zip(0..ROWS) {
                let units = row[block..][bytes.clone()].as_chunks::<UNIT>().0;
                for (out, unit) in out.iter_mut().zip(units) {
                    out[lane] = transform(*unit);
                }
            }
        }
    }

    /// Opens panel `at` of a matrix with this many columns.
    #[inline(always)]
    pub(crate) fn open_at<'a>(&self, panels: &'a [u8], at: usize, columns: usize) -> Panel<'a> {
        let bytes = self.panel_bytes(columns);
        Panel {
            ahead: AHEAD.div_ceil(self.bytes * ROWS),
            ..self.open(&panels[at * bytes..][..bytes], columns)
        }
    }

    /// Opens a panel with this many columns.
    #[inline(always)]
    pub(crate) fn open<'a>(&self, panel: &'a [u8], columns: usize) -> Panel<'a> {
        let blocks = columns / self.columns;
        let mut fields = [&panel[..0]; FIELDS_MAX];
        let mut rest = panel;
        for (i, field) in self.fields.iter().enumerate() {
            let (bytes, tail) = rest.split_at(field.panel_bytes(blocks));
            fields[i] = bytes;
            rest = tail;
        }
        Panel {
            fields,
            blocks,
            bytes: panel.len(),
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
fn spread(word: [u8; 4]) -> [u8; 4] {
    let bits = u32::from_le_bytes(word);
    let mut out = 0;
    for w in 0..WORDS {
        // Four bits, one per byte: the copies do not overlap.
        let four = bits >> (4 * w) & 15;
        out |= (four.wrapping_mul(0x0020_4081) & 0x0101_0101) << w;
    }
    u32::to_le_bytes(out)
}

/// Inverse of [`spread`].
fn gather(word: [u8; 4]) -> [u8; 4] {
    let word = u32::from_le_bytes(word);
    let from = |bit: usize| word >> (8 * (bit % 4) + bit / 4) & 1;
    let bits = (0..u32::BITS as usize).fold(0, |bits, bit| bits | from(bit) << bit);
    u32::to_le_bytes(bits)
}

/// A panel, divided into fields.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    fields: [&'a [u8]; FIELDS_MAX],
    blocks: usize,
    bytes: usize,
    /// Prefetch distance in blocks; 0 if the panel is in cache.
    ahead: usize,
}

impl<'a> Panel<'a> {
    /// Prefetches the block `ahead` blocks further on, in this panel or the next one. It is called
    /// in several parts per block, because many prefetches at once would stall each other and all
    /// other loads.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd>(
        &self,
        s: S,
        layout: &'static Layout,
        block: usize,
        part: [usize; 2],
    ) {
        if self.ahead == 0 {
            return;
        }
        let (block, panel) = match block + self.ahead.min(self.blocks) {
            block if block < self.blocks => (block, 0),
            block => (block - self.blocks, self.bytes),
        };
        let [part, parts] = part;
        for (field, bytes) in layout.fields.iter().zip(self.fields) {
            let (at, lines) = (panel + block * field.block_bytes(), field.lines());
            for line in lines * part / parts..lines * (part + 1) / parts {
                s.prefetch(bytes, at + 64 * line);
            }
        }
    }

    /// Word `block` of a field with `N` words per block: four bytes of each row.
    #[inline(always)]
    pub(super) fn words<const N: usize>(&self, field: usize, block: usize) -> &'a [Word; N] {
        let words = self.fields[field].as_chunks::<{ 4 * ROWS }>().0;
        &words.as_chunks().0[block]
    }

    /// Two bytes of each row.
    #[inline(always)]
    pub(super) fn half(&self, field: usize, block: usize) -> &'a Half {
        &self.fields[field].as_chunks().0[block]
    }

    /// A byte of each row.
    #[inline(always)]
    pub(super) fn bytes(&self, field: usize, block: usize) -> &'a [u8; ROWS] {
        &self.fields[field].as_chunks().0[block]
    }
}

/// The codes of a decoded block in memory.
pub(crate) type StoredCodes = [Word; WORDS];
/// Scales or minima of a decoded block in memory.
pub(crate) type StoredScales = [Column; 2];
