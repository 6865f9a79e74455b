//! `y[t, :] = W[token[t], :]`

use super::decode::{self, Weight, decoder};
use super::{Launch, PLAIN, Request};
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::exec::cpu::step::Split;
use crate::op::shaders::embed::Params;
use std::marker::PhantomData;

struct Embed<W>(PhantomData<W>);

impl<W: Weight> Kernel for Embed<W> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let cols = p.cols as usize;
        let bytes = W::row_bytes(cols);
        let (w, rows) = (args.bytes(0), args.rows(2));
        let mut y = args.open::<f32>(1);
        for t in args.units() {
            let y = y.unit(t, cols);
            let token = rows[t].token;
            // Zeros for an id that the model does not have.
            if token < p.rows {
                decode::row::<S, W>(s, &w[token as usize * bytes..][..bytes], y);
            } else {
                y.fill(0.0);
            }
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let elements = p.tokens as usize * p.cols as usize;
    decoder!(request.variant, W => {
        let launch = request.launch::<Embed<W>>(Split::Rows(1), p.tokens);
        Ok(launch.of_elements(elements))
    })
}

macro_rules! case {
    ($name:literal, $dtype:ident, $rows:literal, $cols:literal, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($dtype)),
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::$dtype, $rows, $cols)],
            emit: |b| {
                let w = b.weight("w", $rows, $cols);
                b.embed(w);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Tokens beyond the last row give zeros: runners draw ids up to twice the rows.
pub(super) const CASES: &[Case] = &[
    case!("one", F32, 1, 1, 1, 1),
    case!("primes", F32, 5, 37, 3, 2),
    case!("primes", F16, 11, 67, 5, 4),
    case!("past a block", Bf16, 7, 33, 2, 2),
    case!("odd blocks", Q8_0, 9, 96, 4, 3),
    case!("odd blocks", Q4_0, 9, 96, 4, 4),
    case!("odd blocks", Q4_1, 9, 96, 4, 2),
    case!("many", Q4_0, 50, 256, 67, 61),
];
