//! Samplers that look at whole rows of logits: what they have in common.

use super::{Launch, Request};
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::exec::state::Sampler;
use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;

/// The shape of the rows, as every sampler's `Params` begins.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Rows {
    tokens: u32,
    vocab: u32,
}

/// What a sampler does to a row.
pub(super) trait Filter {
    /// Floats to work in, beside as many as a row has; `None` where it needs none.
    const SCRATCH: Option<usize>;

    /// Takes away what is not to be picked: it becomes -inf.
    fn filter<S: Simd>(s: S, sampler: &Sampler, y: &mut [f32], scratch: &mut [f32]);
}

/// A filter over rows, operand 0, each with the sampler of its sequence.
struct Filters<F>(PhantomData<F>);

impl<F: Filter> Kernel for Filters<F> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let Rows { vocab, .. } = args.params();
        let vocab = vocab as usize;
        let (samplers, rows) = (args.samplers(1), args.rows(2));
        let mut y = args.open::<f32>(0);
        let mut scratch = F::SCRATCH.map(|_| args.open::<f32>(3));
        for t in args.units() {
            let sampler = &samplers[rows[t].sequence as usize];
            let scratch = scratch
                .as_mut()
                .map_or(&mut [][..], |scratch| scratch.whole());
            F::filter(s, sampler, y.unit(t, vocab), scratch);
        }
    }
}

pub(super) fn link<F: Filter>(request: &Request<'_>) -> Launch {
    let Rows { tokens, vocab } = request.params();
    let scratch = F::SCRATCH.map_or(0, |more| more + vocab as usize);
    Launch {
        scratch: scratch * size_of::<f32>(),
        ..request.by_row::<Filters<F>>(tokens, vocab)
    }
}

/// Takes away what is smaller.
#[inline(always)]
pub(super) fn keep_from(y: &mut [f32], threshold: f32) {
    for y in y {
        *y = if *y < threshold {
            f32::NEG_INFINITY
        } else {
            *y
        };
    }
}

/// A case of a sampler over rows of `$vocab` numbers.
macro_rules! filter_case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal, $sampler:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            logits: LogitRows::All,
            emit: |b| b.pick_sampled($vocab),
            sampler: $sampler,
            tolerance: 0.0,
            ..PLAIN
        }
    };
    ($name:literal, $vocab:literal, $sampler:expr) => {
        Case {
            name: $name,
            emit: |b| b.pick_sampled($vocab),
            sampler: $sampler,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}
pub(super) use filter_case;
