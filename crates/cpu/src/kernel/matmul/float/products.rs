//! Matrix products with float weights, in f32.
//!
//! With few tokens, weights are used in place (gemv). With more, a panel of weights and a block of
//! activations are packed first, so that each weight is decoded once for all tokens (gemm). In both
//! cases a sum runs along [`SPAN`] columns in the lanes of a vector, and the sums of spans are
//! added in order.

#[cfg(target_arch = "x86_64")]
use super::{amx, bf16, panels};
use crate::descriptors::{MatmulShape, Write};
use crate::kernel::matmul::output::MatmulOutput;
use crate::kernel::matmul::row_groups::{LINE, Next, groups};
use crate::kernel::{Launch, Request};
use crate::memory::Args;
use crate::simd::math::to_bf16;
use crate::simd::{Kernel, Simd, Task, Uses};
use crate::work::Split;
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};

/// Columns decoded at a time.
const BLOCK: usize = 32;

/// A storage type of float weights.
trait FloatType {
    /// Bytes of [`BLOCK`] elements.
    const BYTES: usize;

    /// Elements `i..i + LANES` of a block.
    fn load<S: Simd>(s: S, block: &[u8], i: usize) -> S::V;
}

macro_rules! float {
    ($name:ident, $bytes:literal, $load:ident) => {
        struct $name;

        impl FloatType for $name {
            const BYTES: usize = $bytes * BLOCK;

            #[inline(always)]
            fn load<S: Simd>(s: S, block: &[u8], i: usize) -> S::V {
                s.$load(&block[i * $bytes..])
            }
        }
    };
}
float!(F32, 4, load_f32);
float!(F16, 2, load_f16);
float!(Bf16, 2, load_bf16);

/// Columns after which the lanes of a sum are added up. These columns of a tile's tokens stay in
/// the L1 cache.
const SPAN: usize = 1024;

/// Rows of a panel and tokens of a block. With [`SPAN`] columns, the packed data takes 1.3 MB,
/// which fits an L2 cache of 2 MB; smaller caches hold the panel.
const PANEL: usize = 64;
const TOKENS: usize = 256;

/// Maximum number of tokens for which weights are used in place, with 16 registers or with 32.
const GEMV_TOKENS_MAX: [usize; 2] = [8, 32];

/// Maximum number of activations of more than eight tokens for which weights are used in place: they
/// are read from the L2 cache for every group of rows.
const GEMV_NUMBERS_MAX: usize = 192 << 10;

/// Rows of a tile.
const ROWS: usize = 4;

/// Matrix product; if `ROUND`, activations are rounded to bf16.
struct FloatMatmul<W, const ROUND: bool>(PhantomData<W>);

impl<W: FloatType, const ROUND: bool> Kernel for FloatMatmul<W, ROUND> {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, args: Args<'_>) {
        s.outlined(FloatProducts::<W> {
            args,
            precision: if ROUND {
                Precision::Fast
            } else {
                Precision::Exact
            },
            of: PhantomData,
        });
    }
}

/// The products of a matrix with weights of type `W`.
struct FloatProducts<'a, W> {
    args: Args<'a>,
    /// [`Precision::Fast`]: activations are rounded to bf16.
    precision: Precision,
    of: PhantomData<W>,
}

