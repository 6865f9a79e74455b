//! Attention of the heads that share keys and values: what causal and mutual attention have in
//! common.
//!
//! All query heads of a group are done together, stretch by stretch of rows, so that keys and
//! values come from memory once.

use super::{Launch, Request};
use crate::error::Result;
use crate::exec::cpu::simd::{Isa, Kernel, Level, Simd, math};
use crate::exec::cpu::step::Split;
use std::marker::PhantomData;
use std::ops::Range;

/// How keys and values are stored.
pub(super) trait Stored {
    const BYTES: usize;
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V;
}

pub(super) struct F32;

impl Stored for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_f32(bytes)
    }
}

pub(super) struct F16;

impl Stored for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_f16(bytes)
    }
}

/// Rows whose keys, or values, stay in the nearest cache while all heads read them.
const STRETCH: usize = 64;

/// Query heads that are done at once.
const TILE: usize = 4;

/// Keys or values of one head.
#[derive(Clone, Copy)]
pub(super) struct Cache<'a, C> {
    bytes: &'a [u8],
    /// Bytes from a row to the next.
    stride: usize,
    stored: PhantomData<C>,
}

impl<'a, C: Stored> Cache<'a, C> {
    /// Head `at` of `[rows, heads, head]`.
    #[inline(always)]
    pub(super) fn head(bytes: &'a [u8], [at, heads, head]: [usize; 3]) -> Self {
        Self {
            bytes: &bytes[at * head * C::BYTES..],
            stride: heads * head * C::BYTES,
            stored: PhantomData,
        }
    }

    #[inline(always)]
    fn load<S: Simd>(&self, s: S, row: usize, i: usize) -> S::V {
        C::load(s, &self.bytes[row * self.stride + i * C::BYTES..])
    }
}

/// What the query heads of a group have in common.
pub(super) struct Group<'a, C> {
    /// Elements of a head.
    pub(super) head: usize,
    /// What products are multiplied by.
    pub(super) scale: f32,
    /// What scores are bent towards at most; 0: they stay.
    pub(super) softcap: f32,
    pub(super) keys: Cache<'a, C>,
    pub(super) values: Cache<'a, C>,
    /// The rows that are looked at, one range behind the other.
    pub(super) rows: [Range<usize>; 2],
}

impl<C: Stored> Group<'_, C> {
    /// `y[h, :] = softmax(scale q[h, :] . k[rows, :]) v[rows, :]`; `scratch` has room for a
    /// score of every row and head.
    #[inline(always)]
    pub(super) fn attend<S: Simd>(&self, s: S, q: &[f32], scratch: &mut [f32], y: &mut [f32]) {
        let head = self.head;
        let group = q.len() / head;
        let count = self.rows.iter().map(Range::len).sum();
        let scores = &mut scratch[..group * count];
        for (first, stretch) in self.stretches() {
            for_tiles!(group, N, h => {
                let q: [&[f32]; N] = std::array::from_fn(|i| &q[(h + i) * head..][..head]);
                for (at, row) in (first..).zip(stretch.clone()) {
                    let dots = dots(s, &self.keys, row, q);
                    for (i, dot) in dots.into_iter().enumerate() {
                        scores[(h + i) * count + at] = dot * self.scale;
                    }
                }
            });
        }
        for (y, scores) in y.chunks_exact_mut(head).zip(scores.chunks_exact_mut(count)) {
            if self.softcap > 0.0 {
                bend(scores, self.softcap);
            }
            softmax(scores);
            y.fill(0.0);
        }
        for (first, stretch) in self.stretches() {
            for_tiles!(group, N, h => {
                let weights: [&[f32]; N] = std::array::from_fn(|i| {
                    &scores[(h + i) * count + first..][..stretch.len()]
                });
                let y = &mut y[h * head..][..N * head];
                mix(s, &self.values, stretch.start, weights, y);
            });
        }
    }

    /// The rows in stretches, each behind how many come before it.
    #[inline(always)]
    fn stretches(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<'_, C> {
        let before = [0, self.rows[0].len()];
        self.rows.iter().zip(before).flat_map(|(rows, before)| {
            rows.clone().step_by(STRETCH).map(move |from| {
                let stretch = from..rows.end.min(from + STRETCH);
                (before + from - rows.start, stretch)
            })
        })
    }
}

