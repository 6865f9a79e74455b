//! One file per operation of the list: its kernel.

mod activation;
mod attend;
#[cfg(target_arch = "x86_64")]
mod bit_tiles;
pub(super) mod chunks;
#[cfg(target_arch = "x86_64")]
mod code_tiles;
pub(super) mod codes;
mod filter;
#[cfg(target_arch = "x86_64")]
mod float_panels;
#[cfg(target_arch = "x86_64")]
mod float_tiles;
mod floats;
mod fused;
mod pages;
mod product;
pub(super) mod quantise;
mod softmax;
mod sources;
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

use super::panel::Pack;
use super::simd::{Entry, Isa, Kernel};
use super::step::{By, Split};
use bytemuck::Pod;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_core::error::Result;
use tabla_core::for_each_op;
use tabla_core::op::list::Op;
use tabla_quant::Scales;

/// What link asks of an operation.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// The level.
    pub(super) isa: Isa,
    /// How exactly products are computed.
    pub(super) precision: Precision,
    /// Whether weights are packed while linking.
    pub(super) packed: bool,
    /// The storage type among the operation's kernels.
    pub(super) variant: Option<DType>,
    /// The bytes of its `Params`.
    pub(super) params: &'a [u8],
    /// The scales of its weights, where they lie in tensors of their own.
    pub(super) scales: Option<Scales<'a>>,
    /// Threads that share the work.
    pub(super) threads: usize,
}

impl Request<'_> {
    fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(self.params)
    }

    fn launch<K: Kernel>(&self, split: Split, tokens: u32) -> Launch {
        self.of(self.isa.entry::<K>(), split, tokens)
    }

    /// A kernel that is compiled for the level already.
    fn of(&self, entry: Entry, split: Split, tokens: u32) -> Launch {
        Launch {
            entry,
            split,
            by: By::All,
            tokens: tokens as usize,
            scratch: 0,
            quantise: None,
            join: None,
            read: None,
            pack: None,
            product: None,
        }
    }

    /// A kernel that one thread runs for one row.
    fn alone<K: Kernel>(&self) -> Launch {
        Launch {
            by: By::First,
            ..self.launch::<K>(Split::Units(1), 1)
        }
    }

    /// A kernel that takes rows in pieces of this size.
    fn by_pieces<K: Kernel>(&self, tokens: u32, cols: u32, size: usize) -> Launch {
        let split = Split::Rows((cols as usize).div_ceil(size));
        let launch = self.launch::<K>(split, tokens);
        launch.of_elements(tokens as usize * cols as usize)
    }

    /// A kernel that takes rows whole. A row alone is left to the thread that goes on with the
    /// token: there is nothing to share or to wait for.
    fn by_row<K: Kernel>(&self, tokens: u32, cols: u32) -> Launch {
        if tokens == 1 {
            return self.alone::<K>();
        }
        let launch = self.launch::<K>(Split::Rows(1), tokens);
        launch.of_elements(tokens as usize * cols as usize)
    }
}

/// How an operation is run.
#[derive(Debug)]
pub(super) struct Launch {
    /// The kernel.
    pub(super) entry: Entry,
    /// How its work is shared.
    pub(super) split: Split,
    /// Who does it.
    pub(super) by: By,
    /// Live rows at most.
    pub(super) tokens: usize,
    /// Bytes of scratch for each thread, as one more operand.
    pub(super) scratch: usize,
    /// Where the activations go to int8 or bf16 first: their shape; they are one more operand.
    pub(super) quantise: Option<quantise::Shape>,
    /// What joins the parts that threads leave, where that is a step of its own.
    pub(super) join: Option<Join>,
    /// How its weights are read, where the kernel serves many storage types.
    pub(super) read: Option<chunks::Read>,
    /// How its weights are packed first, where they are.
    pub(super) pack: Option<Pack>,
    /// What it is told, where it is a product of codes.
    pub(super) product: Option<codes::Product>,
}

/// A second step on the operands of the first. Both see the parts as one more operand, behind
/// scratch; the first writes it, and this one reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Join {
    /// Bytes of all parts.
    pub(super) bytes: usize,
    /// The kernel.
    pub(super) entry: Entry,
    /// How its work is shared.
    pub(super) split: Split,
}

/// Elements below which work is not worth sharing: a few microseconds.
const SHARE_MIN: usize = 4096;

impl Launch {
    /// Leaves the work to one thread where all rows together have few elements.
    fn of_elements(self, elements: usize) -> Self {
        let small = elements < SHARE_MIN;
        Self {
            by: if small { By::First } else { By::All },
            ..self
        }
    }
}

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
