//! The bytes of a file: mapped read-only, or held in memory.
#![expect(unsafe_code, reason = "mapping a file is an unsafe operation")]

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use memmap2::Mmap;
#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;

use tabla_core::error::{Context, Error, ErrorKind, Result, bail};

/// Bytes that stay where they are as long as this value lives.
pub(super) enum Bytes {
    /// A mapped file. The handle stays open so that a change of the file can be seen.
    Mapped {
        map: Mmap,
        file: File,
        modified: Option<SystemTime>,
    },
    /// Bytes of the program itself, or made by a test.
    Held(Cow<'static, [u8]>),
}

impl Bytes {
    /// Maps the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (file, found) = regular_file(path)?;
        if found.len() == 0 {
            // Linux refuses to map nothing; whoever looks at the content names the empty file.
            return Ok(Self::Held(Cow::Borrowed(&[])));
        }
        // SAFETY: the map is private and read-only, and nothing in this process writes the file.
        // That no other process changes it is what `open` asks of its callers: a file cut short
        // ends the process with SIGBUS, and one overwritten in place changes numbers and text.
        // Places and lengths are copied and checked once, so neither leads outside of the map.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| io("cannot be mapped", e))?;
        let after = file.metadata().map_err(|e| io("cannot be examined", e))?;
        // The length decides which tensors are inside: it must hold after mapping too.
        if usize::try_from(after.len()) != Ok(map.len()) {
            bail!(
                Io,
                "the file is being written: {} bytes became {}",
                map.len(),
                after.len()
            );
        }
        Ok(Self::Mapped {
            map,
            modified: after.modified().ok(),
            file,
        })
    }

    /// All bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped { map, .. } => map,
            Self::Held(bytes) => bytes,
        }
    }

    /// Gives the memory of some bytes back to the system until somebody reads them again.
    pub(super) fn release(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        if let Self::Mapped { map, .. } = self
            && range.end <= map.len()
        {
            /// What one touch of a file in huge pages brings into the process, and so what goes:
            /// neighbours that are still read come again.
            const HUGE: usize = 2 << 20;
            let start = range.start & !(HUGE - 1);
            let end = range.end.next_multiple_of(HUGE).min(map.len());
            let advice = UncheckedAdvice::DontNeed;
            // SAFETY: the pages of a read-only map of a file hold what the file holds: dropped,
            // they are read from it again when they are touched.
            let _ = unsafe { map.unchecked_advise_range(advice, start, end.saturating_sub(start)) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    /// Fails when the mapped file has another length or time than when it was opened.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let Self::Mapped {
            map,
            file,
            modified,
        } = self
        else {
            return Ok(());
        };
        let now = file.metadata().map_err(|e| io("cannot be examined", e))?;
        if usize::try_from(now.len()) != Ok(map.len()) || now.modified().ok() != *modified {
            bail!(
                State,
                "the file has changed since it was opened; load it again"
            );
        }
        Ok(())
    }
}

/// The text of a small file; `None` where there is no such file.
pub(super) fn text_file(path: &Path, max: u64) -> Result<Option<String>> {
    let read = || {
        let (file, found) = regular_file(path)?;
        if found.len() > max {
            bail!(Format, "{} bytes are over the limit of {max}", found.len());
        }
        let mut text = String::new();
        let read = file.take(max).read_to_string(&mut text);
        read.map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => {
                Error::new(ErrorKind::Format, "the text is not UTF-8").caused_by(e)
            }
            _ => io("cannot be read", e),
        })?;
        Ok(text)
    };
    match path.symlink_metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => read().map(Some).context(path.display()),
    }
}

/// Opens a regular file for reading; anything else is named in the error.
pub(super) fn regular_file(path: &Path) -> Result<(File, Metadata)> {
    // Looked at before it is opened: opening a pipe would wait for its writer.
    let found = path.metadata().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::Io, "no such file"),
        _ => io("cannot be examined", e),
    })?;
    if found.is_dir() {
        return directory(path);
    }
    if !found.is_file() {
        bail!(Io, "neither a file nor a directory");
    }
    let file = File::open(path).map_err(|e| io("cannot be opened", e))?;
    let found = file.metadata().map_err(|e| io("cannot be examined", e))?;
    Ok((file, found))
}

/// Says what was probably meant by a directory.
fn directory<T>(path: &Path) -> Result<T> {
    let entries = path
        .read_dir()
        .map_err(|e| io("cannot list the directory", e))?;
    let names = entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned());
    // What can be opened comes first.
    let torch = |n: &String| n.starts_with("pytorch_model");
    let models = names.filter(|n| n.ends_with(".gguf") || torch(n));
    match models.min_by_key(|n| (torch(n), n.clone())) {
        Some(name) if name.ends_with(".gguf") => bail!(Io, "a directory; open {name:?} inside it"),
        Some(name) => bail!(
            Unsupported,
            "a directory with {name:?} and no safetensors; PyTorch checkpoints are not read"
        ),
        None => bail!(Io, "a directory that holds no model"),
    }
}

/// An error of the operating system, with what was tried.
pub(super) fn io(what: &str, cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("{what}: {cause}")).caused_by(cause)
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self {
            Self::Mapped { .. } => "mapped",
            Self::Held(_) => "held",
        };
        write!(f, "{} bytes, {how}", self.as_slice().len())
    }
}
