//! `y[t, h, p, :]`: for query head h of token t and part p of its visible positions, the weighted
//! values, the maximum score, and the sum of the weights
//!
//! A unit is a token and a head. Tables planned for a CPU use the faster
//! [`attention`](super::attention); this kernel is for tables planned for a GPU.

use super::pages::Pages;
use super::register_tiles::{CacheType, with_cache_type};
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::attend_part::AT;
use tabla_core::op::pages::part_size;
use tabla_core::op::params::attend_part::Params;

struct AttendPart<C>(PhantomData<C>);

impl<C: CacheType> Kernel for AttendPart<C> {
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, heads, kv_heads] = [p.head_dim, p.heads, p.kv_heads].map(|n| n as usize);
        let (q, keys, values) = (
            args.f32s(AT.q),
            args.bytes(AT.k_cache),
            args.bytes(AT.v_cache),
        );
        let last = args.state(AT.state).context.saturating_sub(1);
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            let row = args.rows(AT.state)[unit / heads];
            let end = match p.positions {
                0 => row.position.min(last) + 1,
                n => n,
            };
            let seen = end.saturating_sub(p.window).max(p.skip.min(end - 1))..end;
            let y = y.unit(unit, p.parts as usize * (head + 2));
            let kv_head = unit % heads / (heads / kv_heads);
            let pages = Pages::of(
                args.bytes(AT.pages),
                row.sequence,
                [p.stride, p.first, p.ring],
            );
            let dim = kv_heads * head;
            let number = |cache: &[u8], position: u32, i: usize| {
                let row = &cache[pages.row(position as usize) * C::row_bytes(dim)..];
                C::number(row, dim, kv_head * head + i)
            };
            let score = |position: u32| {
                let q = q[unit * head..][..head].iter().enumerate();
                let dots = q.map(|(i, q)| p.scale * q * number(keys, position, i));
                match (dots.sum::<f32>(), p.softcap) {
                    (score, 0.0) => score,
                    (score, cap) => cap * math::tanh(score / cap),
                }
            };
            let size = part_size(p.part, p.parts, seen.end - seen.start);
            let parts = seen.clone().step_by(size as usize);
            for (first, y) in parts.zip(y.chunks_exact_mut(head + 2)) {
                let part = first..seen.end.min(first + size);
                let peak = part.clone().map(score).fold(-3.0e38, f32::max);
                y.fill(0.0);
                for position in part {
                    let weight = math::exp(score(position) - peak);
                    for (i, y) in y[..head].iter_mut().enumerate() {
                        *y += weight * number(values, position, i);
                    }
                    y[head + 1] += weight;
                }
                y[head] = peak;
            }
        }
    }
}

impl Link for kind::AttendPart {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let split = Split::Rows(p.heads as usize);
        with_cache_type!(request, |C| request
            .scalar::<AttendPart<C>>(split, p.tokens))
    }
}
