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

/// Returns the names of a type in safetensors and in `transformers`.
pub(super) fn name_of(dtype: DType) -> Option<[&'static str; 2]> {
    match dtype {
        DType::F32 => Some(["F32", "float32"]),
        DType::F16 => Some(["F16", "float16"]),
        DType::Bf16 => Some(["BF16", "bfloat16"]),
        _ => None,
    }
}

/// Returns the name of the type of the largest tensor in `transformers`.
pub(super) fn torch_dtype(plans: &[TensorPlan<'_>]) -> &'static str {
    let largest = plans.iter().max_by_key(|p| p.tensor.elements());
    let dtype = largest.and_then(|p| p.to.known()).and_then(name_of);
    dtype.map_or("float16", |names| names[1])
}
