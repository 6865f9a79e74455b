//! `S = e^gate S; S += k (beta (v - S^T k))^T; y[t, h, :] = S^T q`
//!
//! A unit is a value head, for all rows. The values that the rule adds are those of the WY form.

use super::state_blocks::{
    self, BLOCK, BlockRows, BlockRule, HeadDims, HeadState, Scratch, Walk, add_decayed,
};
use crate::kernel::{Launch, Link, Request};
use crate::memory::{Args, Out};
use crate::simd::{Kernel, Simd, Uses, math};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::delta_net::{AT, COUNT};
use tabla_core::op::params::delta_net::Params;

/// Rows of [`Scratch`]: keys, then queries, of a block.
const VECTORS: usize = 2 * BLOCK;

/// `to = x` divided by its length, times `scale`.
#[inline(always)]
fn normalize(x: &[f32], scale: f32, to: &mut [f32]) {
    let factor = scale / (math::sum(x, |x| x * x) + 1e-6).sqrt();
    for (to, x) in to.iter_mut().zip(x) {
        *to = x * factor;
    }
}

/// The delta rule.
struct DeltaRule<'a> {
    p: Params,
    dims: HeadDims,
    /// `[q | k | v]` of all rows.
    x: &'a [f32],
    /// `[gate | beta]` of all rows.
    gates: &'a [f32],
    scratch: Scratch<'a>,
    y: Out<'a, f32>,
}

impl DeltaRule<'_> {
    /// Number of elements of all keys, and of a row of x.
    #[inline(always)]
    fn widths(&self) -> [usize; 2] {
        let keys = 2 * self.p.key_heads as usize * self.dims.key;
        [keys, keys + self.p.heads as usize * self.dims.value]
    }

    /// Key head of a value head.
    #[inline(always)]
    fn key_head(&self, head: usize) -> usize {
        let [heads, key_heads] = [self.p.heads, self.p.key_heads].map(|n| n as usize);
        match self.p.interleaved {
            0 => head / (heads / key_heads),
            _ => head % key_heads,
        }
    }

    /// Stores the keys and gates of the rows, and loads their keys and queries.
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
    fn load(&mut self, rows: &BlockRows, head: usize, state: &mut HeadState<'_>) {
        let ([_, width], key_head) = (self.widths(), self.key_head(head));
        let [heads, key_heads] = [self.p.heads, self.p.key_heads].map(|n| n as usize);
        let dims = self.dims;
        let query_scale = 1.0 / (dims.key as f32).sqrt();
        for r in 0..rows.count {
            let x = &self.x[(rows.t + r) * width..][..width];
            let [query, key] =
                [0, key_heads].map(|first| &x[(first + key_head) * dims.key..][..dims.key]);
            let vectors = &mut *self.scratch.vectors;
            let to = &mut vectors[(rows.count + r) * dims.key..][..dims.key];
            normalize(query, query_scale, to);
            let to = &mut vectors[r * dims.key..][..dims.key];
            normalize(key, 1.0, to);
            let gate = self.gates[(rows.t + r) * 2 * heads + head];
            state.put(rows.at + r, to, gate);
        }
    }
}

impl BlockRule for DeltaRule<'_> {
    #[inline(always)]
    fn compute<S: Simd>(
        &mut self,
        s: S,
        rows: &BlockRows,
        head: usize,
        own: usize,
        state: &mut HeadState<'_>,
    ) {
        self.load(rows, head, state);
        let (dims, heads) = (self.dims, self.p.heads as usize);
        let ([keys, width], BlockRows { t, at, count }) = (self.widths(), *rows);
        self.scratch.multiply(s, 2 * count, state, dims);
        let Scratch { known, scores, .. } = &mut self.scratch;
        for r in 0..count {
            let sum = state.sums[at + r];
            let of_key = &mut known[r * dims.value..][..dims.value];
            add_decayed(s, &scores[r * BLOCK..][..at + r], sum, state, of_key);
            let v = &self.x[(t + r) * width + keys + head * dims.value..][..dims.value];
            let beta = self.gates[((t + r) * 2 + 1) * heads + head];
            let to = &mut state.values[(at + r) * dims.value..][..dims.value];
            for ((u, v), known) in to.iter_mut().zip(v).zip(&*of_key) {
                *u = beta * (v - known);
            }
            let result = &mut known[(count + r) * dims.value..][..dims.value];
            let of_query = &scores[(count + r) * BLOCK..][..=at + r];
            add_decayed(s, of_query, sum, state, result);
            let y = self.y.columns(t + r, heads * dims.value, dims.value);
            y[own * dims.value..][..dims.value].copy_from_slice(result);
        }
    }
}

impl Kernel for kind::DeltaNet {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let dims = HeadDims::of(p.key_dim, p.value_dim);
        let pages = [p.stride, p.first, p.ring];
        let walk = Walk::of(&args, [AT.state, AT.pages], pages, p.heads, dims);
        let mut floats = args.open::<f32>(COUNT);
        let (copy, floats) = floats.whole().split_at_mut(walk.states_len());
        let mut rule = DeltaRule {
            p,
            dims,
            x: args.f32s(AT.x),
            gates: args.f32s(AT.gates),
            scratch: Scratch::of(floats, VECTORS, dims),
            y: args.open::<f32>(AT.y),
        };
        walk.run(
            s,
            &mut args.open::<f32>(AT.recurrent_state),
            copy,
            &mut rule,
        );
    }
}

impl Link for kind::DeltaNet {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let dims = HeadDims::of(p.key_dim, p.value_dim);
        state_blocks::launch::<Self>(request, [p.heads, p.tokens], dims, VECTORS)
    }
}
