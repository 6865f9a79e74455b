//! `token[t] = ids[t], position[t] += 1, history[sequence[t], position[t]] = ids[t]`; finished rows
//! move after the active ones, and a row without a token is unchanged

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::exec::state::{FULL, NO_TOKEN, NOT_FINITE, ROWS_OFFSET, STOPPED};
use tabla_core::op::kind;
use tabla_core::op::operands::advance::AT;
use tabla_core::op::params::advance::Params;
use tabla_core::op::params::{Row, Sampler, State};

impl Kernel for kind::Advance {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let ids = bytemuck::cast_slice(args.bytes(AT.ids));
        let live = args.active_rows();
        let samplers = args.samplers(AT.samplers);
        let mut history = args.open::<u32>(AT.history);
        let mut state = args.open::<u8>(AT.state);
        let (state, rows) = state.whole().split_at_mut(ROWS_OFFSET);
        let rows: &mut [Row] = bytemuck::cast_slice_mut(rows);
        let state = bytemuck::from_bytes_mut(state);
        let rows = &mut rows[..live];
        advance(&ids[..live], samplers, state, rows, history.whole());
    }
}

/// Advances every row to its new token and moves finished rows to the end.
pub fn advance(
    ids: &[u32],
    samplers: &[Sampler],
    state: &mut State,
    rows: &mut [Row],
    history: &mut [u32],
) {
    for (row, token) in rows.iter_mut().zip(ids) {
        if *token == NO_TOKEN {
            row.done = NOT_FINITE;
            continue;
        }
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
    state.active_rows = u32::try_from(end).expect("at most the previous number");
    state.step = state.step.wrapping_add(1);
}

impl Link for kind::Advance {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(Launch {
            tokens: p.tokens as usize,
            ..request.single_thread::<Self>()
        })
    }
}
