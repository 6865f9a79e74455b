//! Panels: sixteen rows of a matrix side by side.
//!
//! A format of blocks is a list of fields; a panel holds each field of all blocks of its rows one
//! behind the other, its bytes interleaved by row in units of four (of two, of one). So packing a
//! matrix moves bytes and changes none, a panel is as large as its rows, and a kernel reads
//! whole vectors with a row in each lane.

pub(super) mod affine;
mod blocks;
pub(super) mod digits;
mod super_blocks;

use crate::simd::rows::{Column, Half, ROWS, Rows, Word};
use crate::simd::{Simd, Unpack, words};
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_quant::{CHUNK, Matrix};

/// Columns whose activations share a scale, and so the stretch that is multiplied at once.
pub const STRETCH: usize = 32;

/// Words of a stretch: four columns of each row.
pub(super) const WORDS: usize = STRETCH / 4;

/// Fields of a format at most.
const FIELDS_MAX: usize = 5;

/// How the bytes of a block lie in the file.
#[derive(Debug)]
pub struct Layout {
    /// Columns of a block.
    pub columns: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// What it consists of.
    pub fields: &'static [Field],
}

/// Some neighbouring bytes of a block.
#[derive(Debug)]
pub struct Field {
    /// Where they begin.
    at: usize,
    /// Bytes that stay together: 4, 2 or 1.
    unit: usize,
    /// How many units.
    count: usize,
    /// Whether bit `4 w + i` of each word becomes bit `w` of byte `i`.
    spread: bool,
}

impl Field {
    const fn new(unit: usize, at: usize, count: usize) -> Self {
        Self {
            at,
            unit,
            count,
            spread: false,
        }
    }

    /// A bit of each column in one word, so laid that a shift brings out those of four columns.
    const fn spread(at: usize) -> Self {
        Self {
            spread: true,
            ..Self::new(4, at, 1)
        }
    }

    /// Bytes that a block of a panel has of it.
    const fn block_bytes(&self) -> usize {
        self.unit * self.count * ROWS
    }

    /// Lines of a cache that these are.
    const fn lines(&self) -> usize {
        self.block_bytes().div_ceil(64)
    }

    /// Bytes that a panel of so many blocks has of it: whole lines of a cache.
    fn panel_bytes(&self, blocks: usize) -> usize {
        (self.block_bytes() * blocks).next_multiple_of(64)
    }
}

impl Layout {
    /// Bytes of so many columns of a row, which are whole blocks.
    pub fn row_bytes(&self, columns: usize) -> usize {
        columns / self.columns * self.bytes
    }

    /// Bytes of a panel of rows of this many columns, which are whole blocks.
    pub fn panel_bytes(&self, columns: usize) -> usize {
        let blocks = columns / self.columns;
        self.fields.iter().map(|f| f.panel_bytes(blocks)).sum()
    }

    /// Interleaves rows, `ROWS` of them at most; where there are fewer, zeros take their place.
    pub fn pack(&self, rows: &[&[u8]], panel: &mut [u8]) {
        let blocks = rows.first().map_or(0, |row| row.len() / self.bytes);
        let mut rest = panel;
        for field in self.fields {
            let (out, behind) = rest.split_at_mut(field.panel_bytes(blocks));
            rest = behind;
            match field.unit {
                4 if field.spread => self.interleave::<4>(rows, field, out, spread),
                4 if rows.len() == ROWS && field.count.is_multiple_of(4) => {
                    self.turn(rows, field, out);
                }
                4 => self.interleave::<4>(rows, field, out, |word| word),
                2 => self.interleave::<2>(rows, field, out, |half| half),
                _ => self.interleave::<1>(rows, field, out, |byte| byte),
            }
        }
    }

    /// The bytes of some columns of a row of a matrix that is packed; both are whole blocks, and
    /// the columns `to.len()` bytes at most.
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
            let (panel, behind) = rest.split_at(field.panel_bytes(packed.cols / self.columns));
            rest = behind;
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

