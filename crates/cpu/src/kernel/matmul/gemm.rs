//! Matrix products: `gemv`, `gemm` and the operations that add to the output.
//!
//! The order of each sum along the columns does not depend on the tiling. So the result of a token
//! has the same bits in a batch of any size and on any number of threads.

use super::any_type;
use super::float::products;
use super::quantized::launch;
use crate::descriptors::{MatmulShape, Write};
use crate::kernel::{Launch, Link, Request};
use crate::panel::QK;
use tabla_core::device::Precision;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::params;

/// One token: `y[r] = W[r, :] . x`, stored or added.
fn gemv(request: &Request<'_>, write: Write) -> Result<Launch> {
    let p: params::gemv::Params = request.params();
    link(request, [1, p.rows, p.cols], write)
}

impl Link for kind::Gemv {
    fn link(request: &Request<'_>) -> Result<Launch> {
        gemv(request, Write::Store)
    }
}

impl Link for kind::GemvAdd {
    fn link(request: &Request<'_>) -> Result<Launch> {
        gemv(request, Write::Add)
    }
}

/// Several tokens: `y[t, r] = W[r, :] . x[t, :]`, stored or added.
fn gemm(request: &Request<'_>, write: Write) -> Result<Launch> {
    let p: params::gemm::Params = request.params();
    link(request, [p.tokens, p.rows, p.cols], write)
}

impl Link for kind::Gemm {
    fn link(request: &Request<'_>) -> Result<Launch> {
        gemm(request, Write::Store)
    }
}

impl Link for kind::GemmAdd {
    fn link(request: &Request<'_>) -> Result<Launch> {
        gemm(request, Write::Add)
    }
}

fn link(request: &Request<'_>, [tokens, rows, cols]: [u32; 3], write: Write) -> Result<Launch> {
    let matmul = MatmulShape {
        tokens,
        rows: rows as usize,
        cols: cols as usize,
        write,
        experts: None,
    };
    // Activations are quantized in whole blocks.
    let whole = matmul.cols.is_multiple_of(QK);
    let codes = if request.precision == Precision::Fast && whole {
        launch::link(request, matmul)
    } else {
        None
    };
    let launch = match codes.or_else(|| products::link(request, matmul)) {
        Some(launch) => launch,
        None => any_type::link(request, matmul)?,
    };
    Ok(Launch {
        matmul: Some(matmul),
        ..launch
    })
}
