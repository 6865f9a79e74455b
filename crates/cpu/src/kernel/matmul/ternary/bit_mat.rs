//! `y[t, r] = (W[r, :] . q[t, :]) d[t] scale` with a ternary W; also the variant that adds to y
//!
//! A row of W is unpacked once for all tokens that fit the cache. Sums are integers, so that all
//! levels and the shader yield the same bits; the final addition to y is in f32.

#[cfg(target_arch = "x86_64")]
use super::amx;
use super::panels::{ACTIVATIONS_BYTES, BitPanels, write, write_sum};
use crate::descriptors::WeightReader;
use crate::kernel::matmul::any_type;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::panel::Pack;
use crate::simd::rows::ROWS;
use crate::simd::{Kernel, Simd, Uses};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::bit_mat::{AT, COUNT};
use tabla_core::op::params::bit_mat::Params;
use tabla_quant::{CHUNK, Chunk};

/// Unpacks rows one by one from the file layout.
struct BitMat<const ADD: bool>;

impl<const ADD: bool> Kernel for BitMat<ADD> {
    const USES: Uses = Uses::ByteProducts;

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "rounded like the shader")]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (rows, cols) = (p.rows as usize, p.cols as usize);
        let padded = cols.next_multiple_of(64);
        let (q, d): (&[i8], _) = (bytemuck::cast_slice(args.bytes(AT.q)), args.f32s(AT.d));
        let m = args.matrix(rows, cols);
        let unpack = args.unpack();
        let (range, live) = (args.range(), args.active_rows());
        let mut y = args.open::<f32>(AT.y);
        let mut scratch = args.open::<i8>(COUNT);
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
                    let y = &mut y.columns(t, rows, 1)[r - range.start];
                    write_sum(const { write::<ADD>() }, y, sum as f32 * (d[t] * p.scale));
                }
            }
        }
    }
}

impl Link for kind::BitMat {
    fn link(request: &Request<'_>) -> Result<Launch> {
        link_as::<false>(request)
    }
}

pub(super) fn link_as<const ADD: bool>(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let (rows, cols) = (p.rows as usize, p.cols as usize);
    let unpack = any_type::unpacker(request.isa, request.variant)?;
    if request.packed {
        let panels = Split::Units(rows.div_ceil(ROWS));
        let launch = Launch {
            scratch: p.tokens as usize * size_of::<i32>(),
            pack: Some(Pack::Digits(unpack)),
            ..request.launch::<BitPanels<ADD>>(panels, p.tokens)
        };
        #[cfg(target_arch = "x86_64")]
        if p.tokens > amx::GEMV_TOKENS_MAX
            && let Some((entry, scratch)) = amx::link::<ADD>(request, cols)
        {
            let scratch = launch.scratch.max(scratch);
            return Ok(Launch {
                entry,
                scratch,
                ..launch
            });
        }
        return Ok(launch);
    }
    Ok(Launch {
        scratch: cols.next_multiple_of(CHUNK),
        reader: Some(WeightReader::Ints(unpack)),
        ..request.launch::<BitMat<ADD>>(Split::Units(rows), p.tokens)
    })
}
