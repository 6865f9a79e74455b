//! The directory of a model: its metadata, its tensors and where their bytes are.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;

use super::metadata::{self, Metadata};
use super::part::{Kind, Part, Shard};
use super::tensor::TensorInfo;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// What a model file, or a set of files, holds.
#[derive(Debug)]
pub struct Directory {
    /// The format of the files.
    pub kind: Kind,
    /// The format's version, as the first file says; `None` for a format that has none.
    pub version: Option<u32>,
    /// The metadata of the first file; those of other parts of a set repeat nothing of use.
    /// Safetensors have none: who knows what a model is reads it from beside them.
    pub metadata: Metadata,
    /// All tensors, in the order of the files.
    pub tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, sorted by name.
    by_name: Vec<u32>,
    shards: Vec<Shard>,
}

impl Directory {
    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(self.index(name)?)
    }

    /// The place of a tensor in `tensors`.
    pub fn index(&self, name: &str) -> Option<usize> {
        metadata::find(&self.tensors, &self.by_name, |t| &t.name, name)
    }

    /// The bytes of a tensor, in place.
    ///
    /// Their address may be odd: the file chooses its alignment, and memory has its own.
    ///
    /// # Panics
    /// When `tensor` is not of this directory.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        let range = || {
            let start = usize::try_from(tensor.offset).ok()?;
            let end = start.checked_add(usize::try_from(tensor.bytes).ok()?)?;
            self.shards
                .get(tensor.shard)?
                .bytes
                .as_slice()
                .get(start..end)
        };
        range().expect("opening has checked the place of every tensor of this directory")
    }

    /// Says that some bytes of a tensor will hardly be read again: where they are mapped, the
    /// system may have their memory back until somebody reads them.
    pub fn release(&self, tensor: &TensorInfo, range: Range<usize>) {
        let place = || {
            let start = usize::try_from(tensor.offset).ok()?;
            let range = start.checked_add(range.start)?..start.checked_add(range.end)?;
            Some((self.shards.get(tensor.shard)?, range))
        };
        if let Some((shard, range)) = place() {
            shard.bytes.release(range);
        }
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        let lengths = self.shards.iter().map(|s| s.bytes.as_slice().len());
        lengths.fold(0, |sum, n| {
            sum.saturating_add(u64::try_from(n).unwrap_or(u64::MAX))
        })
    }

    /// The name of the first file, for messages and listings.
    pub fn name(&self) -> Cow<'_, str> {
        let first = self.shards.first().and_then(|s| s.path.file_name());
        first.map_or(Cow::Borrowed(""), OsStr::to_string_lossy)
    }

    /// The files, in the order of [`TensorInfo::shard`].
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|s| s.path.as_path())
    }

    /// Fails when a file has changed since it was opened.
    ///
    /// # Errors
    /// `State` with the path of the file.
    pub fn check_unchanged(&self) -> Result<()> {
        self.shards
            .iter()
            .try_for_each(|s| s.bytes.check_unchanged().context(s.path.display()))
    }
}

/// Joins the files of a model.
pub(super) fn assemble(parts: Vec<Part>) -> Result<Directory> {
    let (mut tensors, mut shards, mut first) = (Vec::new(), Vec::new(), None);
    for part in parts {
        tensors.extend(part.header.tensors);
        shards.push(part.shard);
        first.get_or_insert((part.kind, part.header.version, part.header.metadata));
    }
    let by_name = metadata::sorted(&tensors, |t| &t.name).map_err(|(a, b)| {
        let path = shards
            .get(b.shard)
            .map_or(Path::new(""), |s| &s.path)
            .display();
        let (name, one, other) = (&a.name, a.offset, b.offset);
        let places = format_args!("at byte {one} and at byte {other}").to_string();
        Error::new(
            ErrorKind::Format,
            format_args!("{path}: tensor {name} is listed twice, with data {places}"),
        )
    })?;
    let Some((kind, version, metadata)) = first else {
        bail!(Internal, "a set without files");
    };
    Ok(Directory {
        kind,
        version,
        metadata,
        tensors,
        by_name,
        shards,
    })
}
