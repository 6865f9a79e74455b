//! Single-token products fused with the operation that computes their input. Plans for a CPU do not
//! use them, because threads would repeat the norm; they are the reference for other devices.

use super::any_type::{self, dot_floats};
use crate::descriptors::{MatmulShape, WeightReader, Write};
use crate::kernel::elementwise::activation;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use std::marker::PhantomData;
use tabla_core::error::{Result, bail};
use tabla_core::op::kind;
use tabla_core::op::operands::{gemv_glu, gemv_norm};
use tabla_core::op::params;
use tabla_quant::CHUNK;

/// Input of a fused product.
trait FusedInput {
    /// Operand that is written.
    const Y: usize;
    /// Operand of scratch, added by link.
    const SCRATCH: usize;
    /// Computes the row that is multiplied.
    fn fill(args: &Args<'_>, x: &mut [f32]);
}

/// RMS norm of a row.
impl FusedInput for kind::GemvNorm {
    const Y: usize = gemv_norm::AT.y;
    const SCRATCH: usize = gemv_norm::COUNT;

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "row lengths are far below 2^24")]
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
struct Gated;

impl FusedInput for Gated {
    const Y: usize = gemv_glu::AT.y;
    const SCRATCH: usize = gemv_glu::COUNT;

    #[inline(always)]
    fn fill(args: &Args<'_>, row: &mut [f32]) {
        let p: params::gemv_glu::Params = args.params();
        let act = activation::function(p.activation).expect("link checked the activation");
        let [gate, up] = [gemv_glu::AT.gate, gemv_glu::AT.up].map(|at| &args.f32s(at)[..row.len()]);
        for ((y, gate), up) in row.iter_mut().zip(gate).zip(up) {
            *y = act(*gate) * up;
        }
    }
}

/// The product, stored or added.
struct Fused<X>(PhantomData<X>);

impl<X: FusedInput> Kernel for Fused<X> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        if args.active_rows() == 0 {
            return;
        }
        let &MatmulShape {
            rows, cols, write, ..
        } = args.matmul();
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
            *y = if write == Write::Add { *y + sum } else { sum };
        }
    }
}

impl Link for kind::GemvNorm {
    /// `y[r] = W[r, :] . (x / sqrt(mean(x^2) + eps) * n)`
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: params::gemv_norm::Params = request.params();
        launch::<Self>(request, [p.rows, p.cols], Write::Store)
    }
}

/// `y[r] = W[r, :] . (act(gate) * up)`, stored or added.
fn gemv_glu(request: &Request<'_>, write: Write) -> Result<Launch> {
    let p: params::gemv_glu::Params = request.params();
    if activation::function(p.activation).is_none() {
        bail!(Internal, "unknown activation {}", p.activation);
    }
    launch::<Gated>(request, [p.rows, p.cols], write)
}

impl Link for kind::GemvGlu {
    fn link(request: &Request<'_>) -> Result<Launch> {
        gemv_glu(request, Write::Store)
    }
}

impl Link for kind::GemvGluAdd {
    fn link(request: &Request<'_>) -> Result<Launch> {
        gemv_glu(request, Write::Add)
    }
}

fn launch<X: FusedInput>(
    request: &Request<'_>,
    [rows, cols]: [u32; 2],
    write: Write,
) -> Result<Launch> {
    let matmul = MatmulShape {
        tokens: 1,
        rows: rows as usize,
        cols: cols as usize,
        write,
        experts: None,
    };
    Ok(Launch {
        scratch: matmul.cols * size_of::<f32>(),
        reader: Some(WeightReader::Floats(any_type::decoder(
            request.isa,
            request.variant,
        )?)),
        matmul: Some(matmul),
        ..request.scalar::<Fused<X>>(Split::Units(matmul.rows), 1)
    })
}
