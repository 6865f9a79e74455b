//! `y[t, :] += W[stride * position[t] + type_stride * token_type[t] + offset, :]`

use crate::descriptors::WeightReader;
use crate::kernel::matmul::any_type;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::embed_add::AT;
use tabla_core::op::params::embed_add::Params;
use tabla_quant::CHUNK;

impl Kernel for kind::EmbedAdd {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (matrix, rows) = (
            args.matrix(p.rows as usize, p.cols as usize),
            args.rows(AT.state),
        );
        let decode = args.decode();
        let mut y = args.open::<f32>(AT.y);
        let mut chunk = [0.0; CHUNK];
        for t in args.units() {
            let by_position = p.stride.wrapping_mul(rows[t].position);
            let by_type = p.type_stride.wrapping_mul(rows[t].token_type);
            let row = by_position.wrapping_add(by_type).wrapping_add(p.offset);
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

impl Link for kind::EmbedAdd {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let launch = Launch {
            reader: Some(WeightReader::Floats(any_type::decoder(
                request.isa,
                request.variant,
            )?)),
            ..request.launch::<Self>(Split::Rows(1), p.tokens)
        };
        Ok(launch.single_thread_if_small([p.tokens, p.cols]))
    }
}
