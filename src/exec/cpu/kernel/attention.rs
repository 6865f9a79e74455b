//! `y[t, h, :] = softmax(scale q[t, h, :] . k[h / group, 0..=position, :]) v[h / group, 0..=position, :]`
//!
//! A unit is a token and a head of keys: all query heads that share the keys are done together,
//! stretch by stretch of positions, so that keys and values come from memory once.

use super::{Launch, PLAIN, Request};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Isa, Kernel, Level, Simd, math};
use crate::exec::cpu::step::Split;
use crate::op::builder::Heads;
use crate::op::shaders::attention::Params;
use std::marker::PhantomData;

/// How the cache stores a number.
trait Stored {
    const BYTES: usize;
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V;
}

struct F32;

impl Stored for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_f32(bytes)
    }
}

struct F16;

impl Stored for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::V {
        s.load_f16(bytes)
    }
}

/// Positions whose keys, or values, stay in the nearest cache while all heads read them.
const STRETCH: usize = 64;

/// Query heads that are done at once.
const TILE: usize = 4;

/// Keys or values of one head.
struct Cache<'a, C> {
    bytes: &'a [u8],
    /// Bytes from a position to the next.
    stride: usize,
    stored: PhantomData<C>,
}

impl<C: Stored> Cache<'_, C> {
    #[inline(always)]
    fn load<S: Simd>(&self, s: S, position: usize, i: usize) -> S::V {
        C::load(s, &self.bytes[position * self.stride + i * C::BYTES..])
    }
}

struct Attention<C>(PhantomData<C>);

impl<C: Stored> Kernel for Attention<C> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [head, kv_heads] = [p.head_dim as usize, p.kv_heads as usize];
        let group = p.heads as usize / kv_heads;
        let stride = kv_heads * head * C::BYTES;
        let q = args.f32s(0);
        let [k, v] = [args.bytes(1), args.bytes(2)];
        let rows = args.rows(4);
        let context = k.len() / stride;
        let mut y = args.open::<f32>(3);
        let mut scratch = args.open::<f32>(5);
        for unit in args.units() {
            let (t, g) = (unit / kv_heads, unit % kv_heads);
            let positions = context.min((rows[t].position as usize).saturating_add(1));
            let first = g * head * C::BYTES;
            let [keys, values] = [k, v].map(|bytes| Cache::<C> {
                bytes: &bytes[first..],
                stride,
                stored: PhantomData,
            });
            let q = &q[unit * group * head..][..group * head];
            let y = y.unit(unit, group * head);
            let scores = &mut scratch.whole()[..group * context];
            for from in (0..positions).step_by(STRETCH) {
                let stretch = from..positions.min(from + STRETCH);
                for_tiles!(group, N, h => {
                    let q: [&[f32]; N] = std::array::from_fn(|i| &q[(h + i) * head..][..head]);
                    for position in stretch.clone() {
                        let dots = dots(s, &keys, position, q);
                        for (i, dot) in dots.into_iter().enumerate() {
                            scores[(h + i) * context + position] = dot * p.scale;
                        }
                    }
                });
            }
            for (y, scores) in y.chunks_exact_mut(head).zip(scores.chunks_exact_mut(context)) {
                softmax(&mut scores[..positions]);
                y.fill(0.0);
            }
            for from in (0..positions).step_by(STRETCH) {
                let stretch = from..positions.min(from + STRETCH);
                for_tiles!(group, N, h => {
                    let weights: [&[f32]; N] =
                        std::array::from_fn(|i| &scores[(h + i) * context..][stretch.clone()]);
                    let y = &mut y[h * head..][..N * head];
                    mix(s, &values, from, weights, y);
                });
            }
        }
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
    position: usize,
    q: [&[f32]; N],
) -> [f32; N] {
    let mut acc = [s.splat(0.0); N];
    for i in (0..q[0].len()).step_by(S::LANES) {
        let k = keys.load(s, position, i);
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

/// `y[h, :] += sum_p weights[h][p] v[from + p, :]`.
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

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let context = request.slots[1].rows as usize;
    let group = (p.heads / p.kv_heads) as usize;
    let isa = if p.head_dim.is_multiple_of(LANES) {
        request.isa
    } else {
        Isa::of(Level::Scalar)?
    };
    let request = &Request { isa, ..*request };
    let split = Split::Dealt(p.kv_heads as usize);
    let elements = p.tokens as usize * context * p.head_dim as usize;
    let launch = match request.variant {
        Some(DType::F32) => request.launch::<Attention<F32>>(split, p.tokens),
        Some(DType::F16) => request.launch::<Attention<F16>>(split, p.tokens),
        other => bail!(Unsupported, "no kernel for a cache of {other:?}"),
    };
    Ok(Launch {
        scratch: group * context * size_of::<f32>(),
        ..launch.of_elements(elements)
    })
}

macro_rules! case {
    ($name:literal, $cache:ident, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $heads:literal/$kv_heads:literal x $head_dim:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            position: $position,
            context: $context,
            cache: DType::$cache,
            emit: |b| {
                let q = b.input("q", $heads * $head_dim);
                let at = Heads {
                    layer: 0,
                    heads: $heads,
                    kv_heads: $kv_heads,
                    head_dim: $head_dim,
                    rope_dim: $head_dim,
                    half_split: true,
                };
                b.attention(at, q, 0.3);
            },
            ..PLAIN
        }
    };
}

/// Groups of 1 to 7, heads that are no whole vectors, several stretches.
pub(super) const CASES: &[Case] = &[
    case!("one", F32, 1/1 at 0 of 1, 1/1 x 1),
    case!("first position", F16, 1/1 at 0 of 8, 4/2 x 16),
    case!("odd head", F32, 3/2 at 4 of 16, 6/2 x 10),
    case!("odd head", F16, 3/3 at 4 of 16, 3/3 x 6),
    case!("group of 4", F16, 2/2 at 30 of 64, 8/2 x 64),
    case!("group of 7", F32, 5/4 at 3 of 32, 14/2 x 32),
    case!("stretches", F16, 1/1 at 200 of 256, 6/2 x 48),
    case!("exactly a stretch", F16, 2/2 at 62 of 128, 4/4 x 80),
    case!("many", F16, 67/61 at 70 of 140, 8/4 x 16),
];