    /// Words of all rows, four by four.
    fn turn(&self, rows: &[&[u8]], field: &Field, out: &mut [u8]) {
        let out: &mut [Columns] = out.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0;
        let bytes = field.at..field.at + 4 * field.count;
        let blocks = rows.first().map_or(0, |row| row.len() / self.bytes);
        for (block, out) in (0..blocks).zip(out.chunks_exact_mut(field.count)) {
            let block = block * self.bytes;
            for (at, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
                let four = rows.map(|row| row[block..][bytes.clone()].as_chunks::<4>().0);
                for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    let words = four.map(|words| words.as_chunks().0[i]);
                    for (out, column) in out.iter_mut().zip(words::turn(words)) {
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
        turn: impl Fn([u8; UNIT]) -> [u8; UNIT],
    ) {
        let out: &mut [[[u8; UNIT]; ROWS]] = out.as_chunks_mut::<UNIT>().0.as_chunks_mut().0;
        let bytes = field.at..field.at + UNIT * field.count;
        let blocks = rows.first().map_or(0, |row| row.len() / self.bytes);
        for (block, out) in (0..blocks).zip(out.chunks_exact_mut(field.count)) {
            let block = block * self.bytes;
            for (row, lane) in rows.iter().zip(0..ROWS) {
                let units = row[block..][bytes.clone()].as_chunks::<UNIT>().0;
                for (out, unit) in out.iter_mut().zip(units) {
                    out[lane] = turn(*unit);
                }
            }
        }
    }

    /// The blocks of a panel among those of a matrix of this many columns.
    #[inline(always)]
    pub(super) fn open_at<'a>(&self, panels: &'a [u8], at: usize, columns: usize) -> Panel<'a> {
        let bytes = self.panel_bytes(columns);
        Panel {
            ahead: AHEAD.div_ceil(self.bytes * ROWS),
            ..self.open(&panels[at * bytes..][..bytes], columns)
        }
    }

    /// The blocks of a panel of rows of this many columns.
    #[inline(always)]
    pub(super) fn open<'a>(&self, panel: &'a [u8], columns: usize) -> Panel<'a> {
        let blocks = columns / self.columns;
        let mut fields = [&panel[..0]; FIELDS_MAX];
        let mut rest = panel;
        for (i, field) in self.fields.iter().enumerate() {
            let (bytes, behind) = rest.split_at(field.panel_bytes(blocks));
            fields[i] = bytes;
            rest = behind;
        }
        Panel {
            fields,
            blocks,
            bytes: panel.len(),
            ahead: 0,
        }
    }
}

/// Bytes that a chunk's columns of a row have at most.
pub const CHUNK_BYTES: usize = 2 * CHUNK;

/// BF16: two columns of each row to a word.
#[cfg(target_arch = "x86_64")]
pub const FLOATS: Layout = Layout {
    columns: 32,
    bytes: 64,
    fields: &[Field::new(4, 0, 16)],
};

/// A word of each row: four by four rows.
type Columns = [[[u8; 4]; 4]; ROWS / 4];

/// The bits of four columns at a time in bits of one number each.
#[inline(always)]
fn spread(word: [u8; 4]) -> [u8; 4] {
    let bits = u32::from_le_bytes(word);
    let mut out = 0;
    for w in 0..WORDS {
        // Four bits, one to a byte: their copies never meet.
        let four = bits >> (4 * w) & 15;
        out |= (four.wrapping_mul(0x0020_4081) & 0x0101_0101) << w;
    }
    u32::to_le_bytes(out)
}

/// What [`spread`] made of a word, back.
fn gather(word: [u8; 4]) -> [u8; 4] {
    let word = u32::from_le_bytes(word);
    let from = |bit: usize| word >> (8 * (bit % 4) + bit / 4) & 1;
    let bits = (0..u32::BITS as usize).fold(0, |bits, bit| bits | from(bit) << bit);
    u32::to_le_bytes(bits)
}

/// A panel, field by field.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    fields: [&'a [u8]; FIELDS_MAX],
    blocks: usize,
    bytes: usize,
    /// How many blocks ahead of their use they are asked for; none where they are near.
    ahead: usize,
}

impl<'a> Panel<'a> {
    /// Asks for the block that comes next but so many, in this panel or behind it: as they are
    /// read where panels are read through. Of several parts a block asks for one after the other,
    /// as lines that are asked for together wait for each other, and all else for them.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, layout: &'static Layout, block: usize, part: [usize; 2]) {
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

    /// Four bytes of each row, and again: the field's `count` of them.
    #[inline(always)]
    fn words<const N: usize>(&self, field: usize, block: usize) -> &'a [Word; N] {
        let words = self.fields[field].as_chunks::<{ 4 * ROWS }>().0;
        &words.as_chunks().0[block]
    }

    /// Two bytes of each row.
    #[inline(always)]
    fn half(&self, field: usize, block: usize) -> &'a Half {
        &self.fields[field].as_chunks().0[block]
    }

    /// A byte of each row.
    #[inline(always)]
    fn bytes(&self, field: usize, block: usize) -> &'a [u8; ROWS] {
        &self.fields[field].as_chunks().0[block]
    }
}

/// A stretch of columns of a panel: `x = scale (code - offset) + min`.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "vectors have none")]
pub struct Stretch<S: Rows> {
    /// Four columns of each row to a word.
    pub codes: [S::Bytes; WORDS],
    /// Of the first half and the second; where they are one, of the first.
    pub scale: [S::Floats; 2],
    /// As the scales.
    pub min: [S::Floats; 2],
}

/// What codes and scales of a format are like.
pub trait Codes {
    /// No code is greater; 128 where they are signed bytes, which go [`Rows::raise`]d.
    const MAX: u8;
    /// Whether the two halves of a stretch have scales of their own.
    const HALVES: bool;
    /// Whether there are minima.
    const MIN: bool;
}

