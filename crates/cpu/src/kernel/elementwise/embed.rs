//! `y[t, :] = W[token[t], :]`

use crate::descriptors::WeightReader;
use crate::kernel::matmul::any_type;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::panel::CHUNK_BYTES;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::embed::AT;
use tabla_core::op::params::embed::Params;
use tabla_quant::{CHUNK, Matrix};

impl Kernel for kind::Embed {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (matrix, rows) = (
            args.matrix(p.rows as usize, p.cols as usize),
            args.rows(AT.state),
        );
        let Some(WeightReader::Rows(decode, layout)) = args.reader() else {
            unreachable!("unexpected weight reader {:?}", args.reader());
        };
        let mut y = args.open::<f32>(AT.y);
        let mut chunk = [0.0; CHUNK];
        for t in args.units() {
            let y = y.unit(t, matrix.cols);
            let token = rows[t].token;
            // Zeros for a token id out of range.
            if token >= p.rows {
                y.fill(0.0);
                continue;
            }
            for (first, y) in (0..).step_by(CHUNK).zip(y.chunks_mut(CHUNK)) {
                match layout {
                    None => decode(&matrix, token as usize, first, &mut chunk),
                    Some(layout) => {
                        let columns = first..first + y.len();
                        let mut bytes = [0; CHUNK_BYTES];
                        let row = Matrix {
                            bytes: layout.unpack(&matrix, token as usize, columns, &mut bytes),
                            rows: 1,
                            cols: y.len(),
                            ..matrix
                        };
                        decode(&row, 0, 0, &mut chunk);
                    }
                }
                y.copy_from_slice(&chunk[..y.len()]);
            }
        }
    }
}

impl Link for kind::Embed {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let launch = Launch {
            // Link fills in the layout if a matrix product has packed the weights.
            reader: Some(WeightReader::Rows(
                any_type::decoder(request.isa, request.variant)?,
                None,
            )),
            ..request.launch::<Self>(Split::Rows(1), p.tokens)
        };
        Ok(launch.single_thread_if_small([p.tokens, p.cols]))
    }
}
