//! `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]`, for the pairs in `tiles`

use super::products::{ExpertMatmul, expert_rows, link_codes};
use crate::descriptors::{ExpertShape, WeightReader};
use crate::kernel::matmul::any_type;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, Uses};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::grouped_gemm::AT;
use tabla_core::op::params::grouped_gemm::Params;

impl Kernel for kind::GroupedGemm {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let matmul = ExpertMatmul::of(&args, [p.rows, p.cols, p.experts], [p.k, p.per_expert]);
        let tiles: &[u32] = bytemuck::cast_slice(args.bytes(AT.tiles));
        let mut y = args.open::<f32>(AT.y);
        for tile in tiles.chunks_exact(2 + p.tile as usize) {
            let pairs = &tile[2..][..tile[1] as usize];
            matmul.multiply_expert(s, tile[0], pairs, &mut y);
        }
    }
}

impl Link for kind::GroupedGemm {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let rows = expert_rows(p.rows, p.experts)?;
        let shape = ExpertShape {
            rows,
            k: p.k as usize,
            per_expert: p.per_expert != 0,
            tile: Some(p.tile as usize),
        };
        if let Some(launch) = link_codes(request, [p.tokens, p.rows, p.cols], shape)? {
            return Ok(launch);
        }
        Ok(Launch {
            reader: Some(WeightReader::Floats(any_type::decoder(
                request.isa,
                request.variant,
            )?)),
            ..request.launch::<Self>(Split::Units(rows), p.tokens)
        })
    }
}