impl<S: Simd, W: FloatType> Task<S> for FloatProducts<'_, W> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self {
            mut args,
            precision,
            ..
        } = self;
        let matmul @ &MatmulShape { cols, write, .. } = args.matmul();
        let mut sums = MatmulOutput::open(&mut args, matmul);
        let mut scratch = args.open::<f32>(COUNT);
        let scratch = scratch.whole();
        let w = WeightRows::<W> {
            bytes: args.bytes(AT.w),
            cols,
            of: PhantomData,
        };
        let (x, range, live) = (args.f32s(AT.x), args.range(), args.active_rows());
        let few = GEMV_TOKENS_MAX[usize::from(S::LANES > 8)];
        let fit_cache = live * cols <= GEMV_NUMBERS_MAX || live <= GEMV_TOKENS_MAX[0];
        if live <= few && fit_cache {
            let x = &x[..live * cols];
            let x = match precision {
                Precision::Fast => convert(precision, x, scratch),
                Precision::Exact => x,
            };
            gemv(s, &w, range, x, live, &mut sums);
            return;
        }
        let (packed_x, packed_w) = scratch.split_at_mut(TOKENS * SPAN);
        for first in (0..live).step_by(TOKENS) {
            let tokens = first..live.min(first + TOKENS);
            for col in (0..cols).step_by(SPAN) {
                let count = SPAN.min(cols - col);
                let wide = count.next_multiple_of(BLOCK);
                for group in groups(tokens.clone(), token_group_sizes::<S>()) {
                    for (i, t) in group.clone().enumerate() {
                        let x = x[t * cols + col..][..count].chunks(BLOCK);
                        let blocks = blocks(packed_x, (t - i - first) * wide, i, group.len());
                        for (x, to) in x.zip(blocks) {
                            convert(precision, x, to);
                            to[x.len()..].fill(0.0);
                        }
                    }
                }
                sums.add = write == Write::Add || col > 0;
                for r in range.clone().step_by(PANEL) {
                    let panel = r..range.end.min(r + PANEL);
                    for group in groups(panel.clone(), &ROW_GROUP_SIZES) {
                        for (i, row) in group.clone().enumerate() {
                            let blocks = blocks(packed_w, (row - i - r) * wide, i, group.len());
                            decode::<S, W>(s, w.row(row, col..col + count), blocks);
                        }
                    }
                    let tokens = tokens.clone();
                    gemm_panel(s, packed_w, panel, packed_x, tokens, wide, &mut sums);
                }
            }
        }
    }
}

/// Sizes of groups of rows whose blocks are interleaved.
const ROW_GROUP_SIZES: [usize; 2] = [ROWS, 1];

/// Sizes of groups of tokens that are multiplied by [`ROWS`] rows: as many sums as there are
/// registers. [`gemm_panel`] has an arm for each.
fn token_group_sizes<S: Simd>() -> &'static [usize] {
    if S::LANES > 8 { &[6, 3, 1] } else { &[3, 1] }
}

/// Sizes of groups of tokens that are multiplied by [`ROWS`] rows in place.
fn gemv_group_sizes<S: Simd>() -> &'static [usize] {
    if S::LANES > 8 { &[6, 4, 2, 1] } else { &[2, 1] }
}

/// Blocks of row `i` of `n` in a group that starts at `first`.
fn blocks(
    packed: &mut [f32],
    first: usize,
    i: usize,
    n: usize,
) -> impl Iterator<Item = &mut [f32; BLOCK]> {
    let blocks = packed[first..].as_chunks_mut().0;
    blocks.iter_mut().skip(i).step_by(n)
}

/// Copies activations in the precision in which they are multiplied.
#[inline(always)]
fn convert<'a>(precision: Precision, x: &[f32], to: &'a mut [f32]) -> &'a [f32] {
    for (to, x) in to.iter_mut().zip(x) {
        *to = match precision {
            Precision::Fast => to_bf16(*x),
            Precision::Exact => *x,
        };
    }
    to
}

/// The weights, row by row.
struct WeightRows<'a, W> {
    bytes: &'a [u8],
    cols: usize,
    of: PhantomData<W>,
}

impl<'a, W: FloatType> WeightRows<'a, W> {
    /// Bytes of these columns of a row.
    #[inline(always)]
    fn row(&self, r: usize, cols: Range<usize>) -> &'a [u8] {
        let bytes = |n: usize| n * W::BYTES / BLOCK;
        &self.bytes[bytes(r * self.cols + cols.start)..][..bytes(cols.len())]
    }
}

/// Decodes a row to blocks of f32, padded with zeros.
#[inline(always)]
fn decode<'a, S: Simd, W: FloatType>(
    s: S,
    row: &[u8],
    to: impl Iterator<Item = &'a mut [f32; BLOCK]>,
) {
    for (block, to) in row.chunks(W::BYTES).zip(to) {
        let mut padded = [0u8; 4 * BLOCK];
        let block = if block.len() < W::BYTES {
            padded[..block.len()].copy_from_slice(block);
            &padded[..W::BYTES]
        } else {
            block
        };
        for i in (0..BLOCK).step_by(S::LANES) {
            s.store(&mut to[i..], W::load(s, block, i));
        }
    }
}

