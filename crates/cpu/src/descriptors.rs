//! What link tells a kernel beside its operands: how weights are read, the shape of quantized
//! activations, the parameters of a product.

use crate::panel::affine::Groups;
use crate::panel::{Layout, STRETCH};
#[cfg(target_arch = "x86_64")]
use crate::simd::amx::Amx;
use crate::simd::{Decode, Unpack};
use bytemuck::{Pod, Zeroable};
use tabla_core::dtype::DType;

/// Every place begins at a multiple of this many bytes: a cache line, and the widest vector.
pub(crate) const ALIGN: usize = 64;

/// How a step reads its weights; link chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// As integers.
    Ints(Unpack),
    /// As floats.
    Floats(Decode),
    /// As floats, row by row: out of panels where a product has them packed.
    Rows(Decode, Option<&'static Layout>),
}

/// Rows of activations, and what products want to know of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Shape {
    /// Rows at most.
    pub(crate) tokens: u32,
    /// Elements of a row: whole blocks.
    pub(crate) cols: u32,
    /// Rows of a tile.
    pub(crate) tile: u32,
    /// What is taken from each code of the weights.
    pub(crate) offset: i32,
    /// Whether the two halves of a block are summed apart: 0 or 1.
    pub(crate) halves: u32,
    /// What they become: a [`Number`].
    pub(crate) number: u32,
}

/// What activations become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Blocks of int8.
    Int8,
    /// Pairs of columns of bf16, tokens side by side.
    #[cfg(target_arch = "x86_64")]
    Bf16,
    /// Columns of bf16 by tiles of tokens: 32 of each token in turn.
    #[cfg(target_arch = "x86_64")]
    Bf16Rows,
}

/// Words that a token has of a block: the numbers, their scale, two starts, two sums.
pub(crate) const TOKEN_WORDS: usize = STRETCH / 4 + 5;

/// Bytes of them.
pub(crate) const TOKEN_BYTES: usize = 4 * TOKEN_WORDS;

impl Shape {
    /// Bytes of a tile.
    pub(crate) fn tile_bytes(self) -> usize {
        if self.number != Number::Int8 as u32 {
            let blocks = (self.cols as usize).div_ceil(STRETCH);
            return 2 * STRETCH * blocks * self.tile as usize;
        }
        let blocks = self.cols as usize / STRETCH;
        (blocks * self.tile as usize * TOKEN_BYTES).next_multiple_of(ALIGN)
    }

    /// Tiles of as many rows as there are at most.
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

/// A product of a weight matrix and activations: `y[t, r] = W[r, :] . x[t, :]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    /// Rows of activations at most.
    pub(crate) tokens: u32,
    /// Rows of the matrix.
    pub(crate) rows: usize,
    /// Columns of the matrix.
    pub(crate) cols: usize,
    /// Whether its sums are stored or added.
    pub(crate) write: Write,
}

impl Product {
    /// The columns as shapes of activations have them.
    pub(crate) fn columns(self) -> u32 {
        u32::try_from(self.cols).expect("operations have u32")
    }
}

/// The parameters of a product of codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeProduct {
    /// How the weights are read.
    pub(crate) weights: Weights,
    /// The activations as int8.
    pub(crate) quantized: Shape,
    /// Panels that are multiplied by many tokens together.
    pub(crate) together: usize,
    /// Whether they are multiplied by tiles.
    #[cfg(target_arch = "x86_64")]
    pub(crate) amx: Option<Amx>,
}

/// How the weights of a product of codes are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Weights {
    /// Panels of this type.
    Packed(DType),
    /// Rows of this type as the file has them, which are packed piece by piece.
    Mapped(DType),
    /// Panels of affine codes of this type.
    Groups(DType, Groups),
    /// Rows of any type that can be read as integers, chunk by chunk.
    Chunks,
}

/// Operand of a quantizing step: the activations as f32.
pub(crate) const QUANTISE_X: usize = 0;

/// Operand of a quantizing step: the activations as int8 or bf16.
pub(crate) const QUANTISE_OUT: usize = 1;
