//! Operands of the builder's methods: activations and weights.

use crate::dtype::DType;
use crate::op::table::Slot;

/// An activation: a slot and its shape per token.
#[derive(Clone, Copy, Debug)]
pub struct X {
    pub(super) slot: Slot,
    pub(super) tokens: u32,
    pub(super) cols: u32,
}

impl X {
    /// Elements per token.
    pub fn cols(self) -> u32 {
        self.cols
    }
}

/// A weight that a recipe asked for, `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct W {
    pub(super) slot: Slot,
    pub(super) dtype: DType,
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) scale: Option<f32>,
}

/// The rows that were quantized last; the products that read them one after another share them.
#[derive(Clone, Copy)]
pub(super) struct Quantized {
    /// What was quantized.
    pub(super) x: Slot,
    /// The numbers in int8.
    pub(super) q: Slot,
    /// One scale for each row.
    pub(super) d: Slot,
}
