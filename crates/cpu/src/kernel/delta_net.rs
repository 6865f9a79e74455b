//! `S = e^gate S; S += k (beta (v - S^T k))^T; y[t, h, :] = S^T q`
//!
//! A unit is a value head, for all rows. Rows of a block are computed together, as matrix products with
//! the S before the block and with the keys of the block (WY form, as in `shaders/delta_net.wgsl`). Every sum
//! is one chain of fused multiply-adds in the order of elements or positions, so the bits of a row do not
//! depend on the other rows of a pass.

use super::attend::whole_vectors;
use super::pages::{StatePages, runs};
use super::tiles::{CopiedValues, LANES_MAX, add_weighted_values, for_tiles};
use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::delta_net::{AT, COUNT};
use tabla_core::op::params::STATE_BLOCK;
use tabla_core::op::params::delta_net::Params;

/// Positions of a block.
const BLOCK: usize = STATE_BLOCK as usize;

const _: () = assert!(
    BLOCK.is_multiple_of(LANES_MAX),
    "keys of a block are whole vectors"
);

/// Sizes of a head.
#[derive(Clone, Copy)]
struct HeadDims {
    key: usize,
    value: usize,
}

impl HeadDims {
    /// Number of elements of the state.
    fn state_len(self) -> usize {
        self.key * self.value + BLOCK * (self.key + self.value + 1)
    }

    /// Number of floats of [`Scratch`].
    fn scratch_len(self) -> usize {
        2 * BLOCK * (self.key + self.value + BLOCK)
    }
}

/// State of a head.
struct HeadState<'a> {
    /// S before the block, `[key, value]`.
    matrix: &'a mut [f32],
    /// Keys of the positions of the block, `[key, BLOCK]`.
    keys: &'a mut [f32],
    /// Values that the delta rule adds at these positions, `[BLOCK, value]`.
    values: &'a mut [f32],
    /// Sums of gates, from the start of the block to each position.
    sums: &'a mut [f32],
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
            add_weighted_values::<S, N>(s, weights.each_ref().map(|w| &w[..]), (values, dims.value), rows);
        });
    }
}

/// Rows of a pass that are positions of the same block, and intermediate results.
struct Scratch<'a> {
    /// Keys of the rows, then their queries, `[2 BLOCK, key]`.
    vectors: &'a mut [f32],
    /// Products with S, `[2 BLOCK, value]`.
    known: &'a mut [f32],
    /// Products with the keys of the block, `[2 BLOCK, BLOCK]`.
    scores: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    #[inline(always)]
    fn of(floats: &'a mut [f32], dims: HeadDims) -> Self {
        let (vectors, rest) = floats.split_at_mut(2 * BLOCK * dims.key);
        let (known, rest) = rest.split_at_mut(2 * BLOCK * dims.value);
        Self {
            vectors,
            known,
            scores: &mut rest[..2 * BLOCK * BLOCK],
        }
    }

    /// Multiplies the keys and queries of `count` rows by S and by the keys of the block.
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S, count: usize, state: &HeadState<'_>, dims: HeadDims) {
        let rows = 2 * count;
        self.known[..rows * dims.value].fill(0.0);
        self.scores[..rows * BLOCK].fill(0.0);
        for_tiles!(rows, N, r => {
            let mut vectors = [&[][..]; N];
            for (n, vector) in vectors.iter_mut().enumerate() {
                *vector = &self.vectors[(r + n) * dims.key..][..dims.key];
            }
            let known = &mut self.known[r * dims.value..][..N * dims.value];
            let matrix = &mut CopiedValues { values: &*state.matrix, head: dims.value };
            add_weighted_values::<S, N>(s, vectors, (matrix, dims.value), known);
            let scores = &mut self.scores[r * BLOCK..][..N * BLOCK];
            let keys = &mut CopiedValues { values: &*state.keys, head: BLOCK };
            add_weighted_values::<S, N>(s, vectors, (keys, BLOCK), scores);
        });
    }
}

/// Adds the values of the first positions of a block to `y`, weighted by decayed scores; `y` is first
/// multiplied by the decay of S.
#[inline(always)]
fn add_decayed<S: Simd>(s: S, scores: &[f32], (sum, state): (f32, &HeadState<'_>), y: &mut [f32]) {
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
    add_weighted_values::<S, 1>(s, [&weights[..scores.len()]], (values, head), y);
}

/// `to = x` divided by its length, times `scale`.
#[inline(always)]
fn normalize(x: &[f32], scale: f32, to: &mut [f32]) {
    let factor = scale / (math::sum(x, |x| x * x) + 1e-6).sqrt();
    for (to, x) in to.iter_mut().zip(x) {
        *to = x * factor;
    }
}

/// Inputs of the rows of a head that are consecutive positions of a block.
struct HeadRows<'a> {
    /// `[q | k | v]` of the rows.
    x: &'a [f32],
    /// `[gate | beta]` of the rows.
    gates: &'a [f32],
    /// Position in the block of the first row, and number of rows.
    at: usize,
    count: usize,
    /// The head and its key head.
    head: usize,
    key_head: usize,
    /// Numbers of value heads and of key heads.
    heads: usize,
    key_heads: usize,
    dims: HeadDims,
}

