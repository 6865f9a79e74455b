//! Searches for the scales of a block. Each candidate scale rounds the numbers, least squares yield
//! the best scale for the rounded numbers, and the candidate with the smallest weighted error is
//! kept.
//!
//! The method is that of ggml-quants.c (`make_qx_quants`, `make_qkx3_quants`, `make_qp_quants`).

use super::chunk::CHUNK;
use half::f16;
use std::array::from_fn;

/// A group whose largest magnitude is below this becomes zeros: no f16 scale could represent it.
const TINY: f32 = 1e-15;

/// Number of candidates of a search.
const CANDIDATES: u8 = 19;

/// How often the best candidate with a minimum is rounded again with its own scale.
const REFINEMENTS: usize = 3;

/// Codes of a block of 32, with scale and minimum.
pub(super) struct FittedBlock {
    pub(super) d: f16,
    pub(super) min: f16,
    pub(super) q: [u8; 32],
}

/// Fits a block with one scale: `x = d (q - half)`.
///
/// Without importance, `d` maps the number of largest magnitude to `-half`, like ggml's reference.
pub(super) fn symmetric(x: &[f32; 32], importance: Option<&[f32; 32]>, half: f32) -> FittedBlock {
    let (d, q) = if importance.is_none() {
        let d = largest(x) / -half;
        (
            d,
            quantize(x, d, |v| (v + half + 0.5).min(2.0 * half - 1.0)),
        )
    } else {
        let weights = weights(x, importance);
        let d = nearest_f16(scale(x, &weights, ends(-half), signed(half)));
        (d, quantize(x, d, |v| signed(half)(v) + half))
    };
    FittedBlock {
        d: f16::from_f32_const(d),
        min: f16::ZERO,
        q,
    }
}

/// Fits a block with a scale and a minimum: `x = d q + min`, `q` from 0 to `top`.
///
/// Without importance, the range of the numbers is divided evenly, like ggml's reference.
pub(super) fn affine(x: &[f32; 32], importance: Option<&[f32; 32]>, top: f32) -> FittedBlock {
    let (d, min, q) = if importance.is_none() {
        let [low, high] = range(x);
        let d = (high - low) / top;
        let above = x.map(|x| x - low);
        (d, low, quantize(&above, d, |v| (v + 0.5).min(top)))
    } else {
        let (d, min) = line(x, &weights(x, importance), top, f32::INFINITY);
        let (d, min) = (nearest_f16(d), nearest_f16(min));
        (d, min, quantize(&x.map(|x| x - min), d, unsigned(top)))
    };
    FittedBlock {
        d: f16::from_f32_const(d),
        min: f16::from_f32_const(min),
        q,
    }
}

/// A super-block of groups with one scale each: `x = d (scale - half_scale) (q - half)`.
pub(super) struct Symmetric {
    pub(super) d: f16,
    pub(super) scales: [u8; 16],
    pub(super) q: [u8; CHUNK],
}

/// Fits a super-block of groups of 16: `q` is below `2 half`, scales are below `2 half_scale`.
pub(super) fn super_symmetric(
    x: &[f32; CHUNK],
    importance: Option<&[f32; CHUNK]>,
    half: f32,
    half_scale: f32,
) -> Symmetric {
    let weights = weights(x, importance);
    let (groups, weights) = (x.as_chunks::<16>().0, weights.as_chunks::<16>().0);
    let fits: [f32; 16] = from_fn(|g| scale(&groups[g], &weights[g], ends(-half), signed(half)));
    let costs: [f32; 16] = from_fn(|g| sum(&weights[g], |w| w));
    let d = scale(&fits, &costs, ends(-half_scale), signed(half_scale));
    let d = nearest_f16(d);
    let scales = quantize(&fits, d, |v| signed(half_scale)(v) + half_scale);
    let mut q = [0; CHUNK];
    for (g, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
        let d = d * (f32::from(scales[g]) - half_scale);
        *q = quantize(&groups[g], d, |v| signed(half)(v) + half);
    }
    Symmetric {
        d: f16::from_f32_const(d),
        scales,
        q,
    }
}

