//! Products of one token that make their activations themselves. Plans for a CPU have none: there a
//! norm is computed once and no thread waits long for it. These are what other devices are held to.

use super::activation::{self, Family, Function};
use super::chunks::{self, dot_floats};
use super::{Launch, Request};
use crate::descriptors::Read;
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::operands::{gemv_glu, gemv_norm};
use tabla_core::op::params;
use tabla_quant::CHUNK;

/// What activations are made of.
pub(super) trait Source {
    /// The operand that is written.
    const Y: usize;
    /// The operand of scratch, which link adds.
    const SCRATCH: usize;
    /// Rows and columns of the weight.
    fn shape(args: &Args<'_>) -> [usize; 2];
    /// The row that is multiplied.
    fn fill(args: &Args<'_>, x: &mut [f32]);
}

/// A row over its root mean square.
pub(super) struct Norm;

impl Source for Norm {
    const Y: usize = gemv_norm::AT.y;
    const SCRATCH: usize = gemv_norm::COUNT;

    #[inline(always)]
    fn shape(args: &Args<'_>) -> [usize; 2] {
        let p: params::gemv_norm::Params = args.params();
        [p.rows as usize, p.cols as usize]
    }

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "a row is far below 2^24")]
    fn fill(args: &Args<'_>, row: &mut [f32]) {
        let p: params::gemv_norm::Params = args.params();
        let [x, n] = [gemv_norm::AT.x, gemv_norm::AT.n].map(|at| &args.f32s(at)[..row.len()]);
        let mean = math::sum(x, |x| x * x) / row.len() as f32;
        let scale = 1.0 / (mean + p.eps).sqrt();
        for ((y, x), n) in row.iter_mut().zip(x).zip(n) {
            *y = x * scale * n;
        }
    }
}

/// A gated activation.
pub(super) struct Gated<F>(PhantomData<F>);

impl<F: Function> Source for Gated<F> {
    const Y: usize = gemv_glu::AT.y;
    const SCRATCH: usize = gemv_glu::COUNT;

    #[inline(always)]
    fn shape(args: &Args<'_>) -> [usize; 2] {
        let p: params::gemv_glu::Params = args.params();
        [p.rows as usize, p.cols as usize]
    }

    #[inline(always)]
    fn fill(args: &Args<'_>, row: &mut [f32]) {
        let [gate, up] = [gemv_glu::AT.gate, gemv_glu::AT.up].map(|at| &args.f32s(at)[..row.len()]);
        for ((y, gate), up) in row.iter_mut().zip(gate).zip(up) {
            *y = F::of(*gate) * up;
        }
    }
}

/// The product, stored or added.
pub(super) struct Fused<X, const ADD: bool>(PhantomData<X>);

impl<X: Source, const ADD: bool> Kernel for Fused<X, ADD> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        if args.live() == 0 {
            return;
        }
        let [rows, cols] = X::shape(&args);
        let range = args.range();
        let m = args.matrix(rows, cols);
        let decode = args.decode();
        let mut scratch = args.open::<f32>(X::SCRATCH);
        let x = &mut scratch.whole()[..cols];
        X::fill(&args, x);
        let mut y = args.open::<f32>(X::Y);
        let y = y.columns(0, rows, 1);
        let mut chunk = [0.0; CHUNK];
        for (y, r) in y.iter_mut().zip(range) {
            let mut acc = s.splat(0.0);
            for first in (0..cols).step_by(CHUNK) {
                decode(&m, r, first, &mut chunk);
                let count = CHUNK.min(cols - first);
                acc = dot_floats(s, &chunk, &x[first..][..count], acc);
            }
            let sum = s.sum(acc);
            *y = if ADD { *y + sum } else { sum };
        }
    }
}

/// Gated products, for each activation.
pub(super) struct Glus<const ADD: bool>;

impl<const ADD: bool> Family for Glus<ADD> {
    type With<F: Function> = Fused<Gated<F>, ADD>;
}

/// The kernel of `gemv_norm`.
pub(super) fn link_norm(request: &Request<'_>) -> Result<Launch> {
    let p: params::gemv_norm::Params = request.params();
    let split = Split::Units(p.rows as usize);
    reading(
        request,
        p.cols,
        request.launch::<Fused<Norm, false>>(split, 1),
    )
}

/// The kernel of `gemv_glu` and of its adding twin.
pub(super) fn link_glu<const ADD: bool>(request: &Request<'_>) -> Result<Launch> {
    let p: params::gemv_glu::Params = request.params();
    let split = Split::Units(p.rows as usize);
    let launch = activation::launch::<Glus<ADD>>(request, p.activation, (split, 1))?;
    reading(request, p.cols, launch)
}

/// With weights as floats, and memory for a row.
fn reading(request: &Request<'_>, cols: u32, launch: Launch) -> Result<Launch> {
    Ok(Launch {
        scratch: cols as usize * size_of::<f32>(),
        read: Some(Read::Floats(chunks::decoder(request.isa, request.variant)?)),
        ..launch
    })
}
