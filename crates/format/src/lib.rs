//! Parsers for model files: untrusted bytes in, a validated directory of metadata and tensors out.
//!
//! This crate is independent of model architectures. Opening reads headers only: tensor data stays
//! in the mapped file, and every offset and size is checked against the file's length.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod detect;
mod directory;
mod faults;
mod folder;
mod ggml;
mod gguf;
mod imatrix;
mod index;
mod map;
pub mod metadata;
pub mod npy;
mod open;
mod part;
mod reader;
#[cfg(target_os = "linux")]
mod remap;
mod safetensors;
mod set;
pub mod tensor;
pub mod value;
pub mod write;

#[cfg(test)]
mod malformed_tests;
#[cfg(test)]
mod tests;

pub use detect::{detect, detect_bytes};
pub use directory::{Directory, SharedBytes};
pub use faults::catch_file_faults;
pub use imatrix::Importance;
pub use metadata::Metadata;
pub use open::{add_file, append, open, open_bytes, read_text};
pub use part::Kind;
pub use safetensors::safetensors_header;
pub use tensor::{TensorInfo, TensorType};
pub use value::{Array, Value, ValueType};
