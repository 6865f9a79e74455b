//! `token[t] = ids[t], position[t] += 1, history[sequence[t], position[t]] = ids[t]`; rows that are
//! done go behind those that live

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::exec::state::{FULL, ROWS_OFFSET, Row, STOPPED, Sampler, State};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::operands::advance::AT;
use tabla_core::op::params::advance::Params;

struct Advance;

impl Kernel for Advance {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let ids = bytemuck::cast_slice(args.bytes(AT.ids));
        let live = args.live();
        let samplers = args.samplers(AT.samplers);
        let mut history = args.open::<u32>(AT.history);
        let mut state = args.open::<u8>(AT.state);
        let (state, rows) = state.whole().split_at_mut(ROWS_OFFSET);
        let rows: &mut [Row] = bytemuck::cast_slice_mut(rows);
        let state = bytemuck::from_bytes_mut(state);
        let rows = &mut rows[..live];
        advance(&ids[..live], samplers, (state, rows), history.whole());
    }
}

/// Moves every row on to its token, and those that are done behind the others.
fn advance(
    ids: &[u32],
    samplers: &[Sampler],
    (state, rows): (&mut State, &mut [Row]),
    history: &mut [u32],
) {
    for (row, token) in rows.iter_mut().zip(ids) {
        row.token = *token;
        row.position = row.position.wrapping_add(1);
        if row.position < state.context {
            let first = row.sequence as usize * state.context as usize;
            history[first + row.position as usize] = *token;
        } else {
            row.done = FULL;
        }
        let sampler = &samplers[row.sequence as usize];
        let stops = sampler.stops.len().min(sampler.stop_count as usize);
        if sampler.stops[..stops].contains(token) {
            row.done = STOPPED;
        }
    }
    let (mut t, mut end) = (0, rows.len());
    while t < end {
        if rows[t].done == 0 {
            t += 1;
        } else {
            end -= 1;
            rows.swap(t, end);
        }
    }
    state.live = u32::try_from(end).expect("no more than there were");
    state.step = state.step.wrapping_add(1);
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(Launch {
        tokens: p.tokens as usize,
        ..request.alone::<Advance>()
    })
}

macro_rules! case {
    ($name:literal, $tokens:literal/$live:literal at $position:literal of $context:literal, $sampler:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            sequence: 1,
            context: $context,
            logits: LogitRows::All,
            emit: |b| b.pick_greedy(50),
            sampler: $sampler,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Running on, stopping, filling the context; runners draw ids below 50.
pub(super) const CASES: &[Case] = &[
    case!("running on", 1/1 at 3 of 8, |_| {}),
    case!("full", 1/1 at 7 of 8, |_| {}),
    case!("rows", 5/3 at 3 of 8, |_| {}),
    case!("full rows", 4/4 at 7 of 8, |_| {}),
    case!("some rows stop", 16/15 at 2 of 8, |s| {
        s.stops = std::array::from_fn(|i| u32::try_from(i).expect("a few"));
        s.stop_count = 25;
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::exec::state::SAMPLER_OFF;

    #[test]
    fn rows_that_are_done_go_behind_the_others() {
        let row = |sequence, position| Row {
            sequence,
            position,
            ..Row::default()
        };
        let mut rows = [row(2, 1), row(0, 0), row(3, 3), row(1, 2)];
        let mut state = State {
            live: 4,
            context: 4,
            ..State::default()
        };
        let mut samplers = [SAMPLER_OFF; 4];
        (samplers[2].stops[0], samplers[2].stop_count) = (9, 1);
        let mut history = [0; 16];
        advance(
            &[9, 5, 6, 7],
            &samplers,
            (&mut state, &mut rows),
            &mut history,
        );
        let of = |row: &Row| (row.sequence, row.token, row.position, row.done);
        let found: Vec<_> = rows.iter().map(of).collect();
        assert_eq!(
            found,
            [(1, 7, 3, 0), (0, 5, 1, 0), (3, 6, 4, FULL), (2, 9, 2, STOPPED)]
        );
        assert_eq!((state.live, state.step), (2, 1));
        assert_eq!(history, [0, 5, 0, 0, 0, 0, 0, 7, 0, 0, 9, 0, 0, 0, 0, 0]);

        (samplers[0].stops[0], samplers[0].stop_count) = (9, 1);
        let ids = [1, 9];
        advance(&ids, &samplers, (&mut state, &mut rows[..2]), &mut history);
        let found: Vec<_> = rows.iter().map(of).collect();
        assert_eq!(
            found,
            [(0, 9, 2, STOPPED), (1, 1, 4, FULL), (3, 6, 4, FULL), (2, 9, 2, STOPPED)]
        );
        assert_eq!((state.live, state.step), (0, 2));
    }

    #[test]
    fn a_stop_token_at_the_last_position_is_a_stop() {
        let mut rows = [Row {
            position: 3,
            ..Row::default()
        }];
        let mut state = State {
            live: 1,
            context: 4,
            ..State::default()
        };
        let samplers = [Sampler {
            stop_count: 1,
            ..SAMPLER_OFF
        }];
        advance(&[0], &samplers, (&mut state, &mut rows), &mut [0; 4]);
        assert_eq!(rows[0].done, STOPPED);
    }
}
