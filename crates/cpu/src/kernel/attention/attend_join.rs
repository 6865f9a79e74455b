//! `y[t, h, :] = sum_p weight(p) x[t, h, p, :] / (sum_p weight(p) + sink)`: merges the parts of
//! split attention
//!
//! A unit is a token and a head.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::attend_join::AT;
use tabla_core::op::pages::part_size;
use tabla_core::op::params::attend_join::Params;

impl Kernel for kind::AttendJoin {
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, heads, parts] = [p.head_dim, p.heads, p.parts].map(|n| n as usize);
        let size = head + 2;
        let x = args.f32s(AT.x);
        let sinks = (p.sinks > 0).then(|| args.f32s(AT.sinks));
        let last = args.state(AT.state).context.saturating_sub(1);
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            let position = args.rows(AT.state)[unit / heads].position;
            let end = match p.positions {
                0 => position.min(last) + 1,
                n => n,
            };
            let seen = end.min(p.window).min(end - p.skip.min(end - 1));
            let there = seen.div_ceil(part_size(p.part, p.parts, seen)) as usize;
            let parts = || {
                x[unit * parts * size..]
                    .chunks_exact(size)
                    .take(there.min(parts))
            };
            let sink = sinks.map_or(-3.0e38f32, |all| all[unit % heads]);
            let peak = parts().fold(sink, |peak, part| peak.max(part[head]));
            let y = y.unit(unit, head);
            y.fill(0.0);
            let mut total = math::exp(sink - peak);
            for part in parts() {
                let weight = math::exp(part[head] - peak);
                total += weight * part[head + 1];
                for (y, value) in y.iter_mut().zip(part) {
                    *y += weight * value;
                }
            }
            for y in y {
                *y /= total;
            }
        }
    }
}

impl Link for kind::AttendJoin {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.scalar::<Self>(Split::Rows(p.heads as usize), p.tokens))
    }
}
