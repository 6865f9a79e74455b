//! A file of a model, and what its header says.

use std::path::PathBuf;
use std::sync::Arc;

use super::map::Bytes;
use super::metadata::Metadata;
use super::tensor::TensorInfo;

/// What a file is, told by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One GGUF file or a set of parts.
    Gguf,
    /// Safetensors, one file or several, with the configuration beside them.
    Safetensors,
}

/// A file of a model.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) bytes: Arc<Bytes>,
}

/// A file with its header read.
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) shard: Shard,
    pub(super) header: Header,
}

/// What the header of a file says.
pub(super) struct Header {
    pub(super) version: Option<u32>,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}