/// Multiplies all rows by contiguous tokens.
#[inline(always)]
fn gemv<S: Simd, W: FloatType>(
    s: S,
    w: &WeightRows<'_, W>,
    range: Range<usize>,
    x: &[f32],
    live: usize,
    sums: &mut MatmulOutput<'_>,
) {
    let whole = range.start + range.len() / ROWS * ROWS;
    for r in (range.start..whole).step_by(ROWS) {
        for t in groups(0..live, gemv_group_sizes::<S>()) {
            let first = t.start;
            match t.len() {
                6 if S::LANES > 8 => gemv_tile::<S, W, ROWS, 6>(s, w, r, x, first, sums),
                4 if S::LANES > 8 => gemv_tile::<S, W, ROWS, 4>(s, w, r, x, first, sums),
                2 => gemv_tile::<S, W, ROWS, 2>(s, w, r, x, first, sums),
                _ => gemv_tile::<S, W, ROWS, 1>(s, w, r, x, first, sums),
            }
        }
    }
    for r in whole..range.end {
        for t in 0..live {
            gemv_tile::<S, W, 1, 1>(s, w, r, x, t, sums);
        }
    }
}

/// Computes a tile along all columns.
#[inline(always)]
fn gemv_tile<S: Simd, W: FloatType, const R: usize, const T: usize>(
    s: S,
    w: &WeightRows<'_, W>,
    r: usize,
    x: &[f32],
    t: usize,
    sums: &mut MatmulOutput<'_>,
) {
    let add = sums.add;
    for col in (0..w.cols).step_by(SPAN) {
        let cols = col..w.cols.min(col + SPAN);
        let rows: [&[u8]; R] = std::array::from_fn(|i| w.row(r + i, cols.clone()));
        let tokens = std::array::from_fn(|i| &x[(t + i) * w.cols..][cols.clone()]);
        let bytes = |columns: usize| W::BYTES * columns / BLOCK;
        let next = Next {
            rows: (w.row(r, 0..w.cols), bytes(R * (w.cols + col))),
            read: match cols.end < w.cols {
                true => bytes(SPAN),
                false => bytes(R * w.cols - col),
            },
        };
        sums.put(r, t, dot::<S, W, R, T>(s, rows, tokens, &next));
        sums.add = true;
    }
    sums.add = add;
}

/// Multiplies a packed panel by a packed block of tokens, `wide` columns each.
#[inline(always)]
fn gemm_panel<S: Simd>(
    s: S,
    w: &[f32],
    rows: Range<usize>,
    x: &[f32],
    tokens: Range<usize>,
    wide: usize,
    sums: &mut MatmulOutput<'_>,
) {
    for t in groups(tokens.clone(), token_group_sizes::<S>()) {
        let x = &x[(t.start - tokens.start) * wide..][..t.len() * wide];
        let (rows, first) = (rows.clone(), t.start);
        match t.len() {
            6 if S::LANES > 8 => gemm_tokens::<S, 6>(s, w, rows, x, first, wide, sums),
            3 => gemm_tokens::<S, 3>(s, w, rows, x, first, wide, sums),
            _ => gemm_tokens::<S, 1>(s, w, rows, x, first, wide, sums),
        }
    }
}

/// Multiplies all rows of a panel by `T` tokens, starting at `t`, `wide` columns each.
#[inline(always)]
fn gemm_tokens<S: Simd, const T: usize>(
    s: S,
    w: &[f32],
    rows: Range<usize>,
    x: &[f32],
    t: usize,
    wide: usize,
    sums: &mut MatmulOutput<'_>,
) {
    for r in groups(rows.clone(), &ROW_GROUP_SIZES) {
        let w = &w[(r.start - rows.start) * wide..][..r.len() * wide];
        if r.len() == ROWS {
            sums.put(r.start, t, gemm_tile::<S, ROWS, T>(s, w, x));
        } else {
            sums.put(r.start, t, gemm_tile::<S, 1, T>(s, w, x));
        }
    }
}

/// Computes the products of a tile with interleaved rows and tokens.
#[inline(always)]
fn gemm_tile<S: Simd, const R: usize, const T: usize>(s: S, w: &[f32], x: &[f32]) -> [[f32; T]; R] {
    let mut acc = [[s.splat(0.0); T]; R];
    for b in 0..w.len() / (R * BLOCK) {
        // Slices of constant length, so that no bounds checks are needed inside.
        let w = &w[b * R * BLOCK..][..R * BLOCK];
        let x = &x[b * T * BLOCK..][..T * BLOCK];
        for i in (0..BLOCK).step_by(S::LANES) {
            // The tokens stay in registers: at AVX2, three of them and twelve sums leave one for
            // the weights.
            let mut v = [s.splat(0.0); T];
            for t in 0..T {
                v[t] = s.load(&x[t * BLOCK + i..]);
            }
            for r in 0..R {
                let w = s.load(&w[r * BLOCK + i..]);
                for t in 0..T {
                    acc[r][t] = s.fma(w, v[t], acc[r][t]);
                }
            }
        }
    }
    reduce(s, acc)
}

