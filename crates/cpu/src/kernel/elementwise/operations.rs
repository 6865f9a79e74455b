//! Operations on elements and rows of activations, one loop each.

use super::activation::{self, ActivationFn, ActivationLoop};
use super::loops::{Extent, Loop};
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, Uses, math};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::{operands, params};

/// `y[t, i] += scale * x[t, i]`
impl Loop for kind::Add {
    fn extent(p: &params::add::Params) -> Extent {
        Extent::elements(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::add::Params, mut args: Args<'_>) {
        use operands::add::AT;
        let x = &args.f32s(AT.x)[args.range()];
        for (y, x) in args.open::<f32>(AT.y).units(1).iter_mut().zip(x) {
            *y += p.scale * x;
        }
    }
}

/// `y[t, i] *= factor`
impl Loop for kind::Scale {
    fn extent(p: &params::scale::Params) -> Extent {
        Extent::elements(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::scale::Params, mut args: Args<'_>) {
        use operands::scale::AT;
        for y in args.open::<f32>(AT.y).units(1) {
            *y *= p.factor;
        }
    }
}

/// `y[t, i] *= 1 + beta ln(1 + floor(position[t] / length))`
impl Loop for kind::ScaleAt {
    fn extent(p: &params::scale_at::Params) -> Extent {
        Extent::rows(p.dim, p.tokens)
    }

    #[inline(always)]
    #[expect(
        clippy::cast_precision_loss,
        reason = "the rounding hardly changes a logarithm"
    )]
    fn run(p: params::scale_at::Params, mut args: Args<'_>) {
        use operands::scale_at::AT;
        let rows = args.rows(AT.state);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let steps = (rows[t].position / p.length) as f32;
            let factor = 1.0 + p.beta * math::ln(1.0 + steps);
            for y in y.unit(t, p.dim as usize) {
                *y *= factor;
            }
        }
    }
}

/// `y[t, i] = cap * tanh(y[t, i] / cap)`
impl Loop for kind::SoftCap {
    fn extent(p: &params::soft_cap::Params) -> Extent {
        Extent::elements(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::soft_cap::Params, mut args: Args<'_>) {
        use operands::soft_cap::AT;
        for y in args.open::<f32>(AT.y).units(1) {
            *y = p.cap * math::tanh(*y / p.cap);
        }
    }
}

/// `y[t, i] = act(y[t, i])`
impl ActivationLoop for kind::Activate {
    fn activation(p: &params::activate::Params) -> u32 {
        p.activation
    }

