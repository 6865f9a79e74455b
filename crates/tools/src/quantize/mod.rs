//! Writes models as GGUF files and ggml files in other storage types, and as Hugging Face folders.

mod exact;
mod export;
mod ggml;
mod gguf;
mod keys;
mod lora;
mod mix;
mod multipliers;
mod source_tensor;
mod speech_export;
mod speech_tensors;
mod tensor_plan;

pub use export::{ExportOptions, export};
pub use gguf::{ConversionReport, QuantizeOptions, TensorReport, quantize};
pub use mix::{QUANT_MIXES, QuantMix};