/// A super-block of groups with a scale and a minimum each: `x = d scale q - dmin min`.
pub(super) struct Affine<const GROUPS: usize> {
    pub(super) d: f16,
    pub(super) dmin: f16,
    pub(super) scales: [u8; GROUPS],
    pub(super) mins: [u8; GROUPS],
    pub(super) q: [u8; CHUNK],
}

/// Fits a super-block of groups of `N`: `q` is at most `top`, scales and minima at most
/// `top_scale`.
pub(super) fn super_affine<const GROUPS: usize, const N: usize>(
    x: &[f32; CHUNK],
    importance: Option<&[f32; CHUNK]>,
    top: f32,
    top_scale: f32,
) -> Affine<GROUPS> {
    let weights = weights(x, importance);
    let (groups, weights) = (x.as_chunks::<N>().0, weights.as_chunks::<N>().0);
    let fits: [(f32, f32); GROUPS] = from_fn(|g| line(&groups[g], &weights[g], top, 0.0));
    let costs: [f32; GROUPS] = from_fn(|g| sum(&weights[g], |w| w));
    let shared = |fits: &[f32; GROUPS]| {
        let level = unsigned(top_scale);
        let d = nearest_f16(scale(fits, &costs, ends(top_scale), &level));
        (d, quantize(fits, d, level))
    };
    let (d, scales) = shared(&fits.map(|(d, _)| d));
    let (dmin, mins) = shared(&fits.map(|(_, min)| -min));
    let mut q = [0; CHUNK];
    for (g, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
        let (d, min) = (d * f32::from(scales[g]), dmin * f32::from(mins[g]));
        *q = quantize(&groups[g].map(|x| x + min), d, unsigned(top));
    }
    Affine {
        d: f16::from_f32_const(d),
        dmin: f16::from_f32_const(dmin),
        scales,
        mins,
        q,
    }
}

/// Weight of the squared error of each element: `importance · sqrt(2 mean x² + x²)`. Errors of
/// large numbers have a higher weight.
pub(super) fn weights<const N: usize>(x: &[f32; N], importance: Option<&[f32; N]>) -> [f32; N] {
    let mean = sum(x, |x| x * x) / N as f32;
    from_fn(|i| importance.map_or(1.0, |w| w[i]) * (2.0 * mean + x[i] * x[i]).sqrt())
}

/// Returns the scale `d` for which `d · level(x / d)` is closest to `x`.
///
/// Each candidate maps the number of largest magnitude to one of `ends`. If all weights are zero,
/// the first one is used.
pub(super) fn scale<const N: usize>(
    x: &[f32; N],
    weights: &[f32; N],
    ends: impl Iterator<Item = f32>,
    level: impl Fn(f32) -> f32,
) -> f32 {
    let largest = largest(x);
    if largest.abs() < TINY {
        return 0.0;
    }
    let wx: [f32; N] = from_fn(|i| weights[i] * x[i]);
    let (mut best, mut gain) = (None, 0.0);
    for end in ends {
        let inverse = end / largest;
        let q = x.map(|x| level(x * inverse));
        let (xq, qq) = (dot(&wx, &q), dot(weights, &q.map(|q| q * q)));
        best = best.or(Some(largest / end));
        if xq * xq > gain * qq {
            (best, gain) = (Some(xq / qq), xq * xq / qq);
        }
    }
    best.unwrap_or(0.0)
}