    fn extent(p: &params::activate::Params) -> Extent {
        Extent::elements(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run<F: ActivationFn>(_: params::activate::Params, mut args: Args<'_>) {
        use operands::activate::AT;
        for y in args.open::<f32>(AT.y).units(1) {
            *y = F::of(*y);
        }
    }
}

impl Link for kind::Activate {
    fn link(request: &Request<'_>) -> Result<Launch> {
        activation::link::<Self>(request)
    }
}

/// `y[t, i] = act(gate[t, i]) * up[t, i]`
impl ActivationLoop for kind::Glu {
    fn activation(p: &params::glu::Params) -> u32 {
        p.activation
    }

    fn extent(p: &params::glu::Params) -> Extent {
        Extent::elements(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run<F: ActivationFn>(_: params::glu::Params, mut args: Args<'_>) {
        use operands::glu::AT;
        let range = args.range();
        let gate = &args.f32s(AT.gate)[range.clone()];
        let up = &args.f32s(AT.up)[range];
        let mut y = args.open::<f32>(AT.y);
        for ((y, g), u) in y.units(1).iter_mut().zip(gate).zip(up) {
            *y = F::of(*g) * u;
        }
    }
}

impl Link for kind::Glu {
    fn link(request: &Request<'_>) -> Result<Launch> {
        activation::link::<Self>(request)
    }
}

/// `ln(1 + e^x)`. The quotient corrects the rounding of `1 + e` (Kahan).
#[inline(always)]
fn softplus(x: f32) -> f32 {
    let e = math::exp(-x.abs());
    let u = 1.0 + e;
    let ln = if u == 1.0 {
        e
    } else {
        math::ln(u) * (e / (u - 1.0))
    };
    ln + if x > 0.0 { x } else { 0.0 }
}

/// `y[t, h] = rate[h] softplus(a[t, h] + bias[h])`, `y[t, heads + h] = sigmoid(b[t, h])`
impl Loop for kind::DeltaGates {
    fn extent(p: &params::delta_gates::Params) -> Extent {
        Extent::rows(p.heads, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::delta_gates::Params, mut args: Args<'_>) {
        use operands::delta_gates::AT;
        let heads = p.heads as usize;
        let [a, b] = [AT.a, AT.b].map(|i| args.f32s(i));
        let [rate, bias] = [AT.rate, AT.bias].map(|i| &args.f32s(i)[..heads]);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let (gates, betas) = y.unit(t, 2 * heads).split_at_mut(heads);
            let a = &a[t * heads..][..heads];
            for (((y, a), rate), bias) in gates.iter_mut().zip(a).zip(rate).zip(bias) {
                *y = rate * softplus(a + bias);
            }
            for (y, b) in betas.iter_mut().zip(&b[t * heads..][..heads]) {
                *y = 1.0 / (1.0 + math::exp(-b));
            }
        }
    }
}

/// `y[t, h] = rate[h] dt`, `y[t, heads + h] = dt`, `dt = clamp(softplus(x[t, h] + bias[h]), low, high)`
impl Loop for kind::SsmGates {
    fn extent(p: &params::ssm_gates::Params) -> Extent {
        Extent::rows(p.heads, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::ssm_gates::Params, mut args: Args<'_>) {
        use operands::ssm_gates::AT;
        let heads = p.heads as usize;
        let x = args.f32s(AT.x);
        let [rate, bias] = [AT.rate, AT.bias].map(|i| &args.f32s(i)[..heads]);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let (gates, steps) = y.unit(t, 2 * heads).split_at_mut(heads);
            let x = &x[t * heads..][..heads];
            for ((dt, x), bias) in steps.iter_mut().zip(x).zip(bias) {
                *dt = softplus(x + bias).max(p.low).min(p.high);
            }
            for ((y, dt), rate) in gates.iter_mut().zip(&*steps).zip(rate) {
                *y = rate * dt;
            }
        }
    }
}

/// `y[t, s, i] = act(x[t, s, i]) * x[t, s, dim + i]`
impl ActivationLoop for kind::GluHalves {
    fn activation(p: &params::glu_halves::Params) -> u32 {
        p.activation
    }

    fn extent(p: &params::glu_halves::Params) -> Extent {
        Extent::groups([p.groups, p.dim], p.tokens)
    }

    #[inline(always)]
    fn run<F: ActivationFn>(p: params::glu_halves::Params, mut args: Args<'_>) {
        use operands::glu_halves::AT;
        let dim = p.dim as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for group in args.range() {
            let (gate, up) = x[2 * group * dim..][..2 * dim].split_at(dim);
            for ((y, g), u) in y.unit(group, dim).iter_mut().zip(gate).zip(up) {
                *y = F::of(*g) * u;
            }
        }
    }
}

impl Link for kind::GluHalves {
    fn link(request: &Request<'_>) -> Result<Launch> {
        activation::link::<Self>(request)
    }
}

/// `y[t, i] = g sigmoid(alpha g) (u + 1)` with `g = min(gate, limit)`, `u = clamp(up, -limit, limit)`
impl Loop for kind::GluClamped {
    const USES: Uses = Uses::Vectors;

    fn extent(p: &params::glu_clamped::Params) -> Extent {
        Extent::elements(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::glu_clamped::Params, mut args: Args<'_>) {
        use operands::glu_clamped::AT;
        let limit = p.limit;
        let value = |g: f32, u: f32| {
            let g = if g > limit { limit } else { g };
            let u = u.clamp(-limit, limit);
            g / (1.0 + math::exp(-p.alpha * g)) * (u + 1.0)
        };
        let range = args.range();
        let [gate, up] = [AT.gate, AT.up].map(|i| args.f32s(i));
        let mut y = args.open::<f32>(AT.y);
        let y = y.units(1).iter_mut();
        // Loops over slices become vector instructions.
        if p.stride == 1 {
            for (y, (g, u)) in y.zip(gate[range.clone()].iter().zip(&up[range])) {
                *y = value(*g, *u);
            }
        } else {
            // Elements of the gate and of the up projection in turn.
            let [gate, up] = [gate, up].map(|x| &x.as_chunks::<2>().0[range.clone()]);
            for (y, (g, u)) in y.zip(gate.iter().zip(up)) {
                *y = value(g[0], u[1]);
            }
        }
    }
}

/// `y[t, s, i] += b[ids[t, s], i]`
impl Loop for kind::AddExpertBias {
    /// A unit is a selected expert of a token.
    fn extent(p: &params::add_expert_bias::Params) -> Extent {
        Extent::groups([p.k, p.dim], p.tokens)
    }

    #[inline(always)]
    fn run(p: params::add_expert_bias::Params, mut args: Args<'_>) {
        use operands::add_expert_bias::AT;
        let dim = p.dim as usize;
        let b = args.f32s(AT.b);
        let ids: &[u32] = bytemuck::cast_slice(args.bytes(AT.ids));
        let mut y = args.open::<f32>(AT.y);
        for unit in args.units() {
            // As in products, an id out of range has no effect.
            let Some(b) = b.chunks_exact(dim).nth(ids[unit] as usize) else {
                continue;
            };
            for (y, b) in y.unit(unit, dim).iter_mut().zip(b) {
                *y += b;
            }
        }
    }
}

/// `y[t, i] += b[i]`
impl Loop for kind::AddBias {
    fn extent(p: &params::add_bias::Params) -> Extent {
        Extent::rows(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::add_bias::Params, mut args: Args<'_>) {
        use operands::add_bias::AT;
        let dim = p.dim as usize;
        let b = &args.f32s(AT.b)[..dim];
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            for (y, b) in y.unit(t, dim).iter_mut().zip(b) {
                *y += b;
            }
        }
    }
}

/// `y[t, i] *= w[i mod len]`
impl Loop for kind::Mul {
    fn extent(p: &params::mul::Params) -> Extent {
        Extent::rows(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::mul::Params, mut args: Args<'_>) {
        use operands::mul::AT;
        let (dim, len) = (p.dim as usize, p.len as usize);
        let w = &args.f32s(AT.w)[..len];
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let y = y.unit(t, dim);
            if let [factor] = w {
                y.iter_mut().for_each(|y| *y *= factor);
                continue;
            }
            for y in y.chunks_exact_mut(len) {
                for (y, w) in y.iter_mut().zip(w) {
                    *y *= w;
                }
            }
        }
    }
}

/// `y[t, g, i] = x[t, g, offset + i]`
impl Loop for kind::Columns {
    fn extent(p: &params::columns::Params) -> Extent {
        Extent::rows(p.groups.saturating_mul(p.dim), p.tokens)
    }

    #[inline(always)]
    fn run(p: params::columns::Params, mut args: Args<'_>) {
        use operands::columns::AT;
        let [width, offset, dim] = [p.width, p.offset, p.dim].map(|n| n as usize);
        let groups = p.groups as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let x = x[t * groups * width..].chunks_exact(width);
            let y = y.unit(t, groups * dim).chunks_exact_mut(dim);
            y.zip(x)
                .for_each(|(y, x)| y.copy_from_slice(&x[offset..][..dim]));
        }
    }
}

/// `y[t, i] = x[t, index[i]]`, -inf where the index is negative
impl Loop for kind::PickColumns {
    fn extent(p: &params::pick_columns::Params) -> Extent {
        Extent::rows(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::pick_columns::Params, mut args: Args<'_>) {
        use operands::pick_columns::AT;
        let [width, dim] = [p.width, p.dim].map(|n| n as usize);
        let (x, index) = (args.f32s(AT.x), &args.f32s(AT.index)[..dim]);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let x = &x[t * width..][..width];
            for (y, column) in y.unit(t, dim).iter_mut().zip(index) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "an integer that is not negative"
                )]
                let picked = (*column >= 0.0).then(|| x.get(*column as usize));
                *y = picked.flatten().copied().unwrap_or(f32::NEG_INFINITY);
            }
        }
    }
}

/// `y[t, i] = x[t, i]`
impl Loop for kind::Transfer {
    fn extent(p: &params::transfer::Params) -> Extent {
        Extent::rows(p.dim, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::transfer::Params, mut args: Args<'_>) {
        use operands::transfer::AT;
        let dim = p.dim as usize;
        let x: &[u32] = bytemuck::cast_slice(args.bytes(AT.x));
        let mut y = args.open::<u32>(AT.y);
        for t in args.range() {
            y.unit(t, dim).copy_from_slice(&x[t * dim..][..dim]);
        }
    }
}

/// `y[t, g, :] = [a[t, g, :], b[t, g, :]]`
impl Loop for kind::Concat {
    fn extent(p: &params::concat::Params) -> Extent {
        let dim = p.a_dim.saturating_add(p.b_dim);
        Extent::rows(p.groups.saturating_mul(dim), p.tokens)
    }

