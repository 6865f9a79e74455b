//! The source of a model: its files, opened, with their format detected.

use super::hf;
use super::weight::Weight;
use crate::arch;
use crate::error::Result;
use crate::format::{self, Directory};
use std::path::PathBuf;
use std::sync::Arc;

/// Where a model comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file of the user's.
    Path(PathBuf),
    /// The small story model that is part of the library.
    BuiltIn,
}

/// The story model, made by `models/make.py`.
static BUILT_IN: &[u8] = include_bytes!("../../models/story.gguf");

/// The files of a model.
#[derive(Debug)]
pub(super) struct Opened {
    /// Metadata in the keys of GGUF files, and the tensors as they are stored.
    pub(super) file: Arc<Directory>,
    /// What stands beside safetensors.
    pub(super) folder: Option<hf::Folder>,
}

impl Opened {
    /// The weights of a folder as they are stored, fused modules in one; none of a GGUF file.
    pub(super) fn folder_weights(&self) -> Result<Vec<Weight>> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        let name = self.file.metadata.str("general.architecture")?;
        folder.weights(&self.file, arch::find(name.unwrap_or_default())?)
    }
}

pub(super) fn detect(source: &Source) -> Result<format::Kind> {
    match source {
        Source::Path(path) => format::detect(path),
        Source::BuiltIn => Ok(format::Kind::Gguf),
    }
}

pub(super) fn open(source: &Source, kind: format::Kind) -> Result<Opened> {
    let mut file = match source {
        Source::Path(path) => format::open(path)?,
        Source::BuiltIn => format::open_bytes("built-in", BUILT_IN)?,
    };
    let mut folder = None;
    if kind == format::Kind::Safetensors {
        let found = hf::Folder::of(&file)?;
        file.metadata = found.metadata()?;
        folder = Some(found);
    }
    let file = Arc::new(file);
    Ok(Opened { file, folder })
}
