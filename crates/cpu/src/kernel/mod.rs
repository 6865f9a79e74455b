//! One file per operation of the list: its kernel.

mod activation;
mod attend;
mod bit_panels;
#[cfg(target_arch = "x86_64")]
mod bit_tiles;
mod chunks;
#[cfg(target_arch = "x86_64")]
mod code_tiles;
mod codes;
mod filter;
#[cfg(target_arch = "x86_64")]
mod float_panels;
#[cfg(target_arch = "x86_64")]
mod float_tiles;
mod floats;
mod fused;
mod launch;
mod pages;
mod pieces;
mod product;
pub(super) mod quantise;
mod softmax;
mod sources;
mod sums;
mod tiles;
mod turns;

/// What tests call.
pub(super) mod internals {
    pub use super::advance::advance;
    pub use super::argmax::argmax;
    pub use super::bit_quantize::quantise as bit_quantize;
    pub use super::dry::repetitions;
    pub use super::experts::sort as sort_by_expert;
    pub use super::filter::{BINS, by_size};
    pub use super::log_probs::log_probs;
    pub use super::quantise::block as quantise_block;
    pub use super::route::largest;
    pub use super::softmax::Softmax;
    pub use super::top_k::threshold;
    pub use super::top_n_sigma::sigma;
}

pub(super) use launch::{Join, Launch, Request};
use tabla_core::error::Result;
use tabla_core::for_each_op;
use tabla_core::op::list::Op;

macro_rules! kernels {
    ($($(#[doc = $formula:literal])+ $op:ident = $stem:ident($($operand:ident: $access:ident),+);)+) => {
        $(mod $stem;)+

        /// The kernel of an operation.
        pub(super) fn link(op: Op, request: &Request<'_>) -> Result<Launch> {
            match op { $(Op::$op => $stem::link(request),)+ }
        }
    };
}
for_each_op!(kernels);