    #[inline(always)]
    fn run(p: params::concat::Params, mut args: Args<'_>) {
        use operands::concat::AT;
        let [groups, a_dim, b_dim] = [p.groups, p.a_dim, p.b_dim].map(|n| n as usize);
        let [a, b] = [AT.a, AT.b].map(|i| args.f32s(i));
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let a = a[t * groups * a_dim..].chunks_exact(a_dim);
            let b = b[t * groups * b_dim..].chunks_exact(b_dim);
            let y = y.unit(t, groups * (a_dim + b_dim));
            for (y, (a, b)) in y.chunks_exact_mut(a_dim + b_dim).zip(a.zip(b)) {
                y[..a_dim].copy_from_slice(a);
                y[a_dim..].copy_from_slice(b);
            }
        }
    }
}

/// `ids[t, h] = h`
impl Loop for kind::HeadIds {
    fn extent(p: &params::head_ids::Params) -> Extent {
        Extent::rows(p.heads, p.tokens)
    }

    #[inline(always)]
    fn run(p: params::head_ids::Params, mut args: Args<'_>) {
        use operands::head_ids::AT;
        let mut ids = args.open::<u32>(AT.ids);
        for t in args.range() {
            for (h, id) in (0..).zip(ids.unit(t, p.heads as usize)) {
                *id = h;
            }
        }
    }
}

/// `y[t, 3 i + k] = x[stride t + k - 1, i]`
impl Loop for kind::Unfold {
    fn extent(p: &params::unfold::Params) -> Extent {
        Extent::rows(p.channels.saturating_mul(3), p.tokens)
    }

