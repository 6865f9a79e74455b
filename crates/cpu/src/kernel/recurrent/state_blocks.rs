//! Recurrent layers with a matrix per head, `S = e^gate S + k u^T; y = S^T q`, in blocks of positions.
//!
//! Rows of a block are computed together, as matrix products with the S before the block and with the keys of
//! the block (as in `shaders/lib/state_block.wgsl`). Every sum is one chain of fused multiply-adds in the order of
//! elements or positions, so the bits of a row do not depend on the other rows of a pass.

use crate::kernel::attention::key_blocks::whole_vectors;
use crate::kernel::attention::pages::{StatePages, runs};
use crate::kernel::attention::register_tiles::{
    CopiedValues, LANES_MAX, add_weighted_values, for_tiles,
};
use crate::kernel::{Launch, Request};
use crate::memory::{Args, Out};
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use std::ops::Range;
use tabla_core::error::{Result, bail};
use tabla_core::op::params::{Row, STATE_BLOCK};

/// Positions of a block.
pub(crate) const BLOCK: usize = STATE_BLOCK as usize;

const _: () = assert!(
    BLOCK.is_multiple_of(LANES_MAX),
    "keys of a block are whole vectors"
);

/// Sizes of a head.
#[derive(Clone, Copy)]
pub(crate) struct HeadDims {
    pub(crate) key: usize,
    pub(crate) value: usize,
}

impl HeadDims {
    pub(crate) fn of(key_dim: u32, value_dim: u32) -> Self {
        let [key, value] = [key_dim, value_dim].map(|n| n as usize);
        Self { key, value }
    }

    /// Number of elements of the state.
    pub(super) fn state_len(self) -> usize {
        self.key * self.value + BLOCK * (self.key + self.value + 1)
    }

    /// Number of floats of a [`Scratch`] for `rows` vectors.
    pub(super) fn scratch_len(self, rows: usize) -> usize {
        rows * (self.key + self.value + BLOCK)
    }
}

/// State of a head.
pub(crate) struct HeadState<'a> {
    /// S before the block, `[key, value]`.
    matrix: &'a mut [f32],
    /// Keys of the positions of the block, `[key, BLOCK]`.
    keys: &'a mut [f32],
    /// Values that are added at these positions, `[BLOCK, value]`.
    pub(crate) values: &'a mut [f32],
    /// Sums of gates, from the start of the block to each position.
    pub(crate) sums: &'a mut [f32],
}

impl<'a> HeadState<'a> {
    #[inline(always)]
    fn of(all: &'a mut [f32], dims: HeadDims) -> Self {
        let (matrix, rest) = all.split_at_mut(dims.key * dims.value);
        let (keys, rest) = rest.split_at_mut(dims.key * BLOCK);
        let (values, sums) = rest.split_at_mut(dims.value * BLOCK);
        Self {
            matrix,
            keys,
            values,
            sums,
        }
    }

    /// Stores the key of a position of the block, and its gate.
    #[inline(always)]
    pub(crate) fn put(&mut self, at: usize, key: &[f32], gate: f32) {
        for (to, k) in self.keys.chunks_exact_mut(BLOCK).zip(key) {
            to[at] = *k;
        }
        let before = if at == 0 { 0.0 } else { self.sums[at - 1] };
        self.sums[at] = before + gate;
    }

    /// Adds the positions of a full block to S.
    #[inline(always)]
    fn end_block<S: Simd>(&mut self, s: S, dims: HeadDims) {
        let last = self.sums[BLOCK - 1];
        let kept = math::exp(last);
        let mut decay = [0.0; BLOCK];
        for (decay, sum) in decay.iter_mut().zip(&*self.sums) {
            *decay = math::exp(last - sum);
        }
        for_tiles!(dims.key, N, d => {
            let mut weights = [[0.0; BLOCK]; N];
            for (n, weights) in weights.iter_mut().enumerate() {
                let keys = &self.keys[(d + n) * BLOCK..][..BLOCK];
                for ((w, k), decay) in weights.iter_mut().zip(keys).zip(&decay) {
                    *w = k * decay;
                }
            }
            let rows = &mut self.matrix[d * dims.value..][..N * dims.value];
            rows.iter_mut().for_each(|s| *s *= kept);
            let values = &mut CopiedValues { values: &*self.values, head: dims.value };
            add_weighted_values::<S, N>(s, weights.each_ref().map(|w| &w[..]), values, dims.value, rows);
        });
    }
}

