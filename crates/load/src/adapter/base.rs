//! The model that an adapter is applied to.

use crate::arch::{Arch, LayerConfig};

/// Properties of the model that an adapter is applied to.
#[expect(missing_debug_implementations, reason = "has a closure")]
pub struct AdapterBase<'a> {
    /// Architecture.
    pub arch: &'static Arch,
    /// Hyperparameters of each layer.
    pub layers: &'a [LayerConfig],
    /// Whether the rows of Q and K are in the order of Hugging Face's files, half-split or not.
    pub half_split: bool,
    /// Returns the rows and columns of a weight by its GGUF name without `.weight`, with fused
    /// modules split. `None` if there is no such weight.
    pub shape: &'a dyn Fn(&str) -> Option<[u32; 2]>,
}
