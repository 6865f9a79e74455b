//! `y[i] = -inf` where `softmax(y)[i] < min_p * max(softmax(y))`

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd, math};
use crate::op::shaders::min_p::Params;

struct MinP;

impl Kernel for MinP {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let min_p = args.state(1).min_p;
        if min_p <= 0.0 {
            return;
        }
        let mut y = args.open::<f32>(0);
        let y = &mut y.whole()[..p.vocab as usize];
        let threshold = math::max(y) + math::ln(min_p);
        for y in y {
            *y = if *y < threshold { f32::NEG_INFINITY } else { *y };
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(request.alone::<MinP>())
}

macro_rules! case {
    ($name:literal, $vocab:literal, $p:literal) => {
        Case {
            name: $name,
            emit: |b| b.pick_sampled($vocab),
            state: |state| state.min_p = $p,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Off, some, only the largest.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 0.5),
    case!("off", 37, 0.0),
    case!("some", 131, 0.3),
    case!("the largest", 5003, 1.0),
];
