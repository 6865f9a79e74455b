//! Parameters that link passes to a kernel in addition to its operands: how weights are read, the
//! layout of quantized activations, the shape of a matrix product.

use crate::panel::affine::Groups;
use crate::panel::{Layout, QK};
#[cfg(target_arch = "x86_64")]
use crate::simd::amx::Amx;
use crate::simd::{Decode, Unpack};
use bytemuck::{Pod, Zeroable};
use tabla_core::dtype::DType;

/// Alignment of every buffer in bytes: a cache line and the widest vector.
pub(crate) const ALIGN: usize = 64;

/// Function that unpacks a storage type to integers at a level.
#[derive(Clone, Copy)]
pub(crate) struct IntReader {
    pub(crate) unpack: Unpack,
    /// Whether the type has minima.
    pub(crate) min: bool,
}

/// How a step reads its weights; chosen by link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WeightReader {
    /// As integers.
    Ints(Unpack),
    /// As floats.
    Floats(Decode),
    /// As floats, row by row; from panels if a matrix product has packed the weights.
    Rows(Decode, Option<&'static Layout>),
}

/// Layout of quantized activations.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct ActivationShape {
    /// Maximum number of rows.
    pub(crate) tokens: u32,
    /// Elements of a row: whole blocks.
    pub(crate) cols: u32,
    /// Rows of a tile.
    pub(crate) tile: u32,
    /// Offset subtracted from each code of the weights.
    pub(crate) offset: i32,
    /// Whether the two halves of a block have separate sums: 0 or 1.
    pub(crate) halves: u32,
    /// Target format: an [`ActivationFormat`].
    pub(crate) format: u32,
}

/// Format that activations are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationFormat {
    /// int8, with a scale for each block of [`QK`] columns.
    Int8,
    /// bf16, pairs of columns, tokens interleaved.
    #[cfg(target_arch = "x86_64")]
    Bf16,
    /// bf16 in tiles of tokens: 32 columns of each token in turn.
    #[cfg(target_arch = "x86_64")]
    Bf16Rows,
}

/// Words of a block for one token: the int8 values, their scale, two start values, two sums.
pub(crate) const TOKEN_WORDS: usize = QK / 4 + 5;

/// Bytes of a block for one token.
pub(crate) const TOKEN_BYTES: usize = 4 * TOKEN_WORDS;

impl ActivationShape {
    /// Bytes of a tile.
    pub(crate) fn tile_bytes(self) -> usize {
        if self.format != ActivationFormat::Int8 as u32 {
            let blocks = (self.cols as usize).div_ceil(QK);
            return 2 * QK * blocks * self.tile as usize;
        }
        let blocks = self.cols as usize / QK;
        (blocks * self.tile as usize * TOKEN_BYTES).next_multiple_of(ALIGN)
    }

    /// Number of tiles for the maximum number of rows.
    pub(crate) fn tiles(self) -> usize {
        self.tokens.div_ceil(self.tile) as usize
    }
}

/// Whether an operation overwrites its output or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// `y = ...`
    Store,
    /// `y += ...`
    Add,
}

/// Shape of a matrix product: `y[t, r] = W[r, :] . x[t, :]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatmulShape {
    /// Maximum number of activation rows.
    pub(crate) tokens: u32,
    /// Rows of the matrix.
    pub(crate) rows: usize,
    /// Columns of the matrix.
    pub(crate) cols: usize,
    /// Whether the result is stored or added.
    pub(crate) write: Write,
    /// Experts that the rows of the matrix belong to, if tokens select experts.
    pub(crate) experts: Option<ExpertShape>,
}

/// A product with the experts that each token selects: `y[t, s, r] = W[ids[t, s], r, :] . x[t, s or 0, :]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertShape {
    /// Rows of an expert.
    pub(crate) rows: usize,
    /// Selected experts per token.
    pub(crate) k: usize,
    /// Whether a token has a row of activations per selected expert.
    pub(crate) per_expert: bool,
    /// Pairs of a tile, if an earlier operation has grouped pairs of token and expert by expert.
    pub(crate) tile: Option<usize>,
}

impl MatmulShape {
    /// The number of columns of a token as [`ActivationShape`] stores it.
    pub(crate) fn columns(self) -> u32 {
        let rows = match self.experts {
            Some(ExpertShape {
                k,
                per_expert: true,
                ..
            }) => k,
            _ => 1,
        };
        u32::try_from(rows * self.cols).expect("the operation stores it as u32")
    }
}

/// Parameters of a product of quantized weights and int8 activations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantizedMatmul {
    /// How the weights are read.
    pub(crate) weights: Weights,
    /// Layout of the int8 activations.
    pub(crate) quantized: ActivationShape,
    /// Proof of AMX if tiles compute the product.
    #[cfg(target_arch = "x86_64")]
    pub(crate) amx: Option<Amx>,
}

/// Storage of the weights of a quantized product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Weights {
    /// Packed panels of this type.
    Packed(DType),
    /// Rows as stored in the file; packed into panels while they are read.
    Mapped(DType),
    /// Packed panels of affine codes.
    Groups(Groups),
    /// Rows of any type that unpacks to integers, read chunk by chunk.
    Chunks,
}

/// Operand of a quantize step: f32 activations.
pub(crate) const QUANTIZE_X: usize = 0;

/// Operand of a quantize step: int8 or bf16 activations.
pub(crate) const QUANTIZE_OUT: usize = 1;
