//! Operands of builder methods: activations and weights.

use tabla_core::dtype::DType;
use tabla_core::op::table::Slot;

/// Activations: a slot, `[tokens, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct X {
    pub(super) slot: Slot,
    pub(super) tokens: u32,
    pub(super) cols: u32,
}

impl X {
    /// Returns the number of elements per token.
    pub fn cols(self) -> u32 {
        self.cols
    }
}

/// Weight, `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct W {
    pub(super) slot: Slot,
    pub(super) dtype: DType,
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) scale: Option<f32>,
}

/// Activations that were quantized last; consecutive products of the same activations share them.
#[derive(Clone, Copy)]
pub(super) struct Quantized {
    /// Source activations.
    pub(super) x: Slot,
    /// int8 values.
    pub(super) q: Slot,
    /// One scale per row.
    pub(super) d: Slot,
}
