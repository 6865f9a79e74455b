//! `y[t, :] = k_cache[row(position[t] - 1)]`
//!
//! A unit is a token.

use super::pages::Pages;
use super::register_tiles::{CacheType, with_cache_type};
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::previous_row::AT;
use tabla_core::op::params::previous_row::Params;

struct PreviousRow<C>(PhantomData<C>);

impl<C: CacheType> Kernel for PreviousRow<C> {
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let width = p.kv_heads as usize * p.head_dim as usize;
        let keys = args.bytes(AT.k_cache);
        let context = args.state(AT.state).context;
        let mut y = args.open::<f32>(AT.y);
        for t in args.units() {
            let row = args.rows(AT.state)[t];
            let y = y.unit(t, width);
            let Some(previous) = row.position.min(context).checked_sub(1) else {
                y.fill(0.0);
                continue;
            };
            let layout = [p.stride, p.first, p.ring];
            let pages = Pages::of(args.bytes(AT.pages), row.sequence, layout);
            let row = &keys[pages.row(previous as usize) * C::row_bytes(width)..];
            for (i, y) in y.iter_mut().enumerate() {
                *y = C::number(row, width, i);
            }
        }
    }
}

impl Link for kind::PreviousRow {
    fn link(request: &Request<'_>) -> Result<Launch> {
        with_cache_type!(request, |C| of_cache::<C>(request))
    }
}

fn of_cache<C: CacheType>(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    request.scalar::<PreviousRow<C>>(Split::Rows(1), p.tokens)
}