impl HeadRows<'_> {
    /// Stores the keys and the sums of gates of the rows, and loads their keys and queries.
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
    fn load(&self, state: &mut HeadState<'_>, scratch: &mut Scratch<'_>) {
        let Self {
            at,
            count,
            key_heads,
            dims,
            ..
        } = *self;
        let width = 2 * key_heads * dims.key + self.heads * dims.value;
        let query_scale = 1.0 / (dims.key as f32).sqrt();
        let mut sum = if at == 0 { 0.0 } else { state.sums[at - 1] };
        for r in 0..count {
            let x = &self.x[r * width..][..width];
            let [query, key] =
                [0, key_heads].map(|first| &x[(first + self.key_head) * dims.key..][..dims.key]);
            let vectors = &mut *scratch.vectors;
            let to = &mut vectors[(count + r) * dims.key..][..dims.key];
            normalize(query, query_scale, to);
            let to = &mut vectors[r * dims.key..][..dims.key];
            normalize(key, 1.0, to);
            for (to, k) in state.keys.chunks_exact_mut(BLOCK).zip(&*to) {
                to[at + r] = *k;
            }
            sum += self.gates[r * 2 * self.heads + self.head];
            state.sums[at + r] = sum;
        }
    }

    /// Computes the values that the delta rule adds, and the results, which replace the products of the queries.
    #[inline(always)]
    fn compute<S: Simd>(&self, s: S, state: &mut HeadState<'_>, scratch: &mut Scratch<'_>) {
        let Self {
            at, count, dims, ..
        } = *self;
        let keys_width = 2 * self.key_heads * dims.key;
        let width = keys_width + self.heads * dims.value;
        for r in 0..count {
            let sum = state.sums[at + r];
            let known = &mut scratch.known[r * dims.value..][..dims.value];
            let scores = &scratch.scores[r * BLOCK..][..at + r];
            add_decayed(s, scores, (sum, state), known);
            let v = &self.x[r * width + keys_width + self.head * dims.value..][..dims.value];
            let beta = self.gates[(r * 2 + 1) * self.heads + self.head];
            let to = &mut state.values[(at + r) * dims.value..][..dims.value];
            for ((u, v), known) in to.iter_mut().zip(v).zip(&*known) {
                *u = beta * (v - known);
            }
            let result = &mut scratch.known[(count + r) * dims.value..][..dims.value];
            let scores = &scratch.scores[(count + r) * BLOCK..][..=at + r];
            add_decayed(s, scores, (sum, state), result);
        }
    }
}

/// Key head of a value head.
#[inline(always)]
fn key_head(p: &Params, head: usize) -> usize {
    let [heads, key_heads] = [p.heads, p.key_heads].map(|n| n as usize);
    match p.interleaved {
        0 => head / (heads / key_heads),
        _ => head % key_heads,
    }
}

struct DeltaNet;

impl Kernel for DeltaNet {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let dims = HeadDims {
            key: p.key_dim as usize,
            value: p.value_dim as usize,
        };
        let [heads, key_heads] = [p.heads, p.key_heads].map(|n| n as usize);
        let width = 2 * key_heads * dims.key + heads * dims.value;
        let (x, gates, rows) = (args.f32s(AT.x), args.f32s(AT.gates), args.rows(AT.state));
        let table = args.bytes(AT.pages);
        let context = args.state(AT.state).context as usize;
        let units = args.range();
        let mut y = args.open::<f32>(AT.y);
        let mut memory = args.open::<f32>(AT.recurrent_state);
        let mut floats = args.open::<f32>(COUNT);
        let (copy, floats) = floats.whole().split_at_mut(units.len() * dims.state_len());
        let mut scratch = Scratch::of(floats, dims);
        let (state_len, all_len) = (dims.state_len(), heads * dims.state_len());
        for run in runs(rows, 0..args.active_rows()) {
            let first = &rows[run.start];
            let pages = StatePages::of(table, first.sequence, [p.stride, p.first, p.ring]);
            let start = first.position as usize;
            let end = context.min(start + run.len());
            let mut position = start;
            while position < end {
                let at = position % BLOCK;
                let count = (BLOCK - at).min(end - position);
                let page = pages.state(position);
                let old = pages.state(position.saturating_sub(1));
                if at == 0 && old != page {
                    copy.copy_from_slice(memory.columns(old, all_len, state_len));
                    memory
                        .columns(page, all_len, state_len)
                        .copy_from_slice(copy);
                }
                let t = run.start + position - start;
                let states = memory
                    .columns(page, all_len, state_len)
                    .chunks_exact_mut(state_len);
                for ((own, head), state) in units.clone().enumerate().zip(states) {
                    let mut state = HeadState::of(state, dims);
                    if position == 0 {
                        state.matrix.fill(0.0);
                    } else if at == 0 {
                        state.end_block(s, dims);
                    }
                    let rows = HeadRows {
                        x: &x[t * width..],
                        gates: &gates[t * 2 * heads..],
                        at,
                        count,
                        head,
                        key_head: key_head(&p, head),
                        heads,
                        key_heads,
                        dims,
                    };
                    rows.load(&mut state, &mut scratch);
                    scratch.multiply(s, count, &state, dims);
                    rows.compute(s, &mut state, &mut scratch);
                    let results = scratch.known[count * dims.value..].chunks_exact(dims.value);
                    for (r, result) in results.take(count).enumerate() {
                        let y = y.columns(t + r, heads * dims.value, dims.value);
                        y[own * dims.value..][..dims.value].copy_from_slice(result);
                    }
                }
                position += count;
            }
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let request = &whole_vectors(request, p.value_dim)?;
    let dims = HeadDims {
        key: p.key_dim as usize,
        value: p.value_dim as usize,
    };
    let floats = p.heads as usize * dims.state_len() + dims.scratch_len();
    Ok(Launch {
        scratch: floats * size_of::<f32>(),
        ..request.launch::<DeltaNet>(Split::Units(p.heads as usize), p.tokens)
    })
}
