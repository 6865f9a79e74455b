//! Norms of rows and of heads of rows.

use super::loops::{Extent, Loop};
use crate::memory::Args;
use crate::simd::math;
use tabla_core::op::kind;
use tabla_core::op::{operands, params};

/// `mean(x^2)`
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
fn mean_square(x: &[f32]) -> f32 {
    math::sum(x, |x| x * x) / x.len() as f32
}

/// `1 / sqrt(mean(x^2) + eps)`
#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (mean_square(x) + eps).sqrt()
}

/// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i]`
impl Loop for kind::RmsNorm {
    fn extent(p: &params::rms_norm::Params) -> Extent {
        Extent::groups([p.groups, p.dim], p.tokens)
    }

    #[inline(always)]
    fn run(p: params::rms_norm::Params, mut args: Args<'_>) {
        use operands::rms_norm::AT;
        let dim = p.dim as usize;
        let (x, w) = (args.f32s(AT.x), &args.f32s(AT.w)[..dim]);
        let mut y = args.open::<f32>(AT.y);
        for unit in args.range() {
            let x = &x[unit * dim..][..dim];
            let scale = inverse_rms(x, p.eps);
            for ((y, x), w) in y.unit(unit, dim).iter_mut().zip(x).zip(w) {
                *y = x * scale * w;
            }
        }
    }
}

/// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i] * silu(gate[t, g, i])`
impl Loop for kind::RmsGate {
    fn extent(p: &params::rms_gate::Params) -> Extent {
        Extent::groups([p.groups, p.dim], p.tokens)
    }

    #[inline(always)]
    fn run(p: params::rms_gate::Params, mut args: Args<'_>) {
        use operands::rms_gate::AT;
        let dim = p.dim as usize;
        let (x, w, gate) = (args.f32s(AT.x), &args.f32s(AT.w)[..dim], args.f32s(AT.gate));
        let mut y = args.open::<f32>(AT.y);
        for unit in args.range() {
            let x = &x[unit * dim..][..dim];
            let gate = &gate[unit * dim..][..dim];
            let scale = inverse_rms(x, p.eps);
            for (((y, x), w), g) in y.unit(unit, dim).iter_mut().zip(x).zip(w).zip(gate) {
                *y = x * scale * w * (g / (1.0 + math::exp(-g)));
            }
        }
    }
}

/// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps)`
impl Loop for kind::UnitNorm {
    fn extent(p: &params::unit_norm::Params) -> Extent {
        Extent::groups([p.groups, p.dim], p.tokens)
    }

    #[inline(always)]
    fn run(p: params::unit_norm::Params, mut args: Args<'_>) {
        use operands::unit_norm::AT;
        let dim = p.dim as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for unit in args.range() {
            let x = &x[unit * dim..][..dim];
            let scale = inverse_rms(x, p.eps);
            for (y, x) in y.unit(unit, dim).iter_mut().zip(x) {
                *y = x * scale;
            }
        }
    }
}

/// `y[t, i] = (x[t, i] - mean(x[t, :])) / sqrt(var(x[t, :]) + eps) * w[i]`
impl Loop for kind::LayerNorm {
    fn extent(p: &params::layer_norm::Params) -> Extent {
        Extent::groups([1, p.dim], p.tokens)
    }

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
    fn run(p: params::layer_norm::Params, mut args: Args<'_>) {
        use operands::layer_norm::AT;
        let dim = p.dim as usize;
        let (x, w) = (args.f32s(AT.x), &args.f32s(AT.w)[..dim]);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let x = &x[t * dim..][..dim];
            let mean = math::sum(x, |x| x) / dim as f32;
            // Two passes: for large, nearly equal numbers, a difference of squares would cancel.
            let variance = math::sum(x, |x| (x - mean) * (x - mean)) / dim as f32;
            let scale = 1.0 / (variance + p.eps).sqrt();
            for ((y, x), w) in y.unit(t, dim).iter_mut().zip(x).zip(w) {
                *y = (x - mean) * scale * w;
            }
        }
    }
}

/// `y[t, i] *= sqrt(mean(x[t, :]^2) / max(mean(y[t, :]^2), floor))`
impl Loop for kind::MatchRms {
    fn extent(p: &params::match_rms::Params) -> Extent {
        Extent::groups([1, p.dim], p.tokens)
    }

    #[inline(always)]
    fn run(p: params::match_rms::Params, mut args: Args<'_>) {
        use operands::match_rms::AT;
        let dim = p.dim as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let y = y.unit(t, dim);
            let own = mean_square(y).max(p.floor);
            let scale = mean_square(&x[t * dim..][..dim]).sqrt() / own.sqrt();
            y.iter_mut().for_each(|y| *y *= scale);
        }
    }
}

/// `y[t, i] = max(y[t, i] - (mean(y[t, :]) + deviations sigma(y[t, :])), 0)`
impl Loop for kind::GaussianTopK {
    fn extent(p: &params::gaussian_top_k::Params) -> Extent {
        Extent::groups([1, p.dim], p.tokens)
    }

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
    fn run(p: params::gaussian_top_k::Params, mut args: Args<'_>) {
        use operands::gaussian_top_k::AT;
        let dim = p.dim as usize;
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let y = y.unit(t, dim);
            let mean = math::sum(y, |y| y) / dim as f32;
            // Two passes, as in a layer norm.
            let variance = math::sum(y, |y| (y - mean) * (y - mean)) / dim as f32;
            let cutoff = mean + p.deviations * variance.sqrt();
            for y in y {
                let over = *y - cutoff;
                *y = if over > 0.0 { over } else { 0.0 };
            }
        }
    }
}
