//! `ids[t] = argmax(x[t, :])`, lowest id first

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::operands::argmax::AT;
use tabla_core::op::params::argmax::Params;

struct Argmax;

impl Kernel for Argmax {
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

/// The id of the largest number, the lowest of equals; a NaN is never the largest.
#[inline(always)]
fn argmax(x: &[f32]) -> u32 {
    /// Numbers between two looks at the position.
    const STRETCH: usize = 1024;
    let mut best = f32::NEG_INFINITY;
    let mut stretch = 0;
    for (i, x) in x.chunks(STRETCH).enumerate() {
        let max = math::max(x);
        if max > best {
            (best, stretch) = (max, i);
        }
    }
    let start = stretch * STRETCH;
    let offset = x[start..].iter().position(|x| *x == best);
    u32::try_from(start + offset.unwrap_or(0)).expect("ids have 32 bits")
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(request.by_row::<Argmax>(p.tokens, p.vocab))
}

macro_rules! case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            logits: LogitRows::All,
            emit: |b| b.pick_greedy($vocab),
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// One row and several, in one stretch and over it.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1/1),
    case!("a row", 37, 1/1),
    case!("past a stretch", 1025, 1/1),
    case!("rows", 131, 5/3),
    case!("rows for every thread", 2053, 7/6),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_equals_and_never_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[f32::NAN, -1.0, f32::NAN]), 1);
        assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), 0);
        assert_eq!(argmax(&[f32::NAN; 3]), 0);
        let mut x = vec![0.0; 3000];
        (x[1023], x[2999]) = (5.0, 5.0);
        assert_eq!(argmax(&x), 1023);
    }
}
