//! Model files: untrusted bytes in, a checked directory of metadata and tensors out.
//!
//! Nothing here knows what a tensor means. Opening reads headers only: tensor data stays in the
//! mapped file, and every place and size of the directory was held against the file's length.
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
mod gguf;
mod imatrix;
mod index;
mod map;
pub mod metadata;
mod reader;
mod safetensors;
mod set;
pub mod tensor;
pub mod value;
pub mod write;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use detect::{Kind, detect};
pub use imatrix::Importance;
pub use metadata::Metadata;
pub use safetensors::safetensors_header;
pub use tensor::{TensorInfo, TensorType};
pub use value::{Array, Value, ValueType};

use map::Bytes;
use set::Set;
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

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    bytes: Arc<Bytes>,
}

/// A file with its header read.
struct Part {
    kind: Kind,
    shard: Shard,
    header: Header,
}

/// What the header of a file says.
struct Header {
    version: Option<u32>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

/// Opens a model: maps the file, or all files of its set, and reads the headers.
///
/// A set is named `name-00001-of-00003.gguf`, or by the `model.safetensors.index.json` of its
/// folder; any part opens all of it. Of safetensors the folder can be opened too.
///
/// The files must stay as they are while the directory lives. Where another program shortens one,
/// reading what is gone makes the system end the process (`SIGBUS`); replacing a file under its
/// name is safe.
///
/// # Errors
/// `Io` where a file is missing, `Format` where one is damaged, `Unsupported` where it is sound but
/// not known here. The message begins with the path and names the byte or the tensor.
pub fn open(path: &Path) -> Result<Directory> {
    if index::is_model(path) {
        let files = index::find(path)?;
        return open_files(&files);
    }
    let part = open_part(path, 0)?;
    match part.kind {
        Kind::Gguf => open_set(path, part),
        Kind::Safetensors => match index::find_beside(path)? {
            Some(files) => open_files(&files),
            None => assemble(vec![part]),
        },
    }
}

/// Opens the files that the parts of a GGUF set name.
fn open_set(path: &Path, part: Part) -> Result<Directory> {
    let count = part
        .header
        .metadata
        .u32("split.count")
        .context(path.display())?
        .unwrap_or(1);
    if count <= 1 {
        return assemble(vec![part]);
    }
    let Some(set) = Set::of(path).filter(|s| s.count == count) else {
        bail!(
            Format,
            "{}: part of a set of {count} files; it must be named `name-00001-of-{count:05}.gguf` \
             for the others to be found",
            path.display()
        );
    };
    set.check_complete()?;
    let mut parts = Vec::new();
    for no in 0..count {
        let path = set.path(no);
        let shard = parts.len();
        parts.push(open_part(&path, shard)?);
        set::check_part(&parts, no, count).context(path.display())?;
    }
    assemble(parts)
}

/// Opens the safetensors of a folder.
fn open_files(files: &index::Files) -> Result<Directory> {
    let parts = files.paths.iter().enumerate();
    let parts = parts
        .map(|(shard, path)| open_part(path, shard))
        .collect::<Result<Vec<_>>>()?;
    if let Some(index) = &files.index {
        index.check(&parts).context(index.folder.display())?;
    }
    assemble(parts)
}

/// Reads a small text that stands beside a model: `None` where there is no such file.
///
/// # Errors
/// `Format` for more than `max` bytes or what is not UTF-8, `Io` where it cannot be read; with the
/// path.
pub fn read_text(path: &Path, max: u64) -> Result<Option<String>> {
    map::text_file(path, max)
}

/// Opens a model that is in memory: the built-in one, or one that a test has written.
///
/// # Errors
/// As [`open`], with `name` in place of the path.
pub fn open_bytes(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Directory> {
    let part = read_part(PathBuf::from(name), Bytes::Held(bytes.into()), 0).context(name)?;
    match part.header.metadata.u32("split.count").context(name)? {
        None | Some(0 | 1) => assemble(vec![part]),
        Some(count) => bail!(
            Format,
            "{name}: part of a set of {count} files, which need a path"
        ),
    }
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

fn open_part(path: &Path, shard: usize) -> Result<Part> {
    Bytes::open(path)
        .and_then(|bytes| read_part(path.to_path_buf(), bytes, shard))
        .context(path.display())
}

fn read_part(path: PathBuf, bytes: Bytes, shard: usize) -> Result<Part> {
    let head = bytes.as_slice();
    let kind = detect::sniff(head.get(..detect::HEAD_BYTES).unwrap_or(head))?;
    let bytes = Arc::new(bytes);
    let header = match kind {
        Kind::Gguf => gguf::parse(&bytes, shard)?,
        Kind::Safetensors => safetensors::parse(bytes.as_slice(), shard)?,
    };
    Ok(Part {
        kind,
        shard: Shard { path, bytes },
        header,
    })
}

fn assemble(parts: Vec<Part>) -> Result<Directory> {
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
