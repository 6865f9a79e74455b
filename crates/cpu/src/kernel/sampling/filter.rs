//! Common code of samplers that process whole rows of logits.
//!
//! Rows have parts with known maxima, so that a filter reads only the parts with numbers that the filters before it kept:
//!
//! ```text
//! y:      | part 0 | part 1: -inf ... | part 2 | ...
//! maxima: |  7.5   |      -inf        |  3.25  | ...
//! ```

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;
use tabla_core::error::{Result, bail};
use tabla_core::op::kind;
use tabla_core::op::operands::part_maxima;
use tabla_core::op::operands::top_k::{AT, COUNT};
use tabla_core::op::params::{Row, Sampler};

/// Shape of the rows: `Params` of every filter and of `part_maxima`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct RowShape {
    pub(super) tokens: u32,
    pub(super) vocab: u32,
    pub(super) part: u32,
    pub(super) parts: u32,
}

impl Kernel for kind::PartMaxima {
    /// A unit is a part of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let shape: RowShape = args.params();
        let [vocab, part, parts] = [shape.vocab, shape.part, shape.parts].map(|n| n as usize);
        let x = args.f32s(part_maxima::AT.x);
        let mut maxima = args.open::<f32>(part_maxima::AT.maxima);
        for unit in args.units() {
            let row = &x[unit / parts * vocab..][..vocab];
            let first = unit % parts * part;
            maxima.unit(unit, 1)[0] = math::max(&row[first..vocab.min(first + part)]);
        }
    }
}

impl Link for kind::PartMaxima {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: RowShape = request.params();
        if p.part == 0 {
            bail!(Internal, "the parts of a row have no elements");
        }
        Ok(request.by_segment::<Self>(p.tokens, p.vocab, p.part as usize))
    }
}

/// The parts of a row of logits.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// The row.
    pub(super) y: &'a [f32],
    /// The largest number of each part.
    pub(super) maxima: &'a [f32],
    /// Number of elements of each but the last.
    pub(super) size: usize,
}

impl<'a> Parts<'a> {
    /// Returns the largest number of the row, negative infinity if there is none.
    #[inline(always)]
    pub(super) fn peak(self) -> f32 {
        math::max(self.maxima)
    }

    /// Returns the parts with numbers above negative infinity.
    #[inline(always)]
    pub(super) fn live(self) -> impl Iterator<Item = &'a [f32]> + Clone {
        let parts = self.y.chunks(self.size).zip(self.maxima);
        let live = parts.filter(|(_, max)| **max > f32::NEG_INFINITY);
        live.map(|(y, _)| y)
    }

    /// Returns the parts with a number of at least `least`.
    #[inline(always)]
    pub(super) fn from(self, least: f32) -> impl Iterator<Item = &'a [f32]> + Clone {
        let parts = self.y.chunks(self.size).zip(self.maxima);
        parts.filter(move |(_, max)| **max >= least).map(|(y, _)| y)
    }
}

/// A row and the sampling parameters of its sequence.
#[derive(Clone, Copy)]
pub(crate) struct RowContext<'a> {
    pub(crate) row: Row,
    pub(crate) sampler: &'a Sampler,
}

/// A filter that removes the smallest logits.
pub(crate) trait Threshold {
    /// Scratch floats in addition to one row; `None` if it needs no scratch.
    const SCRATCH: Option<usize>;

    /// Returns the least logit that stays; `None` if all do.
    fn least(context: RowContext<'_>, parts: Parts<'_>, scratch: &mut [f32]) -> Option<f32>;
}

/// Kernel that applies a threshold to the rows of operand 0, each with the sampler of its sequence.
struct Thresholds<F>(PhantomData<F>);

impl<F: Threshold> Kernel for Thresholds<F> {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let RowShape { part, parts, .. } = args.params();
        let [size, parts] = [part, parts].map(|n| n as usize);
        let mut maxima = args.open::<f32>(AT.maxima);
        each_row(args, F::SCRATCH, |t, context, y, scratch| {
            let maxima = maxima.unit(t, parts);
            if let Some(least) = F::least(context, Parts { y, maxima, size }, scratch) {
                keep_from(y, maxima, size, least);
            }
        });
    }
}

