//! `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]`, 0 for an expert id out of range
//!
//! Tokens with the same expert are multiplied by its rows in tiles. The order of every sum is
//! fixed, so the result of a token has the same bits in any batch.

use super::group_by_expert::sort;
use crate::descriptors::{ExpertShape, MatmulShape, WeightReader, Write};
use crate::kernel::matmul::any_type::{self, dot_floats};
use crate::kernel::matmul::quantized::launch;
use crate::kernel::{Launch, Link, Request};
use crate::memory::{Args, Out};
use crate::panel::QK;
use crate::simd::rows::ROWS;
use crate::simd::{Decode, Kernel, Simd, Uses};
use crate::work::Split;
use std::ops::Range;
use tabla_core::device::Precision;
use tabla_core::error::{Result, bail};
use tabla_core::op::kind;
use tabla_core::op::operands::experts::{AT, COUNT};
use tabla_core::op::params::experts::Params;
use tabla_quant::{CHUNK, Matrix};

/// Rows of activations that a chunk of weights is multiplied by before the next one is read.
const TILE: usize = 16;

impl Kernel for kind::Experts {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let matmul = ExpertMatmul::of(&args, [p.rows, p.cols, p.experts], [p.k, p.per_expert]);
        let ids: &[u32] = bytemuck::cast_slice(args.bytes(AT.ids));
        let ids = &ids[..args.active_rows() * p.k as usize];
        let mut y = args.open::<f32>(AT.y);
        let mut scratch = args.open::<u32>(COUNT);
        let order = &mut scratch.whole()[..ids.len()];
        sort(ids, p.experts, order);
        for group in order.chunk_by(|a, b| ids[*a as usize] == ids[*b as usize]) {
            matmul.multiply_expert(s, ids[group[0] as usize], group, &mut y);
        }
    }
}

/// Operands of the products of (token, expert) pairs, and the rows of this thread.
pub(crate) struct ExpertMatmul<'a> {
    w: Matrix<'a>,
    decode: Decode,
    x: &'a [f32],
    range: Range<usize>,
    experts: usize,
    /// Number of pairs that share a row of x.
    pairs_per_row: usize,
}

impl<'a> ExpertMatmul<'a> {
    #[inline(always)]
    pub(crate) fn of(
        args: &Args<'a>,
        [rows, cols, experts]: [u32; 3],
        [k, per_expert]: [u32; 2],
    ) -> Self {
        Self {
            w: args.matrix(rows as usize, cols as usize),
            decode: args.decode(),
            x: args.f32s(AT.x),
            range: args.range(),
            experts: experts as usize,
            pairs_per_row: if per_expert != 0 { 1 } else { k as usize },
        }
    }

    /// Multiplies the rows of an expert by those of the pairs that use it.
    #[inline(always)]
    pub(super) fn multiply_expert<S: Simd>(
        &self,
        s: S,
        id: u32,
        pairs: &[u32],
        y: &mut Out<'_, f32>,
    ) {
        let (id, cols) = (id as usize, self.w.cols);
        let each = self.w.rows / self.experts;
        if id >= self.experts {
            for &pair in pairs {
                y.columns(pair as usize, each, 1).fill(0.0);
            }
            return;
        }
        let mut chunk = [0.0; CHUNK];
        for tile in pairs.chunks(TILE) {
            let mut rows = [0; TILE];
            for (row, pair) in rows.iter_mut().zip(tile) {
                *row = *pair as usize / self.pairs_per_row * cols;
            }
            let rows = &rows[..tile.len()];
            for r in self.range.clone() {
                let mut acc = [s.splat(0.0); TILE];
                for first in (0..cols).step_by(CHUNK) {
                    (self.decode)(&self.w, id * each + r, first, &mut chunk);
                    let count = CHUNK.min(cols - first);
                    for (row, acc) in rows.iter().zip(&mut acc) {
                        let x = &self.x[row + first..][..count];
                        *acc = dot_floats(s, &chunk, x, *acc);
                    }
                }
                for (&pair, acc) in tile.iter().zip(&acc) {
                    y.columns(pair as usize, each, 1)[r - self.range.start] = s.sum(*acc);
                }
            }
        }
    }
}

/// Returns the number of rows of an expert.
pub(super) fn expert_rows(rows: u32, experts: u32) -> Result<usize> {
    match rows.checked_div(experts) {
        Some(rows) => Ok(rows as usize),
        None => bail!(Internal, "a matrix of {rows} rows without experts"),
    }
}

/// Returns the kernel of a product with selected experts; `None` if the weights are floats, the precision
/// is exact, or experts are not whole panels.
pub(super) fn link_codes(
    request: &Request<'_>,
    [tokens, rows, cols]: [u32; 3],
    experts: ExpertShape,
) -> Result<Option<Launch>> {
    let matmul = MatmulShape {
        tokens,
        rows: rows as usize,
        cols: cols as usize,
        write: Write::Store,
        experts: Some(experts),
    };
    if experts
        .k
        .checked_mul(matmul.cols)
        .is_none_or(|row| u32::try_from(row).is_err())
    {
        bail!(
            TooLarge,
            "{} rows of {cols} columns per token exceed 32 bits",
            experts.k
        );
    }
    let whole = matmul.cols.is_multiple_of(QK) && experts.rows.is_multiple_of(ROWS);
    if request.precision != Precision::Fast || !whole {
        return Ok(None);
    }
    let launch = match launch::link(request, matmul) {
        Some(launch) => Some(launch),
        None => any_type::ints(request)?.map(|ints| launch::link_chunks(request, ints, matmul)),
    };
    Ok(launch.map(|launch| Launch {
        matmul: Some(matmul),
        ..launch
    }))
}

impl Link for kind::Experts {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let rows = expert_rows(p.rows, p.experts)?;
        let shape = ExpertShape {
            rows,
            k: p.k as usize,
            per_expert: p.per_expert != 0,
            tile: None,
        };
        if let Some(launch) = link_codes(request, [p.tokens, p.rows, p.cols], shape)? {
            return Ok(launch);
        }
        Ok(Launch {
            scratch: p.tokens as usize * p.k as usize * size_of::<u32>(),
            reader: Some(WeightReader::Floats(any_type::decoder(
                request.isa,
                request.variant,
            )?)),
            ..request.launch::<Self>(Split::Units(rows), p.tokens)
        })
    }
}
