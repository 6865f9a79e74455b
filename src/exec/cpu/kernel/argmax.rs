//! `token = argmax(x)`, lowest id first; advances the state and appends to the history

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd, math};
use crate::exec::state::{FULL, ROWS_OFFSET, Row, STOPPED, State};
use crate::op::shaders::argmax::Params;

struct Argmax;

impl Kernel for Argmax {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let x = &args.f32s(0)[..p.vocab as usize];
        let token = argmax(x);
        let mut history = args.open::<u32>(1);
        let mut state = args.open::<u8>(2);
        let (state, rows) = state.whole().split_at_mut(ROWS_OFFSET);
        let state: &mut State = bytemuck::from_bytes_mut(state);
        let rows: &mut [Row] = bytemuck::cast_slice_mut(rows);
        advance(token, state, &mut rows[0], history.whole());
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

/// Moves on to `token`.
fn advance(token: u32, state: &mut State, row: &mut Row, history: &mut [u32]) {
    row.token = token;
    row.position = row.position.wrapping_add(1);
    state.step = state.step.wrapping_add(1);
    let inside = row.position < state.context;
    match history.get_mut(row.position as usize) {
        Some(slot) if inside => *slot = token,
        _ => state.done = FULL,
    }
    let stops = state.stops.len().min(state.stop_count as usize);
    if state.stops[..stops].contains(&token) {
        state.done = STOPPED;
    }
    if state.done != 0 {
        state.live = 0;
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(request.alone::<Argmax>())
}

macro_rules! case {
    ($name:literal, $vocab:literal, $position:literal of $context:literal, $state:expr) => {
        Case {
            name: $name,
            position: $position,
            context: $context,
            emit: |b| b.pick_greedy($vocab),
            state: $state,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Running on, stopping, filling the context.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 0 of 2, |_| {}),
    case!("running on", 37, 3 of 8, |_| {}),
    case!("past a stretch", 1025, 3 of 8, |_| {}),
    case!("stopped by any", 5, 3 of 8, |state| {
        state.stops[..5].copy_from_slice(&[0, 1, 2, 3, 4]);
        state.stop_count = 5;
    }),
    case!("full", 131, 7 of 8, |_| {}),
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
