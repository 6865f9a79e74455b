//! `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]`, the pairs in `tiles`

use super::chunks::{self, Read};
use super::experts::{Products, experts_case};
use super::{Launch, PLAIN, Request};
use tabla_core::dtype::DType;
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::step::Split;
use tabla_core::op::operands::grouped_gemm::AT;
use tabla_core::op::params::grouped_gemm::Params;

struct GroupedGemm;

impl Kernel for GroupedGemm {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let products = Products::of(&args, [p.rows, p.cols, p.experts], [p.k, p.per_expert]);
        let tiles: &[u32] = bytemuck::cast_slice(args.bytes(AT.tiles));
        let mut y = args.open::<f32>(AT.y);
        for tile in tiles.chunks_exact(2 + p.tile as usize) {
            let pairs = &tile[2..][..tile[1] as usize];
            products.of_expert(s, tile[0], pairs, &mut y);
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let rows = p.rows as usize / p.experts as usize;
    Ok(Launch {
        read: Some(Read::Floats(chunks::decoder(request.isa, request.variant)?)),
        ..request.launch::<GroupedGemm>(Split::Units(rows), p.tokens)
    })
}

/// As of `experts`: one row for all experts of a token and one for each, and ids that are outside.
pub(super) const CASES: &[Case] = &[
    experts_case!("one expert", F32, 1 x 1 x 1, 1, 1, 33, 33),
    experts_case!("primes", F32, 50 x 7 x 37, 3, 37, 35, 27),
    experts_case!("a row each", F32, 50 x 5 x 13, 3, 39, 34, 34),
    experts_case!("most outside", F16, 2 x 131 x 67, 2, 67, 41, 33),
    experts_case!("some outside", Q8_0, 40 x 9 x 96, 2, 192, 33, 1),
    experts_case!("chunks", Q4K, 50 x 5 x 512, 3, 512, 39, 38),
    experts_case!("past a chunk", Q4_0, 50 x 3 x 352, 2, 704, 33, 4),
    experts_case!("past a chunk", Mxfp4, 50 x 2 x 288, 5, 288, 36, 36),
    experts_case!("many to an expert", Bf16, 50 x 11 x 33, 8, 33, 67, 61),
];
