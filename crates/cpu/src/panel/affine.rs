//! Panels of affine codes whose scales and biases are separate tensors, as in MLX.
//!
//! A panel is a sequence of groups, and a group is the codes of its blocks, its scales, its biases.
//! 4-bit codes are laid out as in `Q4_1`, columns 0 to 15 of a block in the low nibbles and 16 to 31 in the
//! high ones; 8-bit codes are the signed bytes that [`Unpack`] returns, the codes minus 128.
//! Scales and biases are stored as in the file.

use super::blocks::{nibbles, signed_bytes};
use super::format::{Codes, FourBitMin, PanelBlock, SignedMin, Sink, is_same};
use super::layout::{QK, WORDS};
use crate::simd::rows::{AHEAD, Column, ROWS, Rows, Word};
use crate::simd::{Simd, Task, Unpack};
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_quant::{CHUNK, Chunk, Matrix, Scales};

/// Scale groups of a matrix: columns that share a scale and a bias.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// Words of a block.
    words: usize,
    /// Type of scales and biases: `F32`, `F16` or `Bf16`.
    float: DType,
    /// Columns of a group: a multiple of a block and a divisor of a chunk.
    columns: usize,
}

impl Groups {
    /// Returns the groups of a matrix with `cols` columns and codes of 4 or 8 bits; `None` if they
    /// cannot be packed.
    pub fn of(bits: usize, scales: &Scales<'_>, cols: usize) -> Option<Self> {
        let (float, [rows, columns]) = (scales.float, scales.group);
        let fits = matches!(float, DType::F32 | DType::F16 | DType::Bf16)
            && rows == 1
            && matches!(columns, 32 | 64 | 128)
            && cols.is_multiple_of(columns)
            && !scales.biases.is_empty();
        fits.then_some(Self {
            words: bits * QK / u32::BITS as usize,
            float,
            columns,
        })
    }

    /// Bytes of the codes of a group in a panel.
    fn code_bytes(self) -> usize {
        self.columns / QK * self.words * size_of::<Word>()
    }

    /// Bytes of its scales, and of its biases.
    fn number_bytes(self) -> usize {
        ROWS * self.float.facts().bytes
    }

    /// Bytes of a group in a panel: a multiple of a cache line.
    pub fn bytes(self) -> usize {
        self.code_bytes() + 2 * self.number_bytes()
    }

    /// Bytes of a panel with this many columns.
    pub fn panel_bytes(self, columns: usize) -> usize {
        columns / self.columns * self.bytes()
    }

    /// Packs at most `ROWS` rows of a matrix.
    pub fn pack(self, unpack: Unpack, matrix: &Matrix<'_>, rows: Range<usize>, panel: &mut [u8]) {
        let Some(scales) = &matrix.scales else {
            unreachable!("link checked that there are scales");
        };
        let (unit, per_row) = (self.float.facts().bytes, matrix.cols / self.columns);
        let per_chunk = CHUNK / self.columns;
        let mut chunk = Chunk::ZERO;
        let chunks = panel.chunks_mut(per_chunk * self.bytes());
        for (i, groups) in chunks.enumerate() {
            for (lane, row) in rows.clone().enumerate() {
                unpack(matrix, row, i * CHUNK, &mut chunk);
                let codes: &[[u8; 4]] = bytemuck::cast_slice(&chunk.q);
                let blocks = codes.as_chunks::<WORDS>().0.chunks(self.columns / QK);
                let groups = groups.chunks_exact_mut(self.bytes()).zip(blocks);
                for (g, (group, blocks)) in groups.enumerate() {
                    let (codes, numbers) = group.split_at_mut(self.code_bytes());
                    let words = codes.as_chunks_mut().0.chunks_exact_mut(self.words);
                    for (words, codes) in words.zip(blocks) {
                        pack_codes(codes, words, lane);
                    }
                    let at = (row * per_row + i * per_chunk + g) * unit;
                    let numbers = numbers.chunks_exact_mut(self.number_bytes());
                    for (numbers, list) in numbers.zip([scales.bytes, scales.biases]) {
                        numbers[lane * unit..][..unit].copy_from_slice(&list[at..][..unit]);
                    }
                }
            }
        }
    }

    /// Loads a scale or bias of each row.
    #[inline(always)]
    fn column<S: Rows>(self, s: S, bytes: &[u8]) -> S::Floats {
        const THERE: &str = "one number per row";
        if self.float == DType::F16 {
            return s.halves(bytes.first_chunk().expect(THERE));
        }
        let column: Column = if self.float == DType::Bf16 {
            let halves: &[[u8; 2]; ROWS] = bytes.as_chunks().0.first_chunk().expect(THERE);
            halves.map(|[a, b]| f32::from_le_bytes([0, 0, a, b]))
        } else {
            let floats: &[[u8; 4]; ROWS] = bytes.as_chunks().0.first_chunk().expect(THERE);
            floats.map(f32::from_le_bytes)
        };
        s.column(&column)
    }
}

/// Writes the codes of a block of one row into a panel's words; if there are half as many words,
/// two codes per byte.
fn pack_codes(codes: &[[u8; 4]; WORDS], words: &mut [Word], lane: usize) {
    let half = words.len() < WORDS;
    let (low, high) = codes.split_at(words.len());
    for (i, (word, low)) in words.iter_mut().zip(low).enumerate() {
        let mut four = u32::from_le_bytes(*low);
        if half {
            four |= u32::from_le_bytes(high[i]) << 4;
        }
        word.as_chunks_mut().0[lane] = four.to_le_bytes();
    }
}

/// Whether affine codes have these properties.
pub(crate) const fn is_affine<C: Codes>() -> bool {
    is_same::<C, FourBitMin>() || is_same::<C, SignedMin>()
}

/// Decodes the blocks of some columns of a panel, which must be whole groups.
pub(crate) struct DecodeGroups<'a, C, K> {
    pub(crate) groups: Groups,
    pub(crate) panel: &'a [u8],
    pub(crate) columns: Range<usize>,
    pub(crate) sink: K,
    pub(crate) codes: PhantomData<C>,
}

impl<C: Codes, S: Simd, K: Sink<S>> Task<S> for DecodeGroups<'_, C, K> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self {
            groups,
            panel,
            columns,
            mut sink,
            ..
        } = self;
        const THERE: &str = "the words of a block";
        let is_signed = const { C::MAX == 128 };
        let words = if is_signed { WORDS } else { WORDS / 2 };
        let bytes = groups.bytes();
        let part = groups.panel_bytes(columns.start)..groups.panel_bytes(columns.end);
        for group in panel[part].chunks_exact(bytes) {
            for line in (0..bytes).step_by(64) {
                s.prefetch(group, AHEAD + line);
            }
            let (codes, numbers) = group.split_at(groups.code_bytes());
            let (scales, biases) = numbers.split_at(groups.number_bytes());
            let scale = groups.column(s, scales);
            let mut min = groups.column(s, biases);
            if is_signed {
                // The product is exact, so it does not matter where it is rounded.
                min = s.mul_add(scale, s.splat_float(128.0), min);
            }
            for words in codes.as_chunks().0.chunks_exact(words) {
                sink.push(PanelBlock {
                    codes: if is_signed {
                        signed_bytes(s, words.first_chunk().expect(THERE))
                    } else {
                        nibbles(s, words.first_chunk().expect(THERE))
                    },
                    scale: [scale; 2],
                    min: [min; 2],
                });
            }
        }
        sink.finish();
    }
}
