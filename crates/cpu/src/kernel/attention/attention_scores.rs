//! `y[t, offset + p] = scale q[t, head, :] . k[p, head / group, :]`
//!
//! A unit is a token.

use super::pages::Pages;
use super::register_tiles::{CacheType, with_cache_type};
use super::scores;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::attention_scores::AT;
use tabla_core::op::params::attention_scores::Params;

struct AttentionScores<C>(PhantomData<C>);

impl<C: CacheType> Kernel for AttentionScores<C> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let [positions, offset, width] = [p.positions, p.offset, p.width].map(|n| n as usize);
        let dim = kv_heads * head;
        let first = p.head as usize / (heads / kv_heads) * head;
        let (q, keys) = (args.f32s(AT.q), args.bytes(AT.k_cache));
        let mut y = args.open::<f32>(AT.y);
        for t in args.units() {
            let row = args.rows(AT.state)[t];
            let layout = [p.stride, p.first, p.ring];
            let pages = Pages::of(args.bytes(AT.pages), row.sequence, layout);
            let q = &q[(t * heads + p.head as usize) * head..][..head];
            let y = &mut y.unit(t, width)[offset..][..positions];
            for (position, y) in y.iter_mut().enumerate() {
                let key = &keys[pages.row(position) * C::row_bytes(dim)..][..C::row_bytes(dim)];
                *y = p.scale * scores::dot::<S, C>(s, q, key, [dim, first]);
            }
        }
    }
}

impl Link for kind::AttentionScores {
    fn link(request: &Request<'_>) -> Result<Launch> {
        with_cache_type!(request, |C| of_cache::<C>(request))
    }
}

fn of_cache<C: CacheType>(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    request.launch::<AttentionScores<C>>(Split::Rows(1), p.tokens)
}
