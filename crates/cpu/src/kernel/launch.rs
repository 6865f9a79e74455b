//! Request from link to an operation, and the kernel launch that it returns.

use crate::descriptors::{ActivationShape, MatmulShape, QuantizedMatmul, WeightReader};
use crate::panel::Pack;
use crate::simd::{Entry, Isa, Kernel};
use crate::work::{RunOn, Split};
use bytemuck::Pod;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_quant::Scales;

/// Request from link for the kernel of an operation.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Instruction set.
    pub(crate) isa: Isa,
    /// Precision of matrix products.
    pub(crate) precision: Precision,
    /// Whether weights are packed while linking.
    pub(crate) packed: bool,
    /// Storage type that selects the kernel variant.
    pub(crate) variant: Option<DType>,
    /// Bytes of the operation's `Params`.
    pub(crate) params: &'a [u8],
    /// Scales of the weights, operand 0, if they are separate tensors.
    pub(crate) scales: Option<Scales<'a>>,
    /// Number of threads.
    pub(crate) threads: usize,
}

impl Request<'_> {
    pub(super) fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(self.params)
    }

    pub(super) fn launch<K: Kernel>(&self, split: Split, tokens: u32) -> Launch {
        self.launch_entry(self.isa.entry::<K>(), split, tokens)
    }

    /// Launch of a kernel of an operation that plans for a CPU do not use: the reference for other
    /// devices, compiled only for the scalar level.
    pub(super) fn scalar<K: Kernel>(&self, split: Split, tokens: u32) -> Launch {
        self.launch_entry(K::scalar, split, tokens)
    }

    /// Launch of a kernel that is already compiled for the level.
    pub(super) fn launch_entry(&self, entry: Entry, split: Split, tokens: u32) -> Launch {
        Launch {
            entry,
            split,
            run_on: RunOn::AllThreads,
            tokens: tokens as usize,
            scratch: 0,
            quantize: None,
            join: None,
            reader: None,
            pack: None,
            matmul: None,
            codes: None,
        }
    }

    /// Launch of a kernel that one thread runs for one row.
    pub(super) fn single_thread<K: Kernel>(&self) -> Launch {
        Launch {
            run_on: RunOn::FirstThread,
            ..self.launch::<K>(Split::Units(1), 1)
        }
    }

    /// Launch of a kernel that processes rows in segments of this size.
    pub(super) fn by_segment<K: Kernel>(&self, tokens: u32, cols: u32, size: usize) -> Launch {
        let split = Split::Rows((cols as usize).div_ceil(size));
        let launch = self.launch::<K>(split, tokens);
        launch.single_thread_if_small([tokens, cols])
    }

    /// Launch of a kernel that processes whole rows. A single row runs on the first thread: there
    /// is nothing to share.
    pub(super) fn by_row<K: Kernel>(&self, tokens: u32, cols: u32) -> Launch {
        if tokens == 1 {
            return self.single_thread::<K>();
        }
        let launch = self.launch::<K>(Split::Rows(1), tokens);
        launch.single_thread_if_small([tokens, cols])
    }
}

/// How an operation is run.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The kernel.
    pub(crate) entry: Entry,
    /// How the work is divided among threads.
    pub(crate) split: Split,
    /// Threads that run it.
    pub(crate) run_on: RunOn,
    /// Maximum number of active rows.
    pub(crate) tokens: usize,
    /// Bytes of scratch per thread, passed as an additional operand.
    pub(crate) scratch: usize,
    /// Layout of the int8 or bf16 activations, if they are quantized first; they are an additional
    /// operand.
    pub(crate) quantize: Option<ActivationShape>,
    /// Second step that merges partial results, if there is one.
    pub(crate) join: Option<Join>,
    /// Reader of the weights, if the kernel supports several storage types.
    pub(crate) reader: Option<WeightReader>,
    /// Packing method of the weights, operand 0, if they are packed.
    pub(crate) pack: Option<Pack>,
    /// Shape of the matrix product.
    pub(crate) matmul: Option<MatmulShape>,
    /// Parameters of a quantized matrix product.
    pub(crate) codes: Option<QuantizedMatmul>,
}

/// A second step on the operands of the first. Both have the partial results as an additional
/// operand, after scratch; the first step writes it, the second reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    /// Bytes of all partial results.
    pub(crate) bytes: usize,
    /// The kernel.
    pub(crate) entry: Entry,
    /// How the work is divided among threads.
    pub(crate) split: Split,
}

/// Minimum number of elements for sharing work: a few microseconds.
const SHARE_MIN: usize = 4096;

impl Launch {
    /// Runs the operation on one thread if it has few elements, the product of these sizes.
    pub(super) fn single_thread_if_small<const N: usize>(self, sizes: [u32; N]) -> Self {
        let sizes = sizes.map(|size| size as usize);
        let small = sizes.into_iter().fold(1, usize::saturating_mul) < SHARE_MIN;
        Self {
            run_on: if small {
                RunOn::FirstThread
            } else {
                RunOn::AllThreads
            },
            ..self
        }
    }
}
