//! `S = e^gate S + b (dt v)^T; y[t, h, :] = S^T c + d[h] v`
//!
//! A unit is a head, for all rows.

use super::state_blocks::{
    self, BLOCK, BlockRows, BlockRule, HeadDims, HeadState, Scratch, Walk, add_decayed,
};
use crate::kernel::{Launch, Link, Request};
use crate::memory::{Args, Out};
use crate::simd::{Kernel, Simd, Uses};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::ssm_scan::{AT, COUNT};
use tabla_core::op::params::ssm_scan::Params;

/// The recurrence of a state-space model.
struct Recurrence<'a> {
    p: Params,
    dims: HeadDims,
    /// `[v | b | c]` of all rows.
    x: &'a [f32],
    /// `[gate | dt]` of all rows.
    gates: &'a [f32],
    /// Factors of the values that are added.
    d: &'a [f32],
    /// Queries c of a block.
    scratch: Scratch<'a>,
    y: Out<'a, f32>,
}

impl BlockRule for Recurrence<'_> {
    #[inline(always)]
    fn compute<S: Simd>(
        &mut self,
        s: S,
        rows: &BlockRows,
        head: usize,
        own: usize,
        state: &mut HeadState<'_>,
    ) {
        let (dims, BlockRows { t, at, count }) = (self.dims, *rows);
        let [heads, groups] = [self.p.heads, self.p.groups].map(|n| n as usize);
        let (values, keys) = (heads * dims.value, groups * dims.key);
        let width = values + 2 * keys;
        let key = values + head / (heads / groups) * dims.key;
        let Scratch { vectors, .. } = &mut self.scratch;
        for r in 0..count {
            let x = &self.x[(t + r) * width..][..width];
            let gates = &self.gates[(t + r) * 2 * heads..][..2 * heads];
            state.put(at + r, &x[key..][..dims.key], gates[head]);
            vectors[r * dims.key..][..dims.key].copy_from_slice(&x[key + keys..][..dims.key]);
            let dt = gates[heads + head];
            let to = &mut state.values[(at + r) * dims.value..][..dims.value];
            for (u, v) in to.iter_mut().zip(&x[head * dims.value..]) {
                *u = dt * v;
            }
        }
        self.scratch.multiply(s, count, state, dims);
        let Scratch { known, scores, .. } = &mut self.scratch;
        for (r, result) in known.chunks_exact_mut(dims.value).take(count).enumerate() {
            let sum = state.sums[at + r];
            add_decayed(s, &scores[r * BLOCK..][..=at + r], sum, state, result);
            let v = &self.x[(t + r) * width + head * dims.value..][..dims.value];
            let y = self.y.columns(t + r, values, dims.value);
            let y = &mut y[own * dims.value..][..dims.value];
            for ((y, result), v) in y.iter_mut().zip(&*result).zip(v) {
                *y = result + self.d[head] * v;
            }
        }
    }
}

impl Kernel for kind::SsmScan {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let dims = HeadDims::of(p.key_dim, p.value_dim);
        let pages = [p.stride, p.first, p.ring];
        let walk = Walk::of(&args, [AT.state, AT.pages], pages, p.heads, dims);
        let mut floats = args.open::<f32>(COUNT);
        let (copy, floats) = floats.whole().split_at_mut(walk.states_len());
        let mut rule = Recurrence {
            p,
            dims,
            x: args.f32s(AT.x),
            gates: args.f32s(AT.gates),
            d: args.f32s(AT.d),
            scratch: Scratch::of(floats, BLOCK, dims),
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

impl Link for kind::SsmScan {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let dims = HeadDims::of(p.key_dim, p.value_dim);
        state_blocks::launch::<Self>(request, [p.heads, p.tokens], dims, BLOCK)
    }
}
