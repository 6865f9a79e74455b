//! CPU kernels, in folders by idea: one file per operation, or per group of operations with the same loop.

mod attention;
mod elementwise;
mod experts;
mod hooks;
mod launch;
pub(super) mod matmul;
mod recurrent;
mod sampling;

/// Functions for tests.
pub(super) mod internals {
    pub use super::matmul::ternary::bit_quantize::quantize as bit_quantize;
    pub use super::sampling::advance::advance;
    pub use super::sampling::argmax::argmax;
    pub use super::sampling::dry::repetitions;

    pub use super::experts::group_by_expert::sort as sort_by_expert;
    pub use super::experts::route::largest;
    pub use super::matmul::quantized::activations::quantize_block;
    pub use super::sampling::filter::{BINS, by_size};
    pub use super::sampling::filters::{sigma, threshold};
    pub use super::sampling::logprobs::logprobs;
    pub use super::sampling::softmax::Softmax;
}

pub(super) use launch::{Join, Launch, Request};
use tabla_core::error::Result;
use tabla_core::op::list::Op;
use tabla_core::with_kind;

/// An operation with a CPU kernel.
#[diagnostic::on_unimplemented(
    message = "the operation `{Self}` has no CPU kernel",
    note = "implement `Loop` or `Link` for it in crates/cpu/src/kernel/"
)]
trait Link {
    /// Returns the kernel and how it is launched.
    fn link(request: &Request<'_>) -> Result<Launch>;
}

/// Returns the kernel of an operation.
pub(super) fn link(op: Op, request: &Request<'_>) -> Result<Launch> {
    with_kind!(op, |K| <K as Link>::link(request))
}
