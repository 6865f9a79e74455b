//! Panels of ternary values: two bits each, regardless of the storage type.
//!
//! A word holds four columns of four blocks; block `j` of the four is in bits `2 j` and `2 j + 1`.
//! Values are stored plus 1.

use super::layout::{QK, WORDS};
use crate::simd::rows::{AHEAD, ROWS, Word, unroll};
use crate::simd::{Simd, Unpack};
use std::ops::Range;
use tabla_quant::{CHUNK, Chunk, Matrix};

/// Blocks that share their words.
const SHARED: usize = 4;

/// First bit of each of these blocks.
const BITS: [u32; SHARED] = [0, 2, 4, 6];

/// Tokens per group. With fewer tokens, the latency of each accumulator limits the throughput.
const TOKEN_GROUP: usize = 8;

/// Words of [`SHARED`] blocks.
type DigitGroup = [Word; WORDS];

/// Bytes of a panel with this many columns.
pub(crate) fn panel_bytes(columns: usize) -> usize {
    columns.div_ceil(SHARED * QK) * size_of::<DigitGroup>()
}

/// Packs at most `ROWS` rows of a matrix.
pub(crate) fn pack(unpack: Unpack, matrix: &Matrix<'_>, rows: Range<usize>, panel: &mut [u8]) {
    const GROUPS: usize = CHUNK / (SHARED * QK);
    let groups: &mut [DigitGroup] = bytemuck::cast_slice_mut(panel);
    // Missing columns and rows are zeros.
    groups.as_flattened_mut().fill([0b0101_0101; 4 * ROWS]);
    let mut chunk = Chunk::ZERO;
    for (first, groups) in (0..matrix.cols)
        .step_by(CHUNK)
        .zip(groups.chunks_mut(GROUPS))
    {
        for (lane, row) in rows.clone().enumerate() {
            chunk.q.fill(0);
            unpack(matrix, row, first, &mut chunk);
            let parts = chunk.q.as_chunks::<{ SHARED * QK }>().0;
            for (group, digits) in groups.iter_mut().zip(parts) {
                for (w, word) in group.iter_mut().enumerate() {
                    for (i, byte) in word[4 * lane..][..4].iter_mut().enumerate() {
                        let code = |j: usize| digits[QK * j + 4 * w + i].wrapping_add(1);
                        let codes = (0..SHARED).map(|j| code(j).cast_unsigned() << (2 * j));
                        *byte = codes.sum();
                    }
                }
            }
        }
    }
}

/// Bytes of a panel with this many columns if values are signed bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) fn unpacked_bytes(columns: usize) -> usize {
    SHARED * panel_bytes(columns)
}

/// Unpacks a panel to signed bytes, four columns of each row in turn, padded with zeros.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn unpack<S: Simd>(s: S, panel: &[u8], digits: &mut [u8]) {
    /// Value of each code; 2-bit codes in a file may have all four values.
    const DIGITS: [i8; 16] = [-1, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let groups = panel.as_chunks::<{ 4 * ROWS }>().0.as_chunks::<WORDS>().0;
    let digits = digits.as_chunks_mut::<{ 4 * ROWS }>().0;
    let digits = digits.as_chunks_mut::<WORDS>().0;
    for (group, digits) in groups.iter().zip(digits.as_chunks_mut::<SHARED>().0) {
        for (digits, by) in digits.iter_mut().zip(BITS) {
            for (word, digits) in group.iter().zip(digits) {
                let codes = s.and(s.shr(s.bytes(word), by), 3);
                s.put_bytes(digits, s.lookup(&DIGITS, codes));
            }
        }
    }
}

/// Adds the products of a block.
#[inline(always)]
fn add<S: Simd, const T: usize>(
    s: S,
    codes: &[S::Bytes; WORDS],
    x: [&[u8]; T],
    sums: &mut [S::Ints; T],
) {
    if const { T < TOKEN_GROUP } {
        unroll!(t < T => {
            // A separate chain of products for every block: a single one would be limited by
            // latency.
            let part = s.dot(3, s.splat_int(0), codes, x[t]);
            sums[t] = s.add_shifted(sums[t], part, 0);
        });
    } else {
        unroll!(i < T / TOKEN_GROUP => {
            let group: &mut [_; TOKEN_GROUP] = &mut sums.as_chunks_mut().0[i];
            *group = s.dots(3, *group, codes, std::array::from_fn(|j| x[TOKEN_GROUP * i + j]));
        });
    }
}

/// `sum_i code[i] x[t][i]` for each row and each of `T` tokens, starting from `start`; `x` must be
/// whole blocks.
#[inline(always)]
pub(crate) fn dots<S: Simd, const T: usize>(
    s: S,
    panel: &[u8],
    x: [&[u8]; T],
    start: [i32; T],
) -> [S::Ints; T] {
    let mut sums = [s.splat_int(0); T];
    for (sum, start) in sums.iter_mut().zip(start) {
        *sum = s.splat_int(start);
    }
    let words = panel.as_chunks::<{ 4 * ROWS }>().0.as_chunks::<WORDS>().0;
    let blocks = x[0].len() / QK;
    for (g, words) in words.iter().enumerate() {
        // Unrolled so that shift counts are constants.
        unroll!(j < SHARED => {
            // Prefetch a few lines at a time: many at once would stall each other and all other
            // loads.
            for word in words.chunks(WORDS / SHARED).nth(j).unwrap_or_default() {
                s.prefetch(word, AHEAD);
            }
            let block = SHARED * g + j;
            if block < blocks {
                let mut codes = [s.bytes(&words[0]); WORDS];
                for (code, word) in codes.iter_mut().zip(words) {
                    *code = s.and(s.shr(s.bytes(word), BITS[j % SHARED]), 3);
                }
                let x = x.map(|x| &x[QK * block..][..QK]);
                add(s, &codes, x, &mut sums);
            }
        });
    }
    sums
}