    #[inline(always)]
    fn run(p: params::unfold::Params, mut args: Args<'_>) {
        use operands::unfold::AT;
        let [channels, stride] = [p.channels, p.stride].map(|n| n as usize);
        let rows = stride * p.tokens as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let y = y.unit(t, 3 * channels);
            for k in 0..3 {
                let row = (stride * t + k).checked_sub(1).filter(|row| *row < rows);
                let to = y[k..].iter_mut().step_by(3);
                match row {
                    Some(row) => {
                        let from = &x[row * channels..][..channels];
                        to.zip(from).for_each(|(y, x)| *y = *x);
                    }
                    None => to.for_each(|y| *y = 0.0),
                }
            }
        }
    }
}

/// `y[0, :] = x[live - 1, :]`
impl Kernel for kind::LastRow {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::last_row::AT;
        let p: params::last_row::Params = args.params();
        let dim = p.dim as usize;
        let x = &args.f32s(AT.x)[(args.active_rows() - 1) * dim..][..dim];
        args.open::<f32>(AT.y).whole()[..dim].copy_from_slice(x);
    }
}

impl Link for kind::LastRow {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: params::last_row::Params = request.params();
        Ok(Launch {
            tokens: p.tokens as usize,
            ..request.single_thread::<Self>()
        })
    }
}