/// Formats of one kind are multiplied by one kernel.
#[derive(Debug)]
pub struct Kind<const MAX: u8, const HALVES: bool, const MIN: bool>;

impl<const MAX: u8, const HALVES: bool, const MIN: bool> Codes for Kind<MAX, HALVES, MIN> {
    const MAX: u8 = MAX;
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
}

/// A format that is read in panels.
pub trait Format {
    /// What its codes are like.
    type Codes: Codes;
    /// What is taken from each code.
    const OFFSET: i32;
    /// How its blocks lie.
    const LAYOUT: Layout;

    /// Gives the stretches of a block of a panel, in order.
    fn stretches<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K);
}

/// What becomes of stretches. A trait and not a closure, which would be a function without the
/// level's instructions wherever it is not inlined.
pub trait Sink<S: Rows> {
    /// The next stretch.
    fn take(&mut self, stretch: Stretch<S>);

    /// There are no more: whoever gives stretches says so.
    fn end(self);
}

/// How far ahead of its use a block is asked for.
pub(super) const AHEAD: usize = 4096;

/// Bits of each byte brought from where they begin to where they belong; `mask` has as many ones. A shift and
/// an `and`, and so the bits of its neighbours do not matter.
#[inline(always)]
fn bits<S: Rows>(s: S, v: S::Bytes, from: u32, to: u32, mask: u8) -> S::Bytes {
    let v = match from > to {
        true => s.right(v, from - to),
        false => s.left(v, to - from),
    };
    s.and(v, mask << to)
}

/// Gives the stretches of some columns of a panel; the columns are whole blocks.
#[inline(always)]
pub(super) fn stretches<F: Format, S: Simd, K: Sink<S>>(
    s: S,
    panel: &Panel<'_>,
    columns: Range<usize>,
    mut sink: K,
) {
    let width = const { F::LAYOUT.columns };
    for block in columns.start / width..columns.end / width {
        F::stretches(s, panel, block, &mut sink);
    }
    sink.end();
}

/// What wants to know which format a storage type has.
pub trait Visit {
    /// What it makes of it.
    type Out;
    /// The type has this format.
    fn format<F: Format>(self) -> Self::Out;
}

macro_rules! formats {
    ($($dtype:ident: $format:ty;)+) => {
        /// Tells a visitor the format of a storage type; `None` for one that has no panels.
        pub fn visit<V: Visit>(dtype: DType, v: V) -> Option<V::Out> {
            match dtype {
                $(DType::$dtype => Some(v.format::<$format>()),)+
                _ => None,
            }
        }
    };
}
formats! {
    Q4_0: blocks::Q4_0;
    Q4_1: blocks::Q4_1;
    Q5_0: blocks::Q5_0;
    Q5_1: blocks::Q5_1;
    Q8_0: blocks::Q8_0;
    Iq4Nl: blocks::Iq4Nl;
    Mxfp4: blocks::Mxfp4;
    Q4K: super_blocks::Q4K;
    Q5K: super_blocks::Q5K;
    Q6K: super_blocks::Q6K;
    Iq4Xs: super_blocks::Iq4Xs;
    Tq1_0: super_blocks::Tq1_0;
    Tq2_0: super_blocks::Tq2_0;
}

/// How a matrix is packed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pack {
    /// Its bytes, interleaved.
    Blocks(&'static Layout),
    /// Its digits.
    Digits(Unpack),
    /// Its codes, and the scales and biases of their groups.
    Affine(Unpack, affine::Groups),
}

impl Pack {
    /// Bytes of a panel of rows of this many columns.
    pub(super) fn panel_bytes(self, columns: usize) -> usize {
        match self {
            Self::Blocks(layout) => layout.panel_bytes(columns),
            Self::Digits(_) => digits::panel_bytes(columns),
            Self::Affine(_, groups) => groups.panel_bytes(columns),
        }
    }

    /// Packs some rows of a matrix, `ROWS` at most.
    pub(super) fn pack(self, matrix: &Matrix<'_>, rows: Range<usize>, panel: &mut [u8]) {
        match self {
            Self::Blocks(layout) => {
                let mut lanes = [&matrix.bytes[..0]; ROWS];
                for (lane, row) in lanes.iter_mut().zip(rows.clone()) {
                    *lane = matrix.row(row);
                }
                layout.pack(&lanes[..rows.len()], panel);
            }
            Self::Digits(unpack) => digits::pack(unpack, matrix, rows, panel),
            Self::Affine(unpack, groups) => groups.pack(unpack, matrix, rows, panel),
        }
    }
}

/// The bytes of a packed stretch in memory.
pub(super) type StoredCodes = [Word; WORDS];
/// Scales, or minima, of a stretch in memory.
pub(super) type StoredNumbers = [Column; 2];
