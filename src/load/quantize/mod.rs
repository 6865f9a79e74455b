//! Writes models in other storage types, as GGUF files and as folders of Hugging Face.

mod export;
mod gguf;
mod head;
mod keys;
mod mix;
mod rows;
mod stored;

pub use export::{Export, export};
pub use gguf::{Quantize, Quantized, Written, quantize};
pub use head::HEAD_TYPES;
pub(super) use head::encode_head;
pub use mix::{MIXES, Mix};
