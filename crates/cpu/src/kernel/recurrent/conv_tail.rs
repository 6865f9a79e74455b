//! `y[t, c] = act(bias[c] + sum_j w[j, c] x[t - taps + 1 + j, c])`
//!
//! A unit is a vector of channels, for all rows.

use crate::kernel::attention::pages::{StatePages, runs};
use crate::kernel::{Launch, Link, Request};
use crate::memory::{Args, Out};
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::conv_tail::{AT, COUNT};
use tabla_core::op::params::conv_tail::Params;
use tabla_core::op::params::{PAGE, STATE_BLOCK};

/// Channels of a unit.
const CHANNELS: usize = 16;

/// Positions per page.
const POSITIONS: usize = PAGE as usize;

/// Inputs of the last positions, one row for each of `depth` positions and state.
struct Ring<'a> {
    rows: Out<'a, f32>,
    pages: StatePages<'a>,
    depth: usize,
    channels: usize,
    units: Range<usize>,
}

impl Ring<'_> {
    /// Row of the input at a position, in the state after position `page_of`.
    #[inline(always)]
    fn row(&mut self, page_of: usize, position: usize) -> &mut [f32] {
        let row = self.pages.state(page_of) * self.depth + position % self.depth;
        self.rows
            .panels(row, self.channels, self.units.clone(), CHANNELS)
    }
}

impl Kernel for kind::ConvTail {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [channels, taps] = [p.channels, p.taps].map(|n| n as usize);
        let units = args.range();
        let own = (units.start * CHANNELS).min(channels)..(units.end * CHANNELS).min(channels);
        let (x, w, rows) = (args.f32s(AT.x), args.f32s(AT.w), args.rows(AT.state));
        let bias = (p.biased != 0).then(|| &args.f32s(AT.bias)[own.clone()]);
        let table = args.bytes(AT.pages);
        let context = args.state(AT.state).context as usize;
        let mut y = args.open::<f32>(AT.y);
        let mut scratch = args.open::<f32>(COUNT);
        let mut ring = Ring {
            rows: args.open::<f32>(AT.conv_state),
            pages: StatePages::of(table, 0, [p.stride, p.first, p.ring]),
            depth: STATE_BLOCK as usize + taps - 1,
            channels,
            units: units.clone(),
        };
        // Inputs of the positions before the run, the earliest first.
        let earlier = &mut scratch.whole()[..(taps - 1) * own.len()];
        for run in runs(rows, 0..args.active_rows()) {
            let first = &rows[run.start];
            let start = first.position as usize;
            ring.pages = StatePages::of(table, first.sequence, [p.stride, p.first, p.ring]);
            earlier.fill(0.0);
            for j in 1..taps.min(start + 1) {
                let to = &mut earlier[(taps - 1 - j) * own.len()..][..own.len()];
                to.copy_from_slice(ring.row(start - 1, start - j));
            }
            let end = context.min(start + run.len());
            for position in start..end {
                let t = run.start + position - start;
                // The input `j` positions before this one.
                let input = |j: usize| match t.checked_sub(j).filter(|t| *t >= run.start) {
                    Some(t) => &x[t * channels + own.start..][..own.len()],
                    None => &earlier[(taps - 1 + t - run.start - j) * own.len()..][..own.len()],
                };
                if position.is_multiple_of(POSITIONS) {
                    for j in 1..taps.min(position + 1) {
                        ring.row(position, position - j).copy_from_slice(input(j));
                    }
                }
                let y = y.panels(t, channels, units.clone(), CHANNELS);
                match bias {
                    Some(bias) => y.copy_from_slice(bias),
                    None => y.fill(0.0),
                }
                for j in (0..taps).rev() {
                    let w = &w[(taps - 1 - j) * channels + own.start..][..own.len()];
                    for ((y, x), w) in y.iter_mut().zip(input(j)).zip(w) {
                        *y += w * x;
                    }
                }
                if p.silu != 0 {
                    for y in y.iter_mut() {
                        *y /= 1.0 + math::exp(-*y);
                    }
                }
                // Later positions of the pass overwrite the others.
                let page_end = (position / POSITIONS + 1) * POSITIONS;
                if position + ring.depth >= end.min(page_end) {
                    ring.row(position, position).copy_from_slice(input(0));
                }
            }
        }
    }
}

impl Link for kind::ConvTail {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let split = Split::Units((p.channels as usize).div_ceil(CHANNELS));
        let launch = Launch {
            scratch: p.taps as usize * p.channels as usize * size_of::<f32>(),
            ..request.launch::<Self>(split, p.tokens)
        };
        Ok(launch.single_thread_if_small([p.tokens, p.channels]))
    }
}