/// Computes the products of a tile along a span.
#[inline(always)]
fn dot<S: Simd, W: FloatType, const R: usize, const T: usize>(
    s: S,
    w: [&[u8]; R],
    x: [&[f32]; T],
    next: &Next<'_>,
) -> [[f32; T]; R] {
    let cols = x[0].len();
    let mut acc = [[s.splat(0.0); T]; R];
    for b in 0..cols / BLOCK {
        let mut block_w = w;
        for w in &mut block_w {
            *w = &w[b * W::BYTES..][..W::BYTES];
        }
        let mut block_x = x;
        for x in &mut block_x {
            *x = &x[b * BLOCK..][..BLOCK];
        }
        for (r, w) in block_w.iter().enumerate() {
            let first = (b * R + r) * W::BYTES / LINE;
            for (line, w) in w.chunks_exact(LINE).enumerate() {
                next.prefetch(s, w, first + line);
            }
        }
        acc = multiply_block::<S, W, R, T>(s, block_w, block_x, acc);
    }
    let rest = cols % BLOCK;
    if rest > 0 {
        // Pad the rows with zeros.
        let mut wide = [[0u8; 4 * BLOCK]; R];
        for (wide, w) in wide.iter_mut().zip(w) {
            let w = &w[cols / BLOCK * W::BYTES..];
            wide[..w.len()].copy_from_slice(w);
        }
        let mut long = [[0.0; BLOCK]; T];
        for (long, x) in long.iter_mut().zip(x) {
            long[..rest].copy_from_slice(&x[cols - rest..]);
        }
        let w = wide.each_ref().map(|w| &w[..W::BYTES]);
        acc = multiply_block::<S, W, R, T>(s, w, long.each_ref().map(|x| &x[..]), acc);
    }
    reduce(s, acc)
}

/// Adds up the lanes of each sum.
#[inline(always)]
fn reduce<S: Simd, const R: usize, const T: usize>(s: S, acc: [[S::V; T]; R]) -> [[f32; T]; R] {
    let mut sums = [[0.0; T]; R];
    for r in 0..R {
        for t in 0..T {
            sums[r][t] = s.sum(acc[r][t]);
        }
    }
    sums
}

/// Adds the products of one block of columns.
#[inline(always)]
fn multiply_block<S: Simd, W: FloatType, const R: usize, const T: usize>(
    s: S,
    w: [&[u8]; R],
    x: [&[f32]; T],
    mut acc: [[S::V; T]; R],
) -> [[S::V; T]; R] {
    // Loops, not `map`: a closure that is not inlined is compiled without the level's instructions.
    for i in (0..BLOCK).step_by(S::LANES) {
        let mut v = [s.splat(0.0); R];
        for r in 0..R {
            v[r] = W::load(s, w[r], i);
        }
        for t in 0..T {
            let x = s.load(&x[t][i..]);
            for r in 0..R {
                acc[r][t] = s.fma(v[r], x, acc[r][t]);
            }
        }
    }
    acc
}

/// Returns the kernel of a matrix product, if its weights are floats.
pub(crate) fn link(request: &Request<'_>, matmul: MatmulShape) -> Option<Launch> {
    let fast = request.precision == Precision::Fast;
    #[cfg(target_arch = "x86_64")]
    if fast
        && let Some(launch) = panels::link(request, matmul)
            .or_else(|| amx::link(request, matmul))
            .or_else(|| bf16::link(request, matmul))
    {
        return Some(launch);
    }
    let split = Split::Units(matmul.rows);
    let tokens = matmul.tokens;
    let launch = match (request.variant?, fast) {
        (DType::F32, _) => request.launch::<FloatMatmul<F32, false>>(split, tokens),
        (DType::F16, _) => request.launch::<FloatMatmul<F16, false>>(split, tokens),
        (DType::Bf16, false) => request.launch::<FloatMatmul<Bf16, false>>(split, tokens),
        (DType::Bf16, true) => request.launch::<FloatMatmul<Bf16, true>>(split, tokens),
        _ => return None,
    };
    let tokens = tokens as usize;
    let [least, most] = GEMV_TOKENS_MAX;
    let gemm_floats = if tokens > least {
        (TOKENS + PANEL) * SPAN
    } else {
        0
    };
    Some(Launch {
        scratch: gemm_floats.max(tokens.min(most) * matmul.cols) * size_of::<f32>(),
        ..launch
    })
}
