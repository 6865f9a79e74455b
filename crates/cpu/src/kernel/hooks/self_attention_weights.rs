//! `y[t, offset + h positions + p] = softmax(scale q[t, h, :] . k[seen, h / group, :])[p]`
//!
//! A unit is a head of a token.

use crate::kernel::attention::register_tiles::{CacheType, F32};
use crate::kernel::attention::scores;
use crate::kernel::attention::self_attention::{before, seen};
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::self_attention_weights::AT;
use tabla_core::op::params::self_attention_weights::Params;

impl Kernel for kind::SelfAttentionWeights {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let [positions, offset, width] = [p.positions, p.offset, p.width].map(|n| n as usize);
        let dim = kv_heads * head;
        let (q, keys) = (args.f32s(AT.q), args.bytes(AT.k));
        let rows = &args.rows(AT.state)[..args.active_rows()];
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            let token = unit / heads;
            // Row of position 0.
            let origin = token - before(rows, token);
            let seen = seen(rows, token, p.reach as usize);
            let first = unit % heads / (heads / kv_heads) * head;
            let q = &q[unit * head..][..head];
            let score = |position| {
                let row = origin + position;
                let key = &keys[row * F32::row_bytes(dim)..][..F32::row_bytes(dim)];
                p.scale * scores::dot::<S, F32>(s, q, key, [dim, first])
            };
            let y = y.within_row(unit, heads, [offset, width], positions);
            scores::weights(seen.start - origin..seen.end - origin, y, None, score);
        }
    }
}

impl Link for kind::SelfAttentionWeights {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let launch = request.launch::<Self>(Split::Rows(p.heads as usize), p.tokens);
        Ok(launch.single_thread_if_small([p.heads, p.head_dim, p.tokens, p.tokens]))
    }
}
