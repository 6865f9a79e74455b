//! Operations on elements and rows of activations, one loop each.

use super::activation::{self, ActivationFn, ActivationKernel};
use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, Uses, math};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::{operands, params};

/// Launch of a kernel whose unit is an element.
fn by_element<K: Kernel>(request: &Request<'_>, [dim, tokens]: [u32; 2]) -> Launch {
    let launch = request.launch::<K>(Split::Rows(dim as usize), tokens);
    launch.single_thread_if_small(tokens as usize * dim as usize)
}

/// Launch of a kernel whose unit is a row.
fn by_row<K: Kernel>(request: &Request<'_>, [dim, tokens]: [u32; 2]) -> Launch {
    let launch = request.launch::<K>(Split::Rows(1), tokens);
    launch.single_thread_if_small(tokens as usize * dim as usize)
}

/// `y[t, i] += scale * x[t, i]`
struct Add;

impl Kernel for Add {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::add::AT;
        let p: params::add::Params = args.params();
        let x = &args.f32s(AT.x)[args.range()];
        for (y, x) in args.open::<f32>(AT.y).units(1).iter_mut().zip(x) {
            *y += p.scale * x;
        }
    }
}

pub(super) fn add(request: &Request<'_>) -> Launch {
    let p: params::add::Params = request.params();
    by_element::<Add>(request, [p.dim, p.tokens])
}

/// `y[t, i] *= factor`
struct Scale;

impl Kernel for Scale {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::scale::AT;
        let p: params::scale::Params = args.params();
        for y in args.open::<f32>(AT.y).units(1) {
            *y *= p.factor;
        }
    }
}

pub(super) fn scale(request: &Request<'_>) -> Launch {
    let p: params::scale::Params = request.params();
    by_element::<Scale>(request, [p.dim, p.tokens])
}

/// `y[t, i] *= 1 + beta ln(1 + floor(position[t] / length))`
struct ScaleAt;

impl Kernel for ScaleAt {
    #[inline(always)]
    #[expect(
        clippy::cast_precision_loss,
        reason = "the rounding hardly changes a logarithm"
    )]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::scale_at::AT;
        let p: params::scale_at::Params = args.params();
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

pub(super) fn scale_at(request: &Request<'_>) -> Launch {
    let p: params::scale_at::Params = request.params();
    by_row::<ScaleAt>(request, [p.dim, p.tokens])
}

/// `y[t, i] = cap * tanh(y[t, i] / cap)`
struct SoftCap;

impl Kernel for SoftCap {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::soft_cap::AT;
        let p: params::soft_cap::Params = args.params();
        for y in args.open::<f32>(AT.y).units(1) {
            *y = p.cap * math::tanh(*y / p.cap);
        }
    }
}

pub(super) fn soft_cap(request: &Request<'_>) -> Launch {
    let p: params::soft_cap::Params = request.params();
    by_element::<SoftCap>(request, [p.dim, p.tokens])
}

/// `y[t, i] = act(y[t, i])`
struct Activate<F>(PhantomData<F>);

impl<F: ActivationFn> Kernel for Activate<F> {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::activate::AT;
        for y in args.open::<f32>(AT.y).units(1) {
            *y = F::of(*y);
        }
    }
}

struct ActivateFamily;

impl ActivationKernel for ActivateFamily {
    type With<F: ActivationFn> = Activate<F>;
}

pub(super) fn activate(request: &Request<'_>) -> Result<Launch> {
    let p: params::activate::Params = request.params();
    activation::link::<ActivateFamily>(request, p.activation, [p.dim, p.tokens])
}

/// `y[t, i] = act(gate[t, i]) * up[t, i]`
struct Glu<F>(PhantomData<F>);

