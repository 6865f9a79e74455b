//! Target type of a tensor.

use super::source_tensor::SourceTensor;
use crate::dtype::DType;
use crate::format::TensorType;

/// Target type of a tensor.
pub(super) struct TensorPlan<'a> {
    pub(super) tensor: &'a SourceTensor<'a>,
    pub(super) to: TensorType,
    pub(super) requested: Option<DType>,
}
