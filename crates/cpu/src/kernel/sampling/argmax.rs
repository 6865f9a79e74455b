//! `ids[t] = argmax(x[t, :])`, lowest id first

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::exec::state::NO_TOKEN;
use tabla_core::op::kind;
use tabla_core::op::operands::argmax::AT;
use tabla_core::op::operands::{
    argmax_join as argmax_join_operands, argmax_part as argmax_part_operands,
};
use tabla_core::op::params::argmax::Params;
use tabla_core::op::params::{argmax_join, argmax_part};

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

impl Kernel for kind::ArgmaxPart {
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: argmax_part::Params = args.params();
        let [vocab, part, parts] = [p.vocab, p.part, p.parts].map(|n| n as usize);
        let x = args.f32s(argmax_part_operands::AT.x);
        let mut ids = args.open::<u32>(argmax_part_operands::AT.ids);
        for unit in args.units() {
            let first = unit % parts * part;
            let row = &x[unit / parts * vocab..][..vocab];
            let end = vocab.min(first + part);
            ids.unit(unit, 1)[0] = best(row, first..end).map_or(NO_TOKEN, |(id, _)| id);
        }
    }
}

impl Kernel for kind::ArgmaxJoin {
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: argmax_join::Params = args.params();
        let [vocab, parts] = [p.vocab, p.parts].map(|n| n as usize);
        let x = args.f32s(argmax_join_operands::AT.x);
        let of_parts: &[u32] = bytemuck::cast_slice(args.bytes(argmax_join_operands::AT.parts));
        let mut ids = args.open::<u32>(argmax_join_operands::AT.ids);
        for t in args.units() {
            let row = &x[t * vocab..][..vocab];
            let own = of_parts[t * parts..][..parts].iter();
            let own = own.filter(|id| **id != NO_TOKEN).map(|id| *id as usize);
            let found = best(row, own).filter(|(_, value)| value.is_finite());
            ids.unit(t, 1)[0] = found.map_or(NO_TOKEN, |(id, _)| id);
        }
    }
}

/// Returns the index of the largest of some numbers above negative infinity, the first on ties, and the number.
fn best(x: &[f32], at: impl Iterator<Item = usize>) -> Option<(u32, f32)> {
    let mut found = None;
    let mut most = f32::NEG_INFINITY;
    for i in at.filter(|i| *i < x.len()) {
        if x[i] > most {
            most = x[i];
            found = Some((u32::try_from(i).expect("ids fit 32 bits"), most));
        }
    }
    found
}

impl Link for kind::ArgmaxPart {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: argmax_part::Params = request.params();
        Ok(request.scalar::<Self>(Split::Rows(p.parts as usize), p.tokens))
    }
}

impl Link for kind::ArgmaxJoin {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: argmax_join::Params = request.params();
        Ok(request.scalar::<Self>(Split::Rows(1), p.tokens))
    }
}

impl Link for kind::Argmax {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.vocab))
    }
}
