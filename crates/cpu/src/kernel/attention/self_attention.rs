//! `y[t, h, :] = softmax(scale q[t, h, :] . k[seen, h / group, :]) v[seen, h / group, :]`
//!
//! A unit is a tile of tokens and a key head.

use super::key_blocks::{self, HeadGroup, Queries, TOKENS};
use super::register_tiles::{Cache, F32};
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, Uses};
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::self_attention::{AT, COUNT};
use tabla_core::op::params::Row;
use tabla_core::op::params::self_attention::Params;

impl Kernel for kind::SelfAttention {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let heads = p.heads as usize / kv_heads;
        let width = heads * head;
        let tile = key_blocks::tile_tokens(heads);
        let q = args.f32s(AT.q);
        let [k, v] = [args.bytes(AT.k), args.bytes(AT.v)];
        let rows = &args.rows(AT.state)[..args.active_rows()];
        let mut y = args.open::<f32>(AT.y);
        let mut floats = args.open::<f32>(COUNT);
        for unit in args.units() {
            let (mut first, at) = (unit / kv_heads * tile, unit % kv_heads);
            let end = rows.len().min(first + tile);
            while first < end {
                let tokens = first..first + in_sequence(&rows[first..end]);
                // Row of position 0. Positions are relative to it, so that the result does not
                // depend on where the sequence is in the batch.
                let origin = first - before(rows, first);
                let mut ranges = [const { 0..0 }; TOKENS];
                for (seen_by, token) in ranges.iter_mut().zip(tokens.clone()) {
                    let Range { start, end } = seen(rows, token, p.reach as usize);
                    *seen_by = start - origin..end - origin;
                }
                let [keys, values] = [k, v].map(|all| {
                    let bytes = &all[origin * kv_heads * head * size_of::<f32>()..];
                    Cache::<F32>::of(bytes, at..at + 1, [kv_heads, head])
                });
                let group = HeadGroup {
                    head,
                    unit_kv_heads: 1,
                    heads,
                    scale: p.scale,
                    softcap: 0.0,
                    keys,
                    values,
                    pages: None,
                };
                let queries = Queries {
                    q: &q[(first * kv_heads + at) * width..],
                    stride: kv_heads * width,
                    seen: &ranges[..tokens.len()],
                };
                first = tokens.end;
                let positions = key_blocks::enclosing_range(queries.seen);
                let partials = group.attend(s, queries, &positions, floats.whole());
                let size = heads * key_blocks::partial_len(head);
                for (token, partials) in tokens.zip(partials.chunks_exact(size)) {
                    key_blocks::divide(
                        partials,
                        head,
                        None,
                        y.tiled(token, at, [tile, kv_heads], width),
                    );
                }
            }
        }
    }
}

/// Rows of the sequence before row `t`. Positions count from the first row of a sequence.
#[inline(always)]
pub(crate) fn before(rows: &[Row], t: usize) -> usize {
    t.min(rows[t].position as usize)
}

/// Number of leading rows that belong to the same sequence.
#[inline(always)]
fn in_sequence(rows: &[Row]) -> usize {
    let next = rows[1..].iter().position(|row| row.position == 0);
    next.map_or(rows.len(), |next| next + 1)
}

/// Rows of the sequence of row `t`, at most `reach` before and after it.
#[inline(always)]
pub(crate) fn seen(rows: &[Row], t: usize, reach: usize) -> Range<usize> {
    let after = reach.min(rows.len() - t - 1);
    t - before(rows, t).min(reach)..t + in_sequence(&rows[t..=t + after])
}

impl Link for kind::SelfAttention {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        key_blocks::check_heads([p.heads, p.kv_heads, p.head_dim])?;
        let request = &key_blocks::whole_vectors(request, p.head_dim)?;
        let shape = [p.tokens, p.heads, p.kv_heads, p.head_dim];
        let launch = key_blocks::launch::<Self>(request, shape, 1);
        let elements = [p.heads / p.kv_heads, p.head_dim, p.tokens, p.tokens];
        Ok(launch.single_thread_if_small(elements))
    }
}
