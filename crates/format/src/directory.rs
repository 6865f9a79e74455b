//! The directory of a model: metadata, tensors and the location of their data.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::metadata::{self, Metadata};
use super::part::{Kind, Part, Shard};
use super::tensor::TensorInfo;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// Bytes that several owners share.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The contents of a model file or of a set of files.
#[derive(Debug)]
pub struct Directory {
    /// The format of the files.
    pub kind: Kind,
    /// Format version of the first file; `None` for safetensors and ggml.
    pub version: Option<u32>,
    /// Metadata of the first file; the metadata of other parts is ignored.
    /// Empty for safetensors, whose metadata is in `config.json`.
    pub metadata: Metadata,
    /// All tensors, in file order.
    pub tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, sorted by name.
    by_name: Vec<u32>,
    shards: Vec<Shard>,
    /// Tensors that only the index of a folder lists, and the names of their files.
    pub(super) absent: HashMap<String, String>,
}

impl Directory {
    /// Returns the tensor named `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(self.index(name)?)
    }

    /// Returns the name of the missing file in which the index of the folder lists a tensor that no file
    /// has.
    pub fn missing_file(&self, tensor: &str) -> Option<&str> {
        self.absent.get(tensor).map(String::as_str)
    }

    /// Returns the index of a tensor in `tensors`.
    pub fn index(&self, name: &str) -> Option<usize> {
        metadata::find(&self.tensors, &self.by_name, |t| &t.name, name)
    }

    /// Returns the bytes of a tensor without a copy.
    ///
    /// The slice may be unaligned: the alignment depends on the file.
    ///
    /// # Panics
    /// If `tensor` belongs to another directory.
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
        range().expect("`open` checks the range of every tensor")
    }

    /// Returns the bytes of the file of a tensor, and the range of the tensor in them; `None` if there is no such
    /// tensor. The bytes remain when the directory is dropped.
    pub fn shared(&self, name: &str) -> Option<(SharedBytes, Range<usize>)> {
        let tensor = self.tensor(name)?;
        let start = usize::try_from(tensor.offset).ok()?;
        let end = start.checked_add(self.bytes(tensor).len())?;
        let bytes: SharedBytes = Arc::clone(&self.shards.get(tensor.shard)?.bytes) as _;
        Some((bytes, start..end))
    }

    /// Returns the bytes of the first file before the data of its first tensor.
    pub fn head(&self) -> &[u8] {
        let tensors = self.tensors.iter().filter(|t| t.shard == 0);
        let first = tensors.map(|t| t.offset).min().unwrap_or(u64::MAX);
        let bytes = self.shards.first().map_or(&[][..], |s| s.bytes.as_slice());
        let end = usize::try_from(first).map_or(bytes.len(), |first| first.min(bytes.len()));
        bytes.get(..end).unwrap_or_default()
    }

    /// Copies the bytes of a tensor from byte `first` on, without mapping them into memory. A file
    /// that was truncated is an error, unlike for [`bytes`](Self::bytes).
    ///
    /// # Errors
    /// `Io` if the file cannot be read, `Argument` if the tensor has fewer bytes.
    pub fn read(&self, tensor: &TensorInfo, first: usize, to: &mut [u8]) -> Result<()> {
        let locate = || {
            let first = u64::try_from(first).ok()?;
            let end = first.checked_add(u64::try_from(to.len()).ok()?)?;
            let shard = self.shards.get(tensor.shard)?;
            let offset = tensor.offset.checked_add(first)?;
            (end <= tensor.bytes).then_some((shard, offset))
        };
        let Some((shard, offset)) = locate() else {
            bail!(
                Argument,
                "tensor {}: {} bytes from byte {first} on exceed its {} bytes",
                tensor.name,
                to.len(),
                tensor.bytes
            );
        };
        let read = shard.bytes.read(offset, to);
        read.context(format_args!(
            "{}: tensor {}",
            shard.path.display(),
            tensor.name
        ))
    }

    /// Advises the system that a byte range of a tensor is unlikely to be read again, so that its
    /// mapped pages can be reclaimed. A later read loads them from the file.
    pub fn release(&self, tensor: &TensorInfo, range: Range<usize>) {
        let locate = || {
            let start = usize::try_from(tensor.offset).ok()?;
            let range = start.checked_add(range.start)?..start.checked_add(range.end)?;
            Some((self.shards.get(tensor.shard)?, range))
        };
        if let Some((shard, range)) = locate() {
            shard.bytes.release(range);
        }
    }

    /// Copies tensors and the headers of all files into memory, to where they are mapped: changes of the files then have
    /// no effect on them.
    ///
    /// # Errors
    /// `Io` if a file cannot be read, or memory is not allocated; `Unsupported` except on Linux.
    pub fn copy_in_place(&self, tensors: &[&TensorInfo]) -> Result<()> {
        /// Tensors with a smaller distance, such as padding, are copied together.
        const GAP: u64 = 4096;
        for (number, shard) in self.shards.iter().enumerate() {
            let own = self.tensors.iter().filter(|t| t.shard == number);
            let head = own.map(|t| t.offset).min().unwrap_or(u64::MAX);
            let tensors = tensors.iter().filter(|t| t.shard == number);
            let ends = tensors.map(|t| (t.offset, t.offset.saturating_add(t.bytes)));
            let mut ranges: Vec<(u64, u64)> = std::iter::once((0, head)).chain(ends).collect();
            ranges.sort_unstable();
            ranges.dedup_by(|(start, end), (_, last)| {
                let is_near = *start <= last.saturating_add(GAP);
                if is_near {
                    *last = (*last).max(*end);
                }
                is_near
            });
            for (start, end) in ranges {
                let [start, end] = [start, end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
                let copied = shard.bytes.copy_in_place(start..end);
                copied.context(shard.path.display())?;
            }
        }
        Ok(())
    }

    /// Returns whether a file is on another machine, or on a file system of a program.
    pub fn is_remote(&self) -> bool {
        self.shards.iter().any(|s| s.bytes.is_remote())
    }

    /// Checks that no page of a file was missing when it was read, after
    /// [`catch_file_faults`](super::catch_file_faults).
    ///
    /// # Errors
    /// `Io` with the path of a file that was truncated.
    pub fn check_faults(&self) -> Result<()> {
        self.shards
            .iter()
            .try_for_each(|s| s.bytes.check_faults().context(s.path.display()))
    }

    /// Returns the total size of all files in bytes.
    pub fn file_bytes(&self) -> u64 {
        let lengths = self.shards.iter().map(|s| s.bytes.as_slice().len());
        lengths.fold(0, |sum, n| {
            sum.saturating_add(u64::try_from(n).unwrap_or(u64::MAX))
        })
    }

    /// Returns the name of the first file, for messages and listings.
    pub fn name(&self) -> Cow<'_, str> {
        let first = self.shards.first().and_then(|s| s.path.file_name());
        first.map_or(Cow::Borrowed(""), OsStr::to_string_lossy)
    }

    /// Returns the paths of the files, indexed by [`TensorInfo::shard`].
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(|s| s.path.as_path())
    }

    /// Checks that no file has changed since it was opened.
    ///
    /// # Errors
    /// `State` with the path of the changed file.
    pub fn check_unchanged(&self) -> Result<()> {
        self.shards
            .iter()
            .try_for_each(|s| s.bytes.check_unchanged().context(s.path.display()))
    }
}