/// Calls `apply` with each row of logits, its sampler, and the scratch memory, if there is some.
#[inline(always)]
fn each_row(
    mut args: Args<'_>,
    scratch: Option<usize>,
    mut apply: impl FnMut(usize, RowContext<'_>, &mut [f32], &mut [f32]),
) {
    let RowShape { vocab, .. } = args.params();
    let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
    let mut y = args.open::<f32>(AT.y);
    let mut scratch = scratch.map(|_| args.open::<f32>(COUNT));
    for t in args.units() {
        let row = rows[t];
        let sampler = &samplers[row.sequence as usize];
        let scratch = scratch
            .as_mut()
            .map_or(&mut [][..], |scratch| scratch.whole());
        apply(
            t,
            RowContext { row, sampler },
            y.unit(t, vocab as usize),
            scratch,
        );
    }
}

/// Sets logits below `least` to -inf.
#[inline(always)]
fn keep_from(y: &mut [f32], maxima: &mut [f32], size: usize, least: f32) {
    let live = y.chunks_mut(size).zip(maxima);
    for (y, max) in live.filter(|(_, max)| **max > f32::NEG_INFINITY) {
        if *max < least {
            y.fill(f32::NEG_INFINITY);
            *max = f32::NEG_INFINITY;
        } else {
            for y in y {
                *y = if *y < least { f32::NEG_INFINITY } else { *y };
            }
        }
    }
}

/// A sampler that changes logits in another way. Maxima of parts are those before it.
pub(crate) trait Filter {
    /// Scratch floats in addition to one row; `None` if it needs no scratch.
    const SCRATCH: Option<usize>;

    /// Returns the change of a logit; `None` if there is none.
    fn change(
        context: RowContext<'_>,
        parts: Parts<'_>,
        scratch: &mut [f32],
    ) -> Option<impl Fn(f32) -> f32 + use<Self>>;
}

/// Kernel that applies a filter to the rows of operand 0, each with the sampler of its sequence.
struct Filters<F>(PhantomData<F>);

impl<F: Filter> Kernel for Filters<F> {
    #[inline(always)]
    fn run<S: Simd>(_: S, args: Args<'_>) {
        let RowShape { part, parts, .. } = args.params();
        let [size, parts] = [part, parts].map(|n| n as usize);
        let maxima = args.f32s(AT.maxima);
        each_row(args, F::SCRATCH, |t, context, y, scratch| {
            let maxima = &maxima[t * parts..][..parts];
            if let Some(change) = F::change(context, Parts { y, maxima, size }, scratch) {
                let live = y.chunks_mut(size).zip(maxima);
                for (y, _) in live.filter(|(_, max)| **max > f32::NEG_INFINITY) {
                    y.iter_mut().for_each(|y| *y = change(*y));
                }
            }
        });
    }
}

/// Returns the launch of a threshold.
pub(super) fn threshold<F: Threshold>(request: &Request<'_>) -> Launch {
    launch::<Thresholds<F>>(request, F::SCRATCH)
}

/// Returns the launch of a filter.
pub(super) fn filter<F: Filter>(request: &Request<'_>) -> Launch {
    launch::<Filters<F>>(request, F::SCRATCH)
}

fn launch<K: Kernel>(request: &Request<'_>, scratch: Option<usize>) -> Launch {
    let RowShape { tokens, vocab, .. } = request.params();
    let scratch = scratch.map_or(0, |more| more + vocab as usize);
    Launch {
        scratch: scratch * size_of::<f32>(),
        ..request.by_row::<K>(tokens, vocab)
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
    pub fn cutoff<'a>(
        &self,
        parts: impl Iterator<Item = &'a [f32]> + Clone,
        share: f32,
        scratch: &mut [f32],
    ) -> Option<f32> {
        let (bins, members) = scratch.split_at_mut(BINS);
        let numbers = || {
            let numbers = parts.clone().flatten().copied();
            numbers.filter(|y| *y > f32::NEG_INFINITY)
        };
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
