//! What link asks of an operation, and how the operation is run.

use crate::descriptors::{CodeProduct, Product, Read, Shape};
use crate::panel::Pack;
use crate::simd::{Entry, Isa, Kernel};
use crate::work::{By, Split};
use bytemuck::Pod;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_quant::Scales;

/// What link asks of an operation.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The level.
    pub(crate) isa: Isa,
    /// How exactly products are computed.
    pub(crate) precision: Precision,
    /// Whether weights are packed while linking.
    pub(crate) packed: bool,
    /// The storage type among the operation's kernels.
    pub(crate) variant: Option<DType>,
    /// The bytes of its `Params`.
    pub(crate) params: &'a [u8],
    /// The scales of its weights, operand 0, where they lie in tensors of their own.
    pub(crate) scales: Option<Scales<'a>>,
    /// Threads that share the work.
    pub(crate) threads: usize,
}

impl Request<'_> {
    pub(super) fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(self.params)
    }

    pub(super) fn launch<K: Kernel>(&self, split: Split, tokens: u32) -> Launch {
        self.of(self.isa.entry::<K>(), split, tokens)
    }

    /// A kernel of an operation that plans for a CPU do not have: the reference for other devices,
    /// compiled for the scalar level only.
    pub(super) fn scalar<K: Kernel>(&self, split: Split, tokens: u32) -> Launch {
        self.of(Isa::scalar_entry::<K>(), split, tokens)
    }

    /// A kernel that is compiled for the level already.
    pub(super) fn of(&self, entry: Entry, split: Split, tokens: u32) -> Launch {
        Launch {
            entry,
            split,
            by: By::All,
            tokens: tokens as usize,
            scratch: 0,
            quantize: None,
            join: None,
            read: None,
            pack: None,
            product: None,
            codes: None,
        }
    }

    /// A kernel that one thread runs for one row.
    pub(super) fn alone<K: Kernel>(&self) -> Launch {
        Launch {
            by: By::First,
            ..self.launch::<K>(Split::Units(1), 1)
        }
    }

    /// A kernel that takes rows in pieces of this size.
    pub(super) fn by_pieces<K: Kernel>(&self, tokens: u32, cols: u32, size: usize) -> Launch {
        let split = Split::Rows((cols as usize).div_ceil(size));
        let launch = self.launch::<K>(split, tokens);
        launch.of_elements(tokens as usize * cols as usize)
    }

    /// A kernel that takes rows whole. A row alone is left to the thread that goes on with the
    /// token: there is nothing to share or to wait for.
    pub(super) fn by_row<K: Kernel>(&self, tokens: u32, cols: u32) -> Launch {
        if tokens == 1 {
            return self.alone::<K>();
        }
        let launch = self.launch::<K>(Split::Rows(1), tokens);
        launch.of_elements(tokens as usize * cols as usize)
    }
}

/// How an operation is run.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The kernel.
    pub(crate) entry: Entry,
    /// How its work is shared.
    pub(crate) split: Split,
    /// Who does it.
    pub(crate) by: By,
    /// Live rows at most.
    pub(crate) tokens: usize,
    /// Bytes of scratch for each thread, as one more operand.
    pub(crate) scratch: usize,
    /// Where the activations go to int8 or bf16 first: their shape; they are one more operand.
    pub(crate) quantize: Option<Shape>,
    /// What joins the parts that threads leave, where that is a step of its own.
    pub(crate) join: Option<Join>,
    /// How its weights are read, where the kernel serves many storage types.
    pub(crate) read: Option<Read>,
    /// How its weights, operand 0, are packed first, where they are.
    pub(crate) pack: Option<Pack>,
    /// The shape of a product.
    pub(crate) product: Option<Product>,
    /// The parameters of a product of codes.
    pub(crate) codes: Option<CodeProduct>,
}

/// A second step on the operands of the first. Both see the parts as one more operand, behind
/// scratch; the first writes it, and this one reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    /// Bytes of all parts.
    pub(crate) bytes: usize,
    /// The kernel.
    pub(crate) entry: Entry,
    /// How its work is shared.
    pub(crate) split: Split,
}

/// Elements below which work is not worth sharing: a few microseconds.
const SHARE_MIN: usize = 4096;

impl Launch {
    /// Leaves the work to one thread where all rows together have few elements.
    pub(super) fn of_elements(self, elements: usize) -> Self {
        let small = elements < SHARE_MIN;
        Self {
            by: if small { By::First } else { By::All },
            ..self
        }
    }
}