/// Vectors of rows that are positions of the same block, and intermediate results.
pub(crate) struct Scratch<'a> {
    /// Keys or queries, `[rows, key]`.
    pub(crate) vectors: &'a mut [f32],
    /// Products with S, `[rows, value]`.
    pub(crate) known: &'a mut [f32],
    /// Products with the keys of the block, `[rows, BLOCK]`.
    pub(crate) scores: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    #[inline(always)]
    pub(crate) fn of(floats: &'a mut [f32], rows: usize, dims: HeadDims) -> Self {
        let (vectors, rest) = floats.split_at_mut(rows * dims.key);
        let (known, rest) = rest.split_at_mut(rows * dims.value);
        Self {
            vectors,
            known,
            scores: &mut rest[..rows * BLOCK],
        }
    }

    /// Multiplies `rows` vectors by S and by the keys of the block.
    #[inline(always)]
    pub(crate) fn multiply<S: Simd>(
        &mut self,
        s: S,
        rows: usize,
        state: &HeadState<'_>,
        dims: HeadDims,
    ) {
        self.known[..rows * dims.value].fill(0.0);
        self.scores[..rows * BLOCK].fill(0.0);
        for_tiles!(rows, N, r => {
            let mut vectors = [&[][..]; N];
            for (n, vector) in vectors.iter_mut().enumerate() {
                *vector = &self.vectors[(r + n) * dims.key..][..dims.key];
            }
            let known = &mut self.known[r * dims.value..][..N * dims.value];
            let matrix = &mut CopiedValues { values: &*state.matrix, head: dims.value };
            add_weighted_values::<S, N>(s, vectors, matrix, dims.value, known);
            let scores = &mut self.scores[r * BLOCK..][..N * BLOCK];
            let keys = &mut CopiedValues { values: &*state.keys, head: BLOCK };
            add_weighted_values::<S, N>(s, vectors, keys, BLOCK, scores);
        });
    }
}

/// Adds the values of the first positions of a block to `y`, weighted by decayed scores; `y` is first
/// multiplied by the decay of S.
#[inline(always)]
pub(super) fn add_decayed<S: Simd>(
    s: S,
    scores: &[f32],
    sum: f32,
    state: &HeadState<'_>,
    y: &mut [f32],
) {
    let kept = math::exp(sum);
    y.iter_mut().for_each(|y| *y *= kept);
    let mut weights = [0.0; BLOCK];
    for ((w, score), at) in weights.iter_mut().zip(scores).zip(&*state.sums) {
        *w = score * math::exp(sum - at);
    }
    let head = y.len();
    let values = &mut CopiedValues {
        values: &*state.values,
        head,
    };
    add_weighted_values::<S, 1>(s, [&weights[..scores.len()]], values, head, y);
}

/// Rows of a pass that are consecutive positions of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockRows {
    /// The first row.
    pub(crate) t: usize,
    /// Its position in the block.
    pub(crate) at: usize,
    pub(crate) count: usize,
}

/// Computation of the rows of a block for a head. The same for all recurrent layers are the states of heads.
pub(crate) trait BlockRule {
    /// Stores keys, gates and values of the rows in the state, and computes their results. `own` is
    /// the number of the head among those of this part, and `state` its state.
    fn compute<S: Simd>(
        &mut self,
        s: S,
        rows: &BlockRows,
        head: usize,
        own: usize,
        state: &mut HeadState<'_>,
    );
}

