//! Functions of f32 without branches, so that loops over them are vectorized. The result has the
//! same bits at every level because nothing is fused or reordered.

use super::vectors::Simd;

/// Adding and subtracting this number rounds to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;

/// Upper part of ln 2, exact in 12 bits so that its multiples up to 2^11 are exact (Cephes).
const LN2_HIGH: f32 = 0.693_359_4; // 355 / 512
/// ln 2 minus the upper part.
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Cephes expf: minimax polynomial of `(e^r - 1 - r) / r^2` on `[-ln 2 / 2, ln 2 / 2]`, then the
/// coefficients of 1 and `r`.
const EXP: [f32; 8] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
    1.0,
    1.0,
];

/// `e^x` with a relative error of about 1e-7; arguments are clamped to [-87, 88].
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // The comparisons are false for NaN, which passes through.
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = EXP[0];
    for c in &EXP[1..6] {
        p = p * r + c;
    }
    let y = p * (r * r) + r + 1.0;
    // The low bits of `shifted` are n in two's complement; 127 + n is the exponent.
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    y * power
}

/// [`exp`] in each lane with fused multiply-adds, for arguments of at most 0.
#[inline(always)]
pub(crate) fn exp_lanes<S: Simd>(s: S, x: S::V) -> S::V {
    let x = s.max(s.splat(-87.0), x); // a NaN passes
    let shifted = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.fma(s.splat(-1.0), s.splat(ROUND), shifted);
    let r = s.fma(n, s.splat(-LN2_HIGH), x);
    let r = s.fma(n, s.splat(-LN2_LOW), r);
    let mut p = s.splat(EXP[0]);
    for c in &EXP[1..] {
        p = s.fma(p, r, s.splat(*c));
    }
    s.fma(p, s.exp2i(shifted), s.splat(0.0))
}

/// `ln x` with a relative error of about 1e-7, also near 1, for normal positive `x`.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // Exponent and mantissa, with the mantissa in [sqrt(1/2), sqrt(2)).
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    let e = exponent(bits);
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let p = z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0))));
    let double = s + s;
    e * LN2_HIGH + (double + (double * p + e * LN2_LOW))
}

/// `tanh x` with a relative error of about 2e-7, also near 0.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    // Cephes tanhf: minimax polynomial of (tanh x - x) / x^3 below 0.625.
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_909e-2;
    p = p * z - 5.373_971_5e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328e-1;
    let near = x + x * z * p;
    let far = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// The normal distribution, `(1 + erf(x / sqrt 2)) / 2`, with a relative error of about 6e-7 above
/// -4 and an absolute error of 2e-7 everywhere.
#[inline(always)]
pub fn normal(x: f32) -> f32 {
    // The tail is e^(-x^2 / 2) times a smooth function, approximated as t p(t): minimax of the
    // relative error on [0, 7], 4e-8.
    let t = 1.0 / (1.0 + 0.3 * x.abs());
    let mut p = 0.037_010_11;
    p = p * t - 0.162_526_89;
    p = p * t + 0.215_003_3;
    p = p * t - 0.061_016_99;
    p = p * t + 0.131_995_16;
    p = p * t + 0.099_060_014;
    p = p * t + 0.120_848_13;
    p = p * t + 0.119_627_2;
    let beyond = exp(-0.5 * x * x) * (p * t);
    if x < 0.0 { beyond } else { 1.0 - beyond }
}

#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "an exponent has 9 bits")]
fn exponent(bits: u32) -> f32 {
    (bits.cast_signed() >> 23) as f32
}

/// Rounds to the nearest bf16, ties to even.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let even = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
    // A NaN stays one when the lower half is dropped.
    let quiet = bits | 0x0040_0000;
    f32::from_bits(if x.is_nan() { quiet } else { even })
}

/// Lanes of [`sum`], a multiple of the lanes of every level.
const LANES: usize = 16;

/// The sum of `f` over `x`, per lane and then pairwise over the lanes, in the same order at every
/// level.
#[inline(always)]
pub fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(*x);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += f(*x);
    }
    sum_lanes(lanes)
}

/// The sum of the products of the elements of `x` and `y`, in the order of [`sum`].
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (others, last) = y.as_chunks::<LANES>();
    for (chunk, other) in chunks.iter().zip(others) {
        for (lane, (x, y)) in lanes.iter_mut().zip(chunk.iter().zip(other)) {
            *lane += x * y;
        }
    }
    for (lane, (x, y)) in lanes.iter_mut().zip(rest.iter().zip(last)) {
        *lane += x * y;
    }
    sum_lanes(lanes)
}

#[inline(always)]
fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest element of `x`, ignoring NaN; negative infinity if there is none.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = if *x > *lane { *x } else { *lane };
    }
    lanes
        .into_iter()
        .fold(f32::NEG_INFINITY, |m, x| if x > m { x } else { m })
}