impl<F: ActivationFn> Kernel for Glu<F> {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
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

struct GluFamily;

impl ActivationKernel for GluFamily {
    type With<F: ActivationFn> = Glu<F>;
}

pub(super) fn glu(request: &Request<'_>) -> Result<Launch> {
    let p: params::glu::Params = request.params();
    activation::link::<GluFamily>(request, p.activation, [p.dim, p.tokens])
}

/// `y[t, h] = rate[h] softplus(a[t, h] + bias[h])`, `y[t, heads + h] = sigmoid(b[t, h])`
struct DeltaGates;

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

impl Kernel for DeltaGates {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::delta_gates::AT;
        let p: params::delta_gates::Params = args.params();
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

pub(super) fn delta_gates(request: &Request<'_>) -> Launch {
    let p: params::delta_gates::Params = request.params();
    by_row::<DeltaGates>(request, [p.heads, p.tokens])
}

/// `y[t, h] = rate[h] dt`, `y[t, heads + h] = dt`, `dt = clamp(softplus(x[t, h] + bias[h]), low, high)`
struct SsmGates;

impl Kernel for SsmGates {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::ssm_gates::AT;
        let p: params::ssm_gates::Params = args.params();
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

pub(super) fn ssm_gates(request: &Request<'_>) -> Launch {
    let p: params::ssm_gates::Params = request.params();
    by_row::<SsmGates>(request, [p.heads, p.tokens])
}

/// `y[t, s, i] = act(x[t, s, i]) * x[t, s, dim + i]`
struct GluHalves<F>(PhantomData<F>);

impl<F: ActivationFn> Kernel for GluHalves<F> {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::glu_halves::AT;
        let p: params::glu_halves::Params = args.params();
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

struct GluHalvesFamily;

impl ActivationKernel for GluHalvesFamily {
    type With<F: ActivationFn> = GluHalves<F>;
}

pub(super) fn glu_halves(request: &Request<'_>) -> Result<Launch> {
    let p: params::glu_halves::Params = request.params();
    let launch = activation::link::<GluHalvesFamily>(request, p.activation, [p.groups, p.tokens])?;
    Ok(launch.single_thread_if_small(p.tokens as usize * p.groups as usize * p.dim as usize))
}

/// `y[t, i] = g sigmoid(alpha g) (u + 1)` with `g = min(gate, limit)`, `u = clamp(up, -limit, limit)`
struct GluClamped;

impl Kernel for GluClamped {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::glu_clamped::AT;
        let p: params::glu_clamped::Params = args.params();
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

pub(super) fn glu_clamped(request: &Request<'_>) -> Launch {
    let p: params::glu_clamped::Params = request.params();
    by_element::<GluClamped>(request, [p.dim, p.tokens])
}

/// `y[t, s, i] += b[ids[t, s], i]`
struct AddExpertBias;

impl Kernel for AddExpertBias {
    /// A unit is a selected expert of a token.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::add_expert_bias::AT;
        let p: params::add_expert_bias::Params = args.params();
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

pub(super) fn add_expert_bias(request: &Request<'_>) -> Launch {
    let p: params::add_expert_bias::Params = request.params();
    let launch = request.launch::<AddExpertBias>(Split::Rows(p.k as usize), p.tokens);
    launch.single_thread_if_small(p.tokens as usize * p.k as usize * p.dim as usize)
}

/// `y[t, i] += b[i]`
struct AddBias;

impl Kernel for AddBias {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::add_bias::AT;
        let p: params::add_bias::Params = args.params();
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

pub(super) fn add_bias(request: &Request<'_>) -> Launch {
    let p: params::add_bias::Params = request.params();
    by_row::<AddBias>(request, [p.dim, p.tokens])
}

/// `y[t, i] *= w[i mod len]`
struct Mul;

impl Kernel for Mul {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::mul::AT;
        let p: params::mul::Params = args.params();
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

pub(super) fn mul(request: &Request<'_>) -> Launch {
    let p: params::mul::Params = request.params();
    by_row::<Mul>(request, [p.dim, p.tokens])
}

/// `y[t, g, i] = x[t, g, offset + i]`
struct Columns;

impl Kernel for Columns {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::columns::AT;
        let p: params::columns::Params = args.params();
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

pub(super) fn columns(request: &Request<'_>) -> Launch {
    let p: params::columns::Params = request.params();
    by_row::<Columns>(request, [p.groups * p.dim, p.tokens])
}

/// `y[t, i] = x[t, index[i]]`, -inf where the index is negative
struct PickColumns;

impl Kernel for PickColumns {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::pick_columns::AT;
        let p: params::pick_columns::Params = args.params();
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

pub(super) fn pick_columns(request: &Request<'_>) -> Launch {
    let p: params::pick_columns::Params = request.params();
    by_row::<PickColumns>(request, [p.dim, p.tokens])
}

/// `y[t, i] = x[t, i]`
struct Transfer;

impl Kernel for Transfer {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::transfer::AT;
        let p: params::transfer::Params = args.params();
        let dim = p.dim as usize;
        let x: &[u32] = bytemuck::cast_slice(args.bytes(AT.x));
        let mut y = args.open::<u32>(AT.y);
        for t in args.range() {
            y.unit(t, dim).copy_from_slice(&x[t * dim..][..dim]);
        }
    }
}

pub(super) fn transfer(request: &Request<'_>) -> Launch {
    let p: params::transfer::Params = request.params();
    by_row::<Transfer>(request, [p.dim, p.tokens])
}

/// `y[t, g, :] = [a[t, g, :], b[t, g, :]]`
struct Concat;

impl Kernel for Concat {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::concat::AT;
        let p: params::concat::Params = args.params();
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

pub(super) fn concat(request: &Request<'_>) -> Launch {
    let p: params::concat::Params = request.params();
    by_row::<Concat>(request, [p.groups * (p.a_dim + p.b_dim), p.tokens])
}

/// `ids[t, h] = h`
struct HeadIds;

impl Kernel for HeadIds {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::head_ids::AT;
        let p: params::head_ids::Params = args.params();
        let mut ids = args.open::<u32>(AT.ids);
        for t in args.range() {
            for (h, id) in (0..).zip(ids.unit(t, p.heads as usize)) {
                *id = h;
            }
        }
    }
}

pub(super) fn head_ids(request: &Request<'_>) -> Launch {
    let p: params::head_ids::Params = request.params();
    by_row::<HeadIds>(request, [p.heads, p.tokens])
}

/// `y[t, 3 i + k] = x[stride t + k - 1, i]`
struct Unfold;

impl Kernel for Unfold {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::unfold::AT;
        let p: params::unfold::Params = args.params();
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

pub(super) fn unfold(request: &Request<'_>) -> Launch {
    let p: params::unfold::Params = request.params();
    by_row::<Unfold>(request, [3 * p.channels, p.tokens])
}

/// `y[0, :] = x[live - 1, :]`
struct LastRow;

impl Kernel for LastRow {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::last_row::AT;
        let p: params::last_row::Params = args.params();
        let dim = p.dim as usize;
        let x = &args.f32s(AT.x)[(args.active_rows() - 1) * dim..][..dim];
        args.open::<f32>(AT.y).whole()[..dim].copy_from_slice(x);
    }
}

pub(super) fn last_row(request: &Request<'_>) -> Launch {
    let p: params::last_row::Params = request.params();
    Launch {
        tokens: p.tokens as usize,
        ..request.single_thread::<LastRow>()
    }
}
