//! `ids[t] = argmax(x[t, :])`, lowest id first

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use tabla_core::error::Result;
use tabla_core::exec::state::NO_TOKEN;
use tabla_core::op::kind;
use tabla_core::op::operands::argmax::AT;
use tabla_core::op::params::argmax::Params;

impl Kernel for kind::Argmax {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let vocab = p.vocab as usize;
        let x = args.f32s(AT.x);
        let mut ids = args.open::<u32>(AT.ids);
        for t in args.units() {
            ids.unit(t, 1)[0] = argmax(&x[t * vocab..][..vocab]);
        }
    }
}

/// Returns the index of the largest number, the lowest index on ties; NaN is never the largest.
/// [`NO_TOKEN`] if the largest number is infinite or all are NaN.
#[inline(always)]
pub fn argmax(x: &[f32]) -> u32 {
    /// Elements per chunk; only the chunk with the maximum is searched for its position.
    const CHUNK: usize = 1024;
    let mut best = f32::NEG_INFINITY;
    let mut chunk = 0;
    for (i, x) in x.chunks(CHUNK).enumerate() {
        let max = math::max(x);
        if max > best {
            (best, chunk) = (max, i);
        }
    }
    if !best.is_finite() {
        return NO_TOKEN;
    }
    let start = chunk * CHUNK;
    let offset = x[start..].iter().position(|x| *x == best);
    u32::try_from(start + offset.unwrap_or(0)).expect("ids fit 32 bits")
}

impl Link for kind::Argmax {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.vocab))
    }
}
