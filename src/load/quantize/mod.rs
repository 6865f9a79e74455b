//! Writes models as GGUF files and ggml files in other storage types, and as Hugging Face folders.

mod export;
mod ggml;
mod gguf;
mod head;
mod keys;
mod lora;
mod mix;
mod rows;
mod source_tensor;
mod speech_export;
mod speech_tensors;
mod tensor_plan;

pub use export::{ExportOptions, export};
pub use gguf::{ConversionReport, QuantizeOptions, TensorReport, quantize};
pub use head::LM_HEAD_TYPES;
pub(super) use head::encode_head;
pub use mix::{QUANT_MIXES, QuantMix};