/// Rows and states of a pass.
pub(crate) struct Walk<'a> {
    /// Active rows.
    rows: &'a [Row],
    /// Positions of the context.
    context: usize,
    /// Page table, with stride, first entry and number of entries of the states.
    table: &'a [u8],
    pages: [u32; 3],
    /// Number of heads, and those of this part.
    heads: usize,
    units: Range<usize>,
    dims: HeadDims,
}

impl<'a> Walk<'a> {
    /// Returns the walk of a part. `at` are the indices of the operands `state` and `pages`.
    #[inline(always)]
    pub(crate) fn of(
        args: &Args<'a>,
        at: [usize; 2],
        pages: [u32; 3],
        heads: u32,
        dims: HeadDims,
    ) -> Self {
        let [state, table] = at;
        Self {
            rows: &args.rows(state)[..args.active_rows()],
            context: args.state(state).context as usize,
            table: args.bytes(table),
            pages,
            heads: heads as usize,
            units: args.range(),
            dims,
        }
    }

    /// Number of floats of the states of this part.
    #[inline(always)]
    pub(super) fn states_len(&self) -> usize {
        self.units.len() * self.dims.state_len()
    }

    /// Applies the rule to all rows, block by block, and updates the states in `memory`. `copy` has space for those of
    /// this part.
    #[inline(always)]
    pub(crate) fn run<S: Simd, R: BlockRule>(
        &self,
        s: S,
        memory: &mut Out<'_, f32>,
        copy: &mut [f32],
        rule: &mut R,
    ) {
        let len = self.dims.state_len();
        let all = self.heads * len;
        for run in runs(self.rows, 0..self.rows.len()) {
            let first = &self.rows[run.start];
            let pages = StatePages::of(self.table, first.sequence, self.pages);
            let start = first.position as usize;
            let end = self.context.min(start + run.len());
            let mut position = start;
            while position < end {
                let at = position % BLOCK;
                let count = (BLOCK - at).min(end - position);
                let page = pages.state(position);
                let old = pages.state(position.saturating_sub(1));
                if at == 0 && old != page {
                    copy.copy_from_slice(memory.columns(old, all, len));
                    memory.columns(page, all, len).copy_from_slice(copy);
                }
                let rows = BlockRows {
                    t: run.start + position - start,
                    at,
                    count,
                };
                let states = memory.columns(page, all, len).chunks_exact_mut(len);
                for ((own, head), state) in self.units.clone().enumerate().zip(states) {
                    let mut state = HeadState::of(state, self.dims);
                    if position == 0 {
                        state.matrix.fill(0.0);
                    } else if at == 0 {
                        state.end_block(s, self.dims);
                    }
                    rule.compute(s, &rows, head, own, &mut state);
                }
                position += count;
            }
        }
    }
}

/// Returns the launch of a kernel whose unit is a head, with a [`Scratch`] for `vectors` rows.
pub(crate) fn launch<K: Kernel>(
    request: &Request<'_>,
    [heads, tokens]: [u32; 2],
    dims: HeadDims,
    vectors: usize,
) -> Result<Launch> {
    let state = dims.key.checked_mul(dims.value);
    let all = state.and_then(|state| state.checked_mul(heads as usize));
    if all.is_none_or(|all| u32::try_from(all).is_err()) {
        bail!(
            TooLarge,
            "the state of {heads} heads of {} by {} elements exceeds 32 bits",
            dims.key,
            dims.value
        );
    }
    let value_dim = u32::try_from(dims.value).unwrap_or(u32::MAX);
    let request = &whole_vectors(request, value_dim)?;
    let floats = heads as usize * dims.state_len() + dims.scratch_len(vectors);
    Ok(Launch {
        scratch: floats * size_of::<f32>(),
        ..request.launch::<K>(Split::Units(heads as usize), tokens)
    })
}
