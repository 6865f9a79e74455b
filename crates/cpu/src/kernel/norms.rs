//! Norms of rows and of heads of rows.

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::op::{operands, params};

/// Launch of a kernel whose unit is one of `groups` groups of a row, `dim` elements each.
fn by_group<K: Kernel>(request: &Request<'_>, [dim, groups, tokens]: [u32; 3]) -> Launch {
    let elements = tokens as usize * groups as usize * dim as usize;
    let launch = request.launch::<K>(Split::Rows(groups as usize), tokens);
    launch.single_thread_if_small(elements)
}

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
struct RmsNorm;

impl Kernel for RmsNorm {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::rms_norm::AT;
        let p: params::rms_norm::Params = args.params();
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

pub(super) fn rms_norm(request: &Request<'_>) -> Launch {
    let p: params::rms_norm::Params = request.params();
    by_group::<RmsNorm>(request, [p.dim, p.groups, p.tokens])
}

/// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps) * w[i] * silu(gate[t, g, i])`
struct RmsGate;

impl Kernel for RmsGate {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::rms_gate::AT;
        let p: params::rms_gate::Params = args.params();
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

pub(super) fn rms_gate(request: &Request<'_>) -> Launch {
    let p: params::rms_gate::Params = request.params();
    by_group::<RmsGate>(request, [p.dim, p.groups, p.tokens])
}

/// `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps)`
struct UnitNorm;

impl Kernel for UnitNorm {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::unit_norm::AT;
        let p: params::unit_norm::Params = args.params();
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

pub(super) fn unit_norm(request: &Request<'_>) -> Launch {
    let p: params::unit_norm::Params = request.params();
    by_group::<UnitNorm>(request, [p.dim, p.groups, p.tokens])
}

/// `y[t, i] = (x[t, i] - mean(x[t, :])) / sqrt(var(x[t, :]) + eps) * w[i]`
struct LayerNorm;

impl Kernel for LayerNorm {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::layer_norm::AT;
        let p: params::layer_norm::Params = args.params();
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

pub(super) fn layer_norm(request: &Request<'_>) -> Launch {
    let p: params::layer_norm::Params = request.params();
    by_group::<LayerNorm>(request, [p.dim, 1, p.tokens])
}

/// `y[t, i] *= sqrt(mean(x[t, :]^2) / max(mean(y[t, :]^2), floor))`
struct MatchRms;

impl Kernel for MatchRms {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::match_rms::AT;
        let p: params::match_rms::Params = args.params();
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

pub(super) fn match_rms(request: &Request<'_>) -> Launch {
    let p: params::match_rms::Params = request.params();
    by_group::<MatchRms>(request, [p.dim, 1, p.tokens])
}

/// `y[t, i] = max(y[t, i] - (mean(y[t, :]) + deviations sigma(y[t, :])), 0)`
struct GaussianTopK;

impl Kernel for GaussianTopK {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::gaussian_top_k::AT;
        let p: params::gaussian_top_k::Params = args.params();
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

pub(super) fn gaussian_top_k(request: &Request<'_>) -> Launch {
    let p: params::gaussian_top_k::Params = request.params();
    by_group::<GaussianTopK>(request, [p.dim, 1, p.tokens])
}