/// Runs the body for tiles of heads: `N` of them from `h` on.
macro_rules! for_tiles {
    ($group:expr, $n:ident, $h:ident => $body:block) => {{
        let mut $h = 0;
        while $h + TILE <= $group {
            const $n: usize = TILE;
            $body
            $h += TILE;
        }
        while $h + 2 <= $group {
            const $n: usize = 2;
            $body
            $h += 2;
        }
        while $h < $group {
            const $n: usize = 1;
            $body
            $h += 1;
        }
    }};
}
use for_tiles;

#[inline(always)]
fn dots<S: Simd, C: Stored, const N: usize>(
    s: S,
    keys: &Cache<'_, C>,
    row: usize,
    q: [&[f32]; N],
) -> [f32; N] {
    let mut acc = [s.splat(0.0); N];
    for i in (0..q[0].len()).step_by(S::LANES) {
        let k = keys.load(s, row, i);
        for (acc, q) in acc.iter_mut().zip(q) {
            *acc = s.fma(s.load(&q[i..]), k, *acc);
        }
    }
    let mut dots = [0.0; N];
    for (dot, acc) in dots.iter_mut().zip(acc) {
        *dot = s.sum(acc);
    }
    dots
}

/// `x = cap tanh(x / cap)`.
#[inline(always)]
fn bend(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * math::tanh(*x / cap);
    }
}

/// `x = e^(x - max) / sum`.
#[inline(always)]
fn softmax(x: &mut [f32]) {
    let max = math::max(x);
    for x in x.iter_mut() {
        *x = math::exp(*x - max);
    }
    let scale = 1.0 / math::sum(x, |x| x);
    for x in x {
        *x *= scale;
    }
}

/// `y[h, :] += sum_r weights[h][r] v[from + r, :]`.
#[inline(always)]
fn mix<S: Simd, C: Stored, const N: usize>(
    s: S,
    values: &Cache<'_, C>,
    from: usize,
    weights: [&[f32]; N],
    y: &mut [f32],
) {
    let head = y.len() / N;
    let mut i = 0;
    while i + 2 * S::LANES <= head {
        columns::<S, C, N, 2>(s, (values, from, i), weights, y);
        i += 2 * S::LANES;
    }
    if i < head {
        columns::<S, C, N, 1>(s, (values, from, i), weights, y);
    }
}

/// The same for `J` vectors of columns from `i` on.
#[inline(always)]
fn columns<S: Simd, C: Stored, const N: usize, const J: usize>(
    s: S,
    (values, from, i): (&Cache<'_, C>, usize, usize),
    weights: [&[f32]; N],
    y: &mut [f32],
) {
    let head = y.len() / N;
    let at = |h: usize, j: usize| h * head + i + j * S::LANES;
    let mut acc = [[s.splat(0.0); J]; N];
    for h in 0..N {
        for j in 0..J {
            acc[h][j] = s.load(&y[at(h, j)..]);
        }
    }
    for p in 0..weights[0].len() {
        let mut v = [s.splat(0.0); J];
        for (j, v) in v.iter_mut().enumerate() {
            *v = values.load(s, from + p, i + j * S::LANES);
        }
        for (acc, weights) in acc.iter_mut().zip(weights) {
            let weight = s.splat(weights[p]);
            for (acc, v) in acc.iter_mut().zip(v) {
                *acc = s.fma(weight, v, *acc);
            }
        }
    }
    for (h, acc) in acc.into_iter().enumerate() {
        for (j, acc) in acc.into_iter().enumerate() {
            s.store(&mut y[at(h, j)..], acc);
        }
    }
}

/// Lanes of the widest vector: heads of other sizes go the scalar way.
const LANES: u32 = 16;

/// How a kernel over heads of this size is run: `units` heads of keys for every row, each with
/// room for `scores`.
pub(super) fn launch<K: Kernel>(
    request: &Request<'_>,
    [tokens, units, head_dim]: [u32; 3],
    scores: usize,
) -> Result<Launch> {
    let isa = if head_dim.is_multiple_of(LANES) {
        request.isa
    } else {
        Isa::of(Level::Scalar)?
    };
    let request = &Request { isa, ..*request };
    Ok(Launch {
        scratch: scores * size_of::<f32>(),
        ..request.launch::<K>(Split::Dealt(units as usize), tokens)
    })
}
