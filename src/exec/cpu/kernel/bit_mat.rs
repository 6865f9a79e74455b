//! `y[t, r] = (W[r, :] . q[t, :]) d[t] scale`, the digits of a ternary W
//!
//! A row of W is unpacked once for all the tokens that a core's cache holds. Sums are integers, so
//! that every level and the shader give the same bits.

use super::chunks;
use super::{Launch, PLAIN, Request};
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::exec::cpu::step::Split;
use crate::op::shaders::bit_mat::Params;
use crate::quant::{CHUNK, Chunk};

/// Bytes of activations that stay in a core's cache while the matrix passes by.
const ACTIVATIONS_BYTES: usize = 192 << 10;

struct BitMat;

impl Kernel for BitMat {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "rounded as the shader rounds")]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (rows, cols) = (p.rows as usize, p.cols as usize);
        let padded = cols.next_multiple_of(64);
        let (q, d): (&[i8], _) = (bytemuck::cast_slice(args.bytes(1)), args.f32s(2));
        let m = args.matrix(rows, cols);
        let unpack = args.unpack();
        let (range, live) = (args.range(), args.live());
        let mut y = args.open::<f32>(3);
        let mut scratch = args.open::<i8>(5);
        let mut chunk = Chunk::ZERO;
        let block = (ACTIVATIONS_BYTES / padded.max(1)).max(1);
        for first in (0..live).step_by(block) {
            for r in range.clone() {
                let row = scratch.whole();
                for (at, part) in (0..cols).step_by(CHUNK).zip(row.chunks_exact_mut(CHUNK)) {
                    unpack(&m, r, at, &mut chunk);
                    part.copy_from_slice(&chunk.q);
                }
                for t in first..live.min(first + block) {
                    let x = &q[t * padded..][..padded];
                    let sum = s.dot_i8(row[..padded].as_chunks().0, x.as_chunks().0);
                    y.columns(t, rows, 1)[r - range.start] = sum as f32 * (d[t] * p.scale);
                }
            }
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(Launch {
        scratch: (p.cols as usize).next_multiple_of(CHUNK),
        read: Some(chunks::unpacker(request.isa, request.variant)?),
        ..request.launch::<BitMat>(Split::Units(p.rows as usize), p.tokens)
    })
}

macro_rules! case {
    ($name:literal, $dtype:ident, $rows:literal, $cols:literal, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($dtype)),
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::$dtype, $rows, $cols)],
            scale: Some(0.37),
            emit: |b| {
                let w = b.weight("w", $rows, $cols);
                let x = b.input("x", $cols);
                b.mat("y", w, x);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Rows that begin within blocks, that are no whole chunks or no whole octets; one token and many.
pub(super) const CASES: &[Case] = &[
    case!("blocks over rows", I2S, 4, 32, 1, 1),
    case!("blocks over rows", I2S, 12, 160, 3, 2),
    case!("blocks over rows", I2S, 8, 288, 67, 61),
    case!("past a workgroup", I2S, 5, 1152, 1, 1),
    case!("chunks", Tq1_0, 5, 512, 1, 1),
    case!("chunks", Tq1_0, 3, 768, 9, 9),
    case!("chunks", Tq2_0, 7, 256, 1, 1),
    case!("chunks", Tq2_0, 3, 512, 17, 8),
    case!("quarters", Ternary, 4, 1, 1, 1),
    case!("quarters", Ternary, 12, 333, 1, 1),
    case!("quarters", Ternary, 8, 77, 13, 11),
];
