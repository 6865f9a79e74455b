//! `y[t, h, :] = softmax(scale q[t, h, :] . k[seen, h / group, :]) v[seen, h / group, :]`
//!
//! A unit is a token and a head of keys.

use super::attend::{self, Cache, F32, Group};
use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::exec::state::Row;
use crate::op::shaders::self_attention::Params;
use std::ops::Range;

struct SelfAttention;

impl Kernel for SelfAttention {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let width = p.heads as usize / kv_heads * head;
        let q = args.f32s(0);
        let [k, v] = [args.bytes(1), args.bytes(2)];
        let rows = &args.rows(4)[..args.live()];
        let mut y = args.open::<f32>(3);
        let mut scratch = args.open::<f32>(5);
        for unit in args.units() {
            let (t, g) = (unit / kv_heads, unit % kv_heads);
            let [keys, values] = [k, v].map(|bytes| Cache::<F32>::head(bytes, [g, kv_heads, head]));
            let group = Group {
                head,
                scale: p.scale,
                softcap: 0.0,
                keys,
                values,
                rows: [seen(rows, t, p.reach as usize), 0..0],
            };
            let q = &q[unit * width..][..width];
            group.attend(s, q, scratch.whole(), y.unit(unit, width));
        }
    }
}

/// The rows of the sequence of row `t` from `reach` before it to `reach` behind it. Positions
/// count from the first row of a sequence.
fn seen(rows: &[Row], t: usize, reach: usize) -> Range<usize> {
    let before = reach.min(rows[t].position as usize).min(t);
    let behind = reach.min(rows.len() - t - 1);
    let behind = &rows[t + 1..][..behind];
    let next = behind.iter().position(|row| row.position == 0);
    t - before..t + 1 + next.unwrap_or(behind.len())
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let shape = [p.tokens, p.kv_heads, p.head_dim];
    let scores = (p.heads / p.kv_heads * p.tokens) as usize;
    let launch = attend::launch::<SelfAttention>(request, shape, scores)?;
    let elements = scores * p.tokens as usize * p.head_dim as usize;
    Ok(launch.of_elements(elements))
}

macro_rules! case {
    ($name:literal, $tokens:literal/$live:literal by $sequence:expr,
     $heads:literal/$kv_heads:literal x $head_dim:literal, reach $reach:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: $sequence,
            emit: |b| {
                let q = b.input("q", $heads * $head_dim);
                let k = b.input("k", $kv_heads * $head_dim);
                let v = b.input("v", $kv_heads * $head_dim);
                let heads = [$heads, $kv_heads, $head_dim];
                b.self_attention(heads, [q, k, v], 0.3, $reach);
            },
            ..PLAIN
        }
    };
}

/// One sequence and several, the last cut short, single rows, reaches within and over them.
pub(super) const CASES: &[Case] = &[
    case!("one row", 1/1 by 9, 2/1 x 2, reach u32::MAX),
    case!("one sequence", 67/61 by 100, 4/4 x 16, reach u32::MAX),
    case!("sequences", 40/37 by 13, 6/2 x 10, reach u32::MAX),
    case!("stretches", 160/160 by 150, 5/1 x 32, reach u32::MAX),
    case!("single rows", 5/4 by 1, 3/3 x 16, reach u32::MAX),
    case!("near rows", 50/49 by 20, 6/3 x 16, reach 4),
    case!("itself alone", 5/5 by 3, 2/2 x 6, reach 0),
    case!("reach over the end", 30/30 by 100, 2/1 x 48, reach 20),
];
