//! Opens models from one file, a set of files, or bytes in memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{self, Directory, assemble};
use super::map::{self, Bytes};
use super::part::{Kind, Part, Shard};
use super::set::{self, Set};
use super::{detect, folder, ggml, gguf, safetensors};
use tabla_core::error::{Context, Result, bail};

/// Opens a model: maps the file, or all files of its set, and reads the headers.
///
/// A set is named `name-00001-of-00003.gguf`, or listed in the `model.safetensors.index.json` of
/// its folder; any part opens the whole set. For safetensors, `path` can also be the folder. An index
/// that does not describe the files is a warning.
///
/// The files must not change while the directory exists. If another program truncates a file,
/// reading the missing part ends the process with `SIGBUS`, unless
/// [`catch_file_faults`](super::catch_file_faults) was called; replacing a file by renaming is safe.
///
/// # Errors
/// `Io` if a file is missing, `Format` if a file is invalid, `Unsupported` for a valid file of an
/// unsupported type or version. The message starts with the path and names the byte or the tensor.
pub fn open(path: &Path) -> Result<Directory> {
    if folder::is_model(path) {
        let files = folder::find(path)?;
        return open_files(&files);
    }
    let part = open_part(path, 0)?;
    match part.kind {
        Kind::Gguf => open_set(path, part),
        Kind::Ggml => assemble(vec![part]),
        Kind::Safetensors => match folder::find_set(path)? {
            Some(files) => open_files(&files),
            None => assemble(vec![part]),
        },
    }
}

/// Opens all files of a GGUF set.
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
            "{}: one of {count} files of a model; expected a file name of the form \
             `name-00001-of-{count:05}.gguf`",
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

/// Opens the safetensors files of a folder.
fn open_files(files: &folder::Files) -> Result<Directory> {
    let parts = files.paths.iter().enumerate();
    let parts = parts
        .map(|(shard, path)| open_part(path, shard))
        .collect::<Result<Vec<_>>>()?;
    let absent = match &files.index {
        Some(index) => index.check(&parts).context(index.folder.display())?,
        None => HashMap::new(),
    };
    let mut directory = assemble(parts)?;
    directory.absent = absent;
    Ok(directory)
}

/// Adds the tensors of another safetensors file of the model to its directory, with `prefix` before
/// their names.
///
/// # Errors
/// As [`open`]; `Format` for a file of another format.
pub fn add_file(directory: &mut Directory, path: &Path, prefix: &str) -> Result<()> {
    let mut part = open_part(path, directory.paths().count())?;
    if part.kind != Kind::Safetensors {
        let kind = part.kind;
        bail!(
            Format,
            "{}: expected a safetensors file, got {kind:?}",
            path.display()
        );
    }
    for tensor in &mut part.header.tensors {
        tensor.name.insert_str(0, prefix);
    }
    directory::add(directory, part)
}

/// Adds all files of another directory, and `prefix` to the names of its tensors. Returns the index of the first of
/// them.
///
/// # Errors
/// `Format` if both have a tensor of the same name.
pub fn append(to: &mut Directory, from: Directory, prefix: &str) -> Result<usize> {
    directory::append(to, from, prefix)
}

/// Reads a text file of at most `max` bytes, without a byte order mark; `None` if the file does not exist.
///
/// # Errors
/// `Format` if the file is larger or not UTF-8 (the message names UTF-16), `Io` if it cannot be read. The message starts with
/// the path.
pub fn read_text(path: &Path, max: u64) -> Result<Option<String>> {
    map::text_file(path, max)
}

/// Opens a model from bytes in memory, such as the built-in model. The bytes must not change.
///
/// # Errors
/// As [`open`], with `name` in place of the path.
pub fn open_bytes(
    name: &str,
    bytes: impl AsRef<[u8]> + Send + Sync + 'static,
) -> Result<Directory> {
    let part = read_part(PathBuf::from(name), Bytes::memory(bytes), 0).context(name)?;
    match part.header.metadata.u32("split.count").context(name)? {
        None | Some(0 | 1) => assemble(vec![part]),
        Some(count) => bail!(
            Format,
            "{name}: one of {count} files of a model; open the model by path"
        ),
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
        Kind::Ggml => ggml::parse(&bytes, shard)?,
        Kind::Safetensors => safetensors::parse(bytes.as_slice(), shard)?,
    };
    Ok(Part {
        kind,
        shard: Shard { path, bytes },
        header,
    })
}
