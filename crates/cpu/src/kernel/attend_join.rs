//! `y[t, h, :]` = the weighted values of all parts of `x[t, h]`, over the sum of their weights
//!
//! A unit is a token and a head.

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::step::Split;
use tabla_core::op::builder::Heads;
use tabla_core::op::operands::attend_join::AT;
use tabla_core::op::params::attend_join::Params;

struct AttendJoin;

impl Kernel for AttendJoin {
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, heads, parts] = [p.head_dim, p.heads, p.parts].map(|n| n as usize);
        let size = head + 2;
        let x = args.f32s(AT.x);
        let last = args.state(AT.state).context.saturating_sub(1);
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            let position = args.rows(AT.state)[unit / heads].position;
            let seen = (position.min(last) + 1).min(p.window);
            let there = seen.div_ceil(p.part) as usize;
            let parts = || x[unit * parts * size..].chunks_exact(size).take(there.min(parts));
            let peak = parts().fold(-3.0e38f32, |peak, part| peak.max(part[head]));
            let y = y.unit(unit, head);
            y.fill(0.0);
            let mut total = 0.0;
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

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(request.launch::<AttendJoin>(Split::Rows(p.heads as usize), p.tokens))
}

macro_rules! case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal x $head_dim:literal, window $window:literal, part $part:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            context: $context,
            emit: |b| {
                let q = b.input("q", $heads * $head_dim);
                let at = Heads {
                    layer: 0,
                    heads: $heads,
                    kv_heads: $heads,
                    head_dim: $head_dim,
                    window: $window,
                };
                b.attention_in_parts(at, q, 0.3, 0.0, $part);
            },
            tolerance: 1e-5,
            ..PLAIN
        }
    };
}

/// One part and many, the last one full or not.
pub(super) const CASES: &[Case] = &[
    case!("one part", 1/1 at 5 of 16, 2 x 16, window 0, part 64),
    case!("many parts", 3/2 at 500 of 1024, 3 x 72, window 0, part 16),
    case!("whole parts", 1/1 at 127 of 256, 2 x 8, window 0, part 32),
    case!("window", 4/4 at 300 of 512, 2 x 16, window 100, part 32),
];
