//! `y[t, i] = x[t, offset + i]`

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::step::Split;
use tabla_core::op::operands::columns::AT;
use tabla_core::op::params::columns::Params;

struct Columns;

impl Kernel for Columns {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [width, offset, dim] = [p.width, p.offset, p.dim].map(|n| n as usize);
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            y.unit(t, dim)
                .copy_from_slice(&x[t * width + offset..][..dim]);
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let launch = request.launch::<Columns>(Split::Rows(1), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * p.dim as usize))
}

macro_rules! case {
    ($name:literal, $width:literal, $offset:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let x = b.input("x", $width);
                b.columns(x, $offset, $dim);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Where columns may lie.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 0, 1, 1, 1),
    case!("the first", 37, 0, 5, 5, 3),
    case!("in the middle", 41, 3, 37, 5, 3),
    case!("the last", 514, 257, 257, 2, 2),
    case!("many", 300, 131, 131, 67, 61),
];
