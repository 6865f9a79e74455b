//! `x[t, h, :] = rot(x[t, h, :], position)`

use super::turns::Turns;
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::step::Split;
use tabla_core::op::builder::Rope as Turning;
use tabla_core::op::operands::rope::AT;
use tabla_core::op::params::rope::Params;

struct Rope;

impl Kernel for Rope {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let width = p.heads as usize * p.head_dim as usize;
        let (freqs, rows) = (args.f32s(AT.freqs), args.rows(AT.state));
        let turns = Turns {
            head: p.head_dim as usize,
            freqs: &freqs[..p.rope_dim as usize / 2],
            half_split: p.half_split != 0,
            magnitude: p.magnitude,
        };
        let mut x = args.open::<f32>(AT.x);
        for t in args.range() {
            for angles in turns.angles(rows[t].position) {
                turns.turn(&angles, x.unit(t, width));
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let elements = p.tokens as usize * p.heads as usize * p.head_dim as usize;
    let launch = request.launch::<Rope>(Split::Rows(1), p.tokens);
    Ok(launch.of_elements(elements))
}

macro_rules! case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal,
     $heads:literal x $head_dim:literal, $rope_dim:literal, $half_split:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            emit: |b| {
                let x = b.input("x", $heads * $head_dim);
                let rope = Turning {
                    index: 0,
                    dim: $rope_dim,
                    half_split: $half_split,
                    magnitude: 0.75,
                };
                b.rope($heads, $head_dim, rope, x);
            },
            ..PLAIN
        }
    };
}

/// Both pairings, parts of heads, positions behind the context, which is not looked at.
pub(super) const CASES: &[Case] = &[
    case!("one pair", 1/1 at 0, 1 x 2, 2, true),
    case!("half split", 5/3 at 7, 6 x 8, 8, true),
    case!("interleaved", 5/3 at 70, 3 x 10, 10, false),
    case!("a part of the head", 3/3 at 2, 5 x 12, 4, true),
    case!("a part, interleaved", 3/2 at 1000, 4 x 6, 2, false),
    case!("many", 67/61 at 3, 8 x 16, 16, true),
];
