//! Ternary gemm with AMX, in tiles of 16 tokens, 16 rows and 64 columns.
//!
//! The weights of some panels are unpacked to bytes once and stay in cache while all tokens are
//! processed. Sums are the integers of `bit_mat`, in registers along all columns, so the results
//! have the same bits.

use super::panels::{BitPanels, write, write_sum};
use crate::kernel::Request;
use crate::memory::Args;
use crate::panel::digits;
use crate::simd::ProofKernel;
use crate::simd::amx::{Amx, IntSumTile, ROW_BYTES, Strides, TILE, TileShape};
use crate::simd::avx512::Avx512;
use crate::simd::rows::{ROWS, Rows};
use crate::simd::{Entry, Kernel};
use tabla_core::op::operands::bit_mat::{AT, COUNT};
use tabla_core::op::params::bit_mat::Params;

/// Maximum number of pairs of panels processed together, and maximum number of bytes of their
/// unpacked weights: they stay in the L2 cache together with the tokens.
const PAIRS: usize = 4;
const DIGITS_BYTES: usize = 1 << 20;

/// Number of tokens up to which the packed panels are faster.
pub(crate) const GEMV_TOKENS_MAX: u32 = 8;

/// Number of panels processed together.
fn panels_at_once(cols: usize) -> usize {
    2 * (DIGITS_BYTES / (2 * digits::unpacked_bytes(cols)).max(1)).clamp(1, PAIRS)
}

struct BitTiles<const ADD: bool>;

impl<const ADD: bool> ProofKernel<Amx> for BitTiles<ADD> {
    #[inline(always)]
    fn run(s: Amx, mut args: Args<'_>) {
        let live = args.active_rows();
        let vectors = Avx512::from(s);
        if live <= GEMV_TOKENS_MAX as usize {
            return BitPanels::<ADD>::run(vectors, args);
        }
        let p: Params = args.params();
        let (rows, cols) = (p.rows as usize, p.cols as usize);
        let padded = cols.next_multiple_of(ROW_BYTES);
        let (w, q, d) = (args.bytes(AT.w), args.bytes(AT.q), args.f32s(AT.d));
        let (packed_bytes, bytes) = (digits::panel_bytes(cols), digits::unpacked_bytes(cols));
        let range = args.range();
        let mut y = args.open::<f32>(AT.y);
        let mut scratch = args.open::<u8>(COUNT);
        let scratch = scratch.whole();
        let mut sums = [IntSumTile::ZERO; 4];
        let panels_at_once = panels_at_once(cols);
        for panel in range.clone().step_by(panels_at_once) {
            let panels = panel..range.end.min(panel + panels_at_once);
            for (panel, digits) in panels.clone().zip(scratch.chunks_exact_mut(bytes)) {
                let packed = &w[panel * packed_bytes..][..packed_bytes];
                digits::unpack(vectors, packed, digits);
            }
            for first in (0..live).step_by(2 * TILE) {
                let tokens = first..live.min(first + 2 * TILE);
                let pairs = panels.clone().step_by(2);
                for (panel, digits) in pairs.zip(scratch.chunks(2 * bytes)) {
                    let pair = panel..panels.end.min(panel + 2);
                    let shape = TileShape {
                        rows: tokens.len(),
                        lanes: TILE,
                        wide: pair.len() > 1,
                    };
                    let tiles = digits.split_at(bytes).into();
                    let (x, strides) = (&q[first * padded..], Strides::rows(padded));
                    let steps = padded / ROW_BYTES;
                    let span = shape.span(x, strides, tiles, shape.lane_bytes(), steps);
                    s.bytes(&[span], &mut sums);
                    for (i, t) in tokens.clone().enumerate() {
                        let scale = vectors.splat_float(d[t] * p.scale);
                        let y = y.panels(t, rows, pair.clone(), ROWS);
                        let sums = &sums[i / TILE * 2..];
                        for (y, sums) in y.chunks_mut(ROWS).zip(sums) {
                            let sums = vectors.ints(vectors.bytes(&sums.0[i % TILE]));
                            let mut column = [0.0; ROWS];
                            vectors
                                .put_column(&mut column, vectors.mul(vectors.floats(sums), scale));
                            for (y, sum) in y.iter_mut().zip(column) {
                                write_sum(const { write::<ADD>() }, y, sum);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the gemm kernel and the bytes of its scratch, if the level has tiles.
pub(crate) fn link<const ADD: bool>(request: &Request<'_>, cols: usize) -> Option<(Entry, usize)> {
    let entry = request.isa.tiles::<BitTiles<ADD>>()?;
    Some((entry, panels_at_once(cols) * digits::unpacked_bytes(cols)))
}