/// Returns the scale `d` and the minimum `m <= highest_min` for which `d q + m`, `q` from 0 to
/// `top`, is closest to `x`.
fn line<const N: usize>(
    x: &[f32; N],
    weights: &[f32; N],
    top: f32,
    highest_min: f32,
) -> (f32, f32) {
    let [low, high] = range(x);
    let low = low.min(highest_min);
    if high - low < TINY {
        return (0.0, low);
    }
    // Relative to the lowest number, to avoid cancellation in the sums.
    let x = x.map(|x| x - low);
    let highest_min = highest_min - low;
    let wx: [f32; N] = from_fn(|i| weights[i] * x[i]);
    let (sum_w, sum_x) = (sum(weights, |w| w), sum(&wx, |wx| wx));
    // Least squares for these levels: scale, minimum, and by how much the error is below Σ w x².
    let fit = |q: &[f32; N]| {
        let wq: [f32; N] = from_fn(|i| weights[i] * q[i]);
        let (sum_q, qq, xq) = (sum(&wq, |wq| wq), dot(&wq, q), dot(&wx, q));
        let determinant = sum_w * qq - sum_q * sum_q;
        let mut m = (qq * sum_x - sum_q * xq) / determinant;
        let mut d = (sum_w * xq - sum_x * sum_q) / determinant;
        if m > highest_min {
            m = highest_min;
            d = (xq - m * sum_q) / qq;
        }
        let gain = 2.0 * (d * xq + m * sum_x - d * m * sum_q) - d * d * qq - m * m * sum_w;
        // If all numbers are on one level, the line is undefined.
        (d, m, if determinant > 0.0 { gain } else { f32::MIN })
    };
    let better = |best: (f32, f32, f32), found: (f32, f32, f32)| {
        if found.2 > best.2 { found } else { best }
    };
    let mut best = (high / top - low / top, 0.0, f32::MIN);
    for end in ends(top) {
        let inverse = end / (high - low);
        best = better(best, fit(&x.map(|x| round(x * inverse).min(top))));
    }
    for _ in 0..REFINEMENTS {
        let (d, m, _) = best;
        let inverse = 1.0 / d;
        best = better(best, fit(&x.map(|x| unsigned(top)((x - m) * inverse))));
    }
    (best.0, best.1 + low)
}

/// `end`, then numbers less than one level away from it on both sides.
fn ends(end: f32) -> impl Iterator<Item = f32> {
    let spacing = 2.0 / f32::from(CANDIDATES);
    (0..CANDIDATES).map(move |i| {
        let distance = f32::from(i.div_ceil(2)) * spacing;
        end + if i % 2 == 0 { distance } else { -distance }
    })
}

/// Rounds to a level from `-half` to `half - 1`.
fn signed(half: f32) -> impl Fn(f32) -> f32 {
    move |v| round(v).clamp(-half, half - 1.0)
}

/// Rounds to a level from 0 to `top`.
fn unsigned(top: f32) -> impl Fn(f32) -> f32 {
    move |v| round(v).clamp(0.0, top)
}

/// Returns the levels of `x` at scale `d`: integers from 0 to 255, rounded or truncated by `level`.
pub(super) fn quantize<const N: usize>(
    x: &[f32; N],
    d: f32,
    level: impl Fn(f32) -> f32,
) -> [u8; N] {
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast is the floor of what `level` yields"
    )]
    x.map(|x| level(x * inverse) as u8)
}

/// Number of largest magnitude; the first one on ties.
pub(super) fn largest<const N: usize>(x: &[f32; N]) -> f32 {
    x.iter()
        .fold(0.0f32, |m, &x| if x.abs() > m.abs() { x } else { m })
}

/// The smallest and the largest number.
fn range<const N: usize>(x: &[f32; N]) -> [f32; 2] {
    let start = [f32::INFINITY, f32::NEG_INFINITY];
    x.iter()
        .fold(start, |[low, high], x| [low.min(*x), high.max(*x)])
}

/// Value of a scale after rounding to f16.
fn nearest_f16(d: f32) -> f32 {
    f16::from_f32_const(d).to_f32_const()
}

/// The nearest integer, ties to even, for numbers within ±2²²: adding 1.5 · 2²³ leaves no bits for
/// a fraction. Unlike `f32::round_ties_even`, it is fast without SSE4.1.
#[inline(always)]
fn round(x: f32) -> f32 {
    const NO_FRACTION: f32 = 12_582_912.0;
    (x + NO_FRACTION) - NO_FRACTION
}

/// Adds up in eight lanes, so that the loop is vectorized.
#[inline(always)]
fn sum<const N: usize>(x: &[f32; N], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; 8];
    for chunk in x.as_chunks::<8>().0 {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += term(*x);
        }
    }
    lanes.iter().sum()
}

#[inline(always)]
fn dot<const N: usize>(a: &[f32; N], b: &[f32; N]) -> f32 {
    let products: [f32; N] = from_fn(|i| a[i] * b[i]);
    sum(&products, |p| p)
}