/// Adds the tensors of a file, whose `shard` is the number of files so far.
pub(super) fn add(directory: &mut Directory, part: Part) -> Result<()> {
    directory.tensors.extend(part.header.tensors);
    directory.shards.push(part.shard);
    directory.by_name = sorted(&directory.tensors, &directory.shards)?;
    Ok(())
}

/// Adds all files of another directory, and `prefix` to the names of its tensors. Returns the index of the first of
/// them.
pub(super) fn append(to: &mut Directory, from: Directory, prefix: &str) -> Result<usize> {
    let (first, shards) = (to.tensors.len(), to.shards.len());
    to.tensors
        .extend(from.tensors.into_iter().map(|tensor| TensorInfo {
            name: format!("{prefix}{}", tensor.name),
            shard: shards.saturating_add(tensor.shard),
            ..tensor
        }));
    to.shards.extend(from.shards);
    to.by_name = sorted(&to.tensors, &to.shards)?;
    Ok(first)
}

/// Combines the files of a model into one directory.
pub(super) fn assemble(parts: Vec<Part>) -> Result<Directory> {
    let (mut tensors, mut shards, mut first) = (Vec::new(), Vec::new(), None);
    for part in parts {
        tensors.extend(part.header.tensors);
        shards.push(part.shard);
        first.get_or_insert((part.kind, part.header.version, part.header.metadata));
    }
    let by_name = sorted(&tensors, &shards)?;
    let Some((kind, version, metadata)) = first else {
        bail!(Internal, "empty file set");
    };
    Ok(Directory {
        kind,
        version,
        metadata,
        tensors,
        by_name,
        shards,
        absent: HashMap::new(),
    })
}

/// Returns the indices of tensors, sorted by name.
fn sorted(tensors: &[TensorInfo], shards: &[Shard]) -> Result<Vec<u32>> {
    metadata::sorted(tensors, |t| &t.name).map_err(|(a, b)| {
        let path = shards
            .get(b.shard)
            .map_or(Path::new(""), |s| &s.path)
            .display();
        let (name, one, other) = (&a.name, a.offset, b.offset);
        Error::new(
            ErrorKind::Format,
            format_args!("{path}: tensor {name} is listed twice, at bytes {one} and {other}"),
        )
    })
}
