//! A file of a model and its parsed header.

use std::path::PathBuf;
use std::sync::Arc;

use super::map::Bytes;
use super::metadata::Metadata;
use super::tensor::TensorInfo;

/// Format of a model, detected by content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// GGUF: one file or a set of parts.
    Gguf,
    /// ggml file of whisper.cpp.
    Ggml,
    /// Safetensors: one or more files, with `config.json` in the same folder.
    Safetensors,
}

/// A file of a model.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) bytes: Arc<Bytes>,
}

/// A file and its parsed header.
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) shard: Shard,
    pub(super) header: Header,
}

/// The parsed header of a file.
pub(super) struct Header {
    pub(super) version: Option<u32>,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}
