//! `y[t, offset + h positions + p] = softmax(cap(scale q[t, h, :] . k[h / group, seen, :]))[p]`
//!
//! A unit is a head of a token.

use crate::kernel::attention::pages::Pages;
use crate::kernel::attention::register_tiles::{CacheType, with_cache_type};
use crate::kernel::attention::scores;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::attention_weights::AT;
use tabla_core::op::params::attention_weights::Params;

struct AttentionWeights<C>(PhantomData<C>);

impl<C: CacheType> Kernel for AttentionWeights<C> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let [positions, offset, width] = [p.positions, p.offset, p.width].map(|n| n as usize);
        let dim = kv_heads * head;
        let last = args.state(AT.state).context.saturating_sub(1);
        let sinks = (p.sinks > 0).then(|| args.f32s(AT.sinks));
        let (q, keys) = (args.f32s(AT.q), args.bytes(AT.k_cache));
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            let row = args.rows(AT.state)[unit / heads];
            let layout = [p.stride, p.first, p.ring];
            let pages = Pages::of(args.bytes(AT.pages), row.sequence, layout);
            let first = unit % heads / (heads / kv_heads) * head;
            let q = &q[unit * head..][..head];
            let score = |position| {
                let key = &keys[pages.row(position) * C::row_bytes(dim)..][..C::row_bytes(dim)];
                let score = p.scale * scores::dot::<S, C>(s, q, key, [dim, first]);
                if p.softcap == 0.0 {
                    return score;
                }
                p.softcap * math::tanh(score / p.softcap)
            };
            let end = row.position.min(last) + 1;
            let seen = end.saturating_sub(p.window) as usize..end as usize;
            let y = y.within_row(unit, heads, [offset, width], positions);
            let sink = sinks.map(|all| all[unit % heads]);
            scores::weights(seen, y, sink, score);
        }
    }
}

impl Link for kind::AttentionWeights {
    fn link(request: &Request<'_>) -> Result<Launch> {
        with_cache_type!(request, |C| of_cache::<C>(request))
    }
}

fn of_cache<C: CacheType>(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    let split = Split::RoundRobin {
        units: p.heads as usize,
        rows: 1,
    };
    let launch = request.launch::<AttentionWeights<C>>(split, p.tokens);
    launch.single_thread_if_small([p.tokens, p.heads, p.head_dim, p.window])
}
