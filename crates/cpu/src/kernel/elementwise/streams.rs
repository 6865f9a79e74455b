//! Operations on four residual streams. A unit is a row.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::{functions, operands, params};

const STREAMS: usize = functions::STREAMS as usize;

/// `x_j[t, i] += sum_k c[t, 4 j + k] x_k[t, i]`
impl Kernel for kind::MixStreams {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::mix_streams::AT;
        let p: params::mix_streams::Params = args.params();
        let dim = p.dim as usize;
        let (c, _) = args.f32s(AT.c).as_chunks::<{ STREAMS * STREAMS }>();
        let mut streams = [AT.x0, AT.x1, AT.x2, AT.x3].map(|at| args.open::<f32>(at));
        for t in args.range() {
            let (rows, _) = c[t].as_chunks::<STREAMS>();
            let [x0, x1, x2, x3] = streams.each_mut().map(|x| x.unit(t, dim));
            let x = x0.iter_mut().zip(x1).zip(x2).zip(x3);
            for (((x0, x1), x2), x3) in x {
                let old = [*x0, *x1, *x2, *x3];
                for (x, row) in [x0, x1, x2, x3].into_iter().zip(rows) {
                    let terms = row.iter().zip(old).map(|(c, x)| c * x);
                    *x += terms.sum::<f32>();
                }
            }
        }
    }
}

impl Link for kind::MixStreams {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: params::mix_streams::Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.dim))
    }
}

/// `x_j[t, i] += (offset + gain c[t, j]) v[t, i]` for the streams from `first`
impl Kernel for kind::AddToStreams {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        use operands::add_to_streams::AT;
        let p: params::add_to_streams::Params = args.params();
        let dim = p.dim as usize;
        let (c, _) = args.f32s(AT.c).as_chunks::<STREAMS>();
        let v = args.f32s(AT.v);
        let streams = [AT.x0, AT.x1, AT.x2, AT.x3].map(|at| args.open::<f32>(at));
        for (j, mut x) in streams.into_iter().enumerate().skip(p.first as usize) {
            for t in args.range() {
                // 0 times infinity is NaN.
                let gain = if p.gain == 0.0 { 0.0 } else { p.gain * c[t][j] };
                let factor = p.offset + gain;
                for (x, v) in x.unit(t, dim).iter_mut().zip(&v[t * dim..]) {
                    *x += factor * v;
                }
            }
        }
    }
}

impl Link for kind::AddToStreams {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: params::add_to_streams::Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.dim))
    }
}
