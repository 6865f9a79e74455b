//! Common code of samplers that process whole rows of logits.

use crate::kernel::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;
use tabla_core::op::operands::top_k::{AT, COUNT};
use tabla_core::op::params::{Row, Sampler};

/// Shape of the rows: the first fields of every sampler's `Params`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RowShape {
    tokens: u32,
    vocab: u32,
}

/// A row and the sampling parameters of its sequence.
#[derive(Clone, Copy)]
pub(crate) struct RowContext<'a> {
    pub(crate) row: Row,
    pub(crate) sampler: &'a Sampler,
}

/// A sampler that filters a row of logits.
pub(crate) trait Filter {
    /// Scratch floats in addition to one row; `None` if it needs no scratch.
    const SCRATCH: Option<usize>;

    /// Sets rejected logits to -inf.
    fn filter<S: Simd>(s: S, context: RowContext<'_>, y: &mut [f32], scratch: &mut [f32]);
}

/// Kernel that applies a filter to the rows of operand 0, each with the sampler of its sequence.
struct Filters<F>(PhantomData<F>);

impl<F: Filter> Kernel for Filters<F> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let RowShape { vocab, .. } = args.params();
        let vocab = vocab as usize;
        let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
        let mut y = args.open::<f32>(AT.y);
        let mut scratch = F::SCRATCH.map(|_| args.open::<f32>(COUNT));
        for t in args.units() {
            let row = rows[t];
            let sampler = &samplers[row.sequence as usize];
            let scratch = scratch
                .as_mut()
                .map_or(&mut [][..], |scratch| scratch.whole());
            F::filter(s, RowContext { row, sampler }, y.unit(t, vocab), scratch);
        }
    }
}

pub(crate) fn link<F: Filter>(request: &Request<'_>) -> Launch {
    let RowShape { tokens, vocab } = request.params();
    let scratch = F::SCRATCH.map_or(0, |more| more + vocab as usize);
    Launch {
        scratch: scratch * size_of::<f32>(),
        ..request.by_row::<Filters<F>>(tokens, vocab)
    }
}

/// Sets logits below the threshold to -inf.
#[inline(always)]
pub(super) fn mask_below(y: &mut [f32], threshold: f32) {
    for y in y {
        *y = if *y < threshold {
            f32::NEG_INFINITY
        } else {
            *y
        };
    }
}

/// Sets logits above the threshold to -inf.
#[inline(always)]
pub(super) fn mask_above(y: &mut [f32], threshold: f32) {
    for y in y {
        *y = if *y > threshold {
            f32::NEG_INFINITY
        } else {
            *y
        };
    }
}

/// Number of bins by distance from the best, and bins per logit unit.
pub const BINS: usize = 2048;
const BINS_PER_UNIT: f32 = 64.0;

/// A ranking of logits.
#[derive(Clone, Copy, Debug)]
pub struct Ranking<R, W> {
    /// Upper bound of the ranks.
    pub best: f32,
    /// Rank of a logit.
    pub rank: R,
    /// Weight of a logit.
    pub weight: W,
}

impl<R: Fn(f32) -> f32, W: Fn(f32) -> f32> Ranking<R, W> {
    /// Returns the lowest rank of the smallest set of best logits with at least this share of the
    /// weight. Weights are first summed per bin; only the bin in which the sum reaches the share is
    /// sorted.
    #[inline(always)]
    pub fn cutoff(&self, y: &[f32], share: f32, scratch: &mut [f32]) -> Option<f32> {
        let (bins, members) = scratch.split_at_mut(BINS);
        let numbers = || y.iter().copied().filter(|y| *y > f32::NEG_INFINITY);
        bins.fill(0.0);
        for y in numbers() {
            bins[bin(self.best - (self.rank)(y))] += (self.weight)(y);
        }
        let target = share * bins.iter().sum::<f32>();
        let mut mass = 0.0;
        let crossing = bins.iter().position(|bin| {
            let reached = mass + bin >= target && *bin > 0.0;
            if !reached {
                mass += bin;
            }
            reached
        })?;
        let mut count = 0;
        for y in numbers() {
            if bin(self.best - (self.rank)(y)) == crossing {
                members[count] = y;
                count += 1;
            }
        }
        let members = &mut members[..count];
        members.sort_unstable_by(|a, b| (self.rank)(*b).total_cmp(&(self.rank)(*a)));
        for y in members.iter() {
            mass += (self.weight)(*y);
            if mass >= target {
                return Some((self.rank)(*y));
            }
        }
        // The bin reached the target when it was summed in another order.
        members.last().map(|y| (self.rank)(*y))
    }
}

#[inline(always)]
fn bin(distance: f32) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from f32 saturates"
    )]
    let bin = (distance * BINS_PER_UNIT) as usize;
    bin.min(BINS - 1)
}

/// Ranking of top-p: larger logits rank higher.
#[inline(always)]
pub fn by_size(max: f32) -> Ranking<impl Fn(f32) -> f32, impl Fn(f32) -> f32> {
    Ranking {
        best: max,
        rank: |y| y,
        weight: move |y| math::exp(y - max),
    }
}
