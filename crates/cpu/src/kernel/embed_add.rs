//! `y[t, :] += W[stride * position[t] + offset, :]`

use super::chunks::{self, Read};
use super::{Launch, PLAIN, Request};
use tabla_core::dtype::DType;
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::step::Split;
use tabla_core::op::operands::embed_add::AT;
use tabla_core::op::params::embed_add::Params;
use tabla_quant::CHUNK;

struct EmbedAdd;

impl Kernel for EmbedAdd {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (matrix, rows) = (args.matrix(p.rows as usize, p.cols as usize), args.rows(AT.state));
        let decode = args.decode();
        let mut y = args.open::<f32>(AT.y);
        let mut chunk = [0.0; CHUNK];
        for t in args.units() {
            let row = p.stride.wrapping_mul(rows[t].position);
            let row = row.wrapping_add(p.offset);
            if row >= p.rows {
                continue;
            }
            let y = y.unit(t, matrix.cols);
            for (first, y) in (0..).step_by(CHUNK).zip(y.chunks_mut(CHUNK)) {
                decode(&matrix, row as usize, first, &mut chunk);
                for (y, w) in y.iter_mut().zip(&chunk) {
                    *y += w;
                }
            }
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let elements = p.tokens as usize * p.cols as usize;
    let launch = Launch {
        read: Some(Read::Floats(chunks::decoder(request.isa, request.variant)?)),
        ..request.launch::<EmbedAdd>(Split::Rows(1), p.tokens)
    };
    Ok(launch.of_elements(elements))
}

macro_rules! case {
    ($name:literal, $dtype:ident, $shape:expr, $place:expr, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($dtype)),
            tokens: $tokens,
            live: $live,
            position: 2,
            weights: &[("w", DType::$dtype, $shape[0], $shape[1])],
            emit: |b| {
                let w = b.weight("w", $shape[0], $shape[1]);
                let y = b.input("y", $shape[1]);
                b.embed_add(w, y, $place[0], $place[1]);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Strides and offsets; the first position is 2, and some end beyond the last row.
pub(super) const CASES: &[Case] = &[
    case!("one", F32, [3, 1], [1, 0], 1, 1),
    case!("beyond the last", F32, [5, 37], [1, 0], 5, 4),
    case!("primes", F16, [11, 67], [1, 0], 5, 4),
    case!("one for all", Bf16, [7, 33], [0, 1], 3, 2),
    case!("with an offset", F32, [9, 40], [1, 2], 4, 3),
    case!("odd blocks", Q8_0, [9, 96], [2, 1], 4, 3),
    case!("many", Q4_0, [50, 256], [1, 0], 67, 61),
];
