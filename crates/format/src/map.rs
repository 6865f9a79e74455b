//! File contents: mapped read-only, or in memory.
#![expect(unsafe_code, reason = "mapping a file is an unsafe operation")]

use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use memmap2::Mmap;
#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;

use super::faults::Guard;

use tabla_core::error::{Context, Error, ErrorKind, Result, bail};
use tabla_core::utf8;

/// Bytes with a stable address for the lifetime of this value.
pub(super) enum Bytes {
    /// A mapped file. The handle stays open to detect changes of the file.
    Mapped {
        // Dropped before the map is.
        guard: Guard,
        map: Mmap,
        /// Whether pages were replaced by copies, which are not in the file any more once they are released.
        has_copies: AtomicBool,
        file: File,
        modified: Option<SystemTime>,
    },
    /// Bytes in memory: static data, or a buffer.
    Memory(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Bytes {
    /// Maps the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (file, before) = regular_file(path)?;
        if before.len() == 0 {
            // Linux cannot map an empty file; `sniff` reports the error.
            return Ok(Self::memory(b""));
        }
        if cfg!(any(miri, target_family = "wasm")) {
            // Neither maps files.
            if isize::try_from(before.len()).is_err() {
                bail!(
                    TooLarge,
                    "{} bytes, but a file is read into memory here and has at most 2 GiB; split the model into several files",
                    before.len()
                );
            }
            return Ok(Self::memory(
                std::fs::read(path).map_err(|e| io("read failed", e))?,
            ));
        }
        // SAFETY: the map is private and read-only, and nothing in this process writes the file.
        // `open` requires that no other process changes it: a truncated file ends the process
        // with SIGBUS unless faults are caught, and a file overwritten in place changes numbers and
        // text. Offsets and lengths are copied and checked once, so neither leads outside of the map.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| io("mmap failed", e))?;
        let after = file.metadata().map_err(|e| io("stat failed", e))?;
        // Tensors are checked against the length, so it must be unchanged after mapping.
        if usize::try_from(after.len()) != Ok(map.len()) {
            bail!(
                Io,
                "the file changed while it was opened: from {} to {} bytes",
                map.len(),
                after.len()
            );
        }
        Ok(Self::Mapped {
            guard: Guard::of(&map),
            map,
            has_copies: AtomicBool::new(false),
            modified: after.modified().ok(),
            file,
        })
    }

    /// Bytes in memory.
    pub(super) fn memory(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::Memory(Box::new(bytes))
    }

    /// Returns all bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped { map, .. } => map,
            Self::Memory(bytes) => (**bytes).as_ref(),
        }
    }

    /// Copies the bytes from `offset` on. They are read from the file, because pages are mapped more
    /// slowly than they are copied.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let bytes = to.len();
        #[cfg(unix)]
        if let Self::Mapped { file, .. } = self {
            use std::os::unix::fs::FileExt as _;
            let read = file.read_exact_at(to, offset);
            let what = format_args!("reading {bytes} bytes at byte {offset} failed");
            return read.map_err(|e| io(what, e));
        }
        let from = usize::try_from(offset).ok();
        match from.and_then(|at| self.as_slice().get(at..)?.get(..bytes)) {
            Some(from) => to.copy_from_slice(from),
            None => bail!(Io, "{bytes} bytes at byte {offset} are after the end"),
        }
        Ok(())
    }

    /// Releases the mapped pages of a byte range; a later read loads them from the file.
    pub(super) fn release(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        if let Self::Mapped {
            map, has_copies, ..
        } = self
            && range.end <= map.len()
            && !has_copies.load(Ordering::SeqCst)
        {
            /// Size of a huge page in bytes. The range is extended to whole huge pages, because
            /// one access maps a whole huge page.
            const HUGE_PAGE: usize = 2 << 20;
            let start = range.start & !(HUGE_PAGE - 1);
            let end = range.end.next_multiple_of(HUGE_PAGE).min(map.len());
            let advice = UncheckedAdvice::DontNeed;
            // SAFETY: the pages of a read-only file map without copies are clean: dropped pages are read from
            // the file again on the next access.
            let _ = unsafe { map.unchecked_advise_range(advice, start, end.saturating_sub(start)) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    /// Copies a byte range of a mapped file into memory, to where it is mapped: changes of the file then have no effect
    /// on it.
    pub(super) fn copy_in_place(&self, range: Range<usize>) -> Result<()> {
        let Self::Mapped {
            map,
            has_copies,
            file,
            ..
        } = self
        else {
            return Ok(());
        };
        has_copies.store(true, Ordering::SeqCst);
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::FileExt as _;
            let range = range.start..range.end.min(map.len());
            if range.is_empty() {
                return Ok(());
            }
            let bytes = range.len();
            let read = |at: usize, to: &mut [u8]| {
                let at = u64::try_from(at).unwrap_or(u64::MAX);
                file.read_exact_at(to, at)
            };
            let what = format_args!("reading {bytes} bytes at byte {} failed", range.start);
            super::remap::copy_pages(map, range.clone(), read).map_err(|e| io(what, e))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (map, file, range);
            bail!(
                Unsupported,
                "files are only read into memory on Linux; use load mode mmap"
            )
        }
    }

    /// Returns whether the file is on another machine, or on a file system of a program: its pages may then fail to
    /// be read at any time.
    pub(super) fn is_remote(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Self::Mapped { file, .. } = self {
            return super::remap::is_remote(file);
        }
        false
    }

    /// Checks that no page of the mapped file was missing when it was read.
    pub(super) fn check_faults(&self) -> Result<()> {
        match self {
            Self::Mapped { guard, .. } if guard.has_faulted() => bail!(
                Io,
                "the file was truncated while it was in use; load it again"
            ),
            _ => Ok(()),
        }
    }

    /// Checks that the length and modification time of the mapped file have not changed.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        self.check_faults()?;
        let Self::Mapped {
            map,
            file,
            modified,
            ..
        } = self
        else {
            return Ok(());
        };
        let now = file.metadata().map_err(|e| io("stat failed", e))?;
        if usize::try_from(now.len()) != Ok(map.len()) || now.modified().ok() != *modified {
            bail!(
                State,
                "the file has changed since it was opened; load it again"
            );
        }
        Ok(())
    }
}

/// Reads a UTF-8 file of at most `max` bytes, without a byte order mark; `None` if the file does not
/// exist.
pub(super) fn text_file(path: &Path, max: u64) -> Result<Option<String>> {
    let read = || {
        let (file, metadata) = regular_file(path)?;
        if metadata.len() > max {
            bail!(
                Format,
                "{} bytes are over the limit of {max}",
                metadata.len()
            );
        }
        let mut bytes = Vec::new();
        let read = file.take(max).read_to_end(&mut bytes);
        read.map_err(|e| io("read failed", e))?;
        utf8::decode(bytes)
    };
    match path.symlink_metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => read().map(Some).context(path.display()),
    }
}

/// Opens a regular file for reading; fails for directories and special files.
pub(super) fn regular_file(path: &Path) -> Result<(File, Metadata)> {
    // Checked before `File::open`, which blocks on a pipe without a writer.
    let metadata = path.metadata().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::Io, "no such file"),
        _ => io("stat failed", e),
    })?;
    if metadata.is_dir() {
        return directory(path);
    }
    if !metadata.is_file() {
        bail!(Io, "not a regular file");
    }
    let file = File::open(path).map_err(|e| io("open failed", e))?;
    let metadata = file.metadata().map_err(|e| io("stat failed", e))?;
    Ok((file, metadata))
}

/// Returns an error for a directory that names the model file inside it, if any.
fn directory<T>(path: &Path) -> Result<T> {
    let entries = path
        .read_dir()
        .map_err(|e| io("reading the directory failed", e))?;
    let names = entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned());
    // Prefers GGUF files, which can be opened.
    let torch = |n: &String| n.starts_with("pytorch_model");
    let models = names.filter(|n| n.ends_with(".gguf") || torch(n));
    match models.min_by_key(|n| (torch(n), n.clone())) {
        Some(name) if name.ends_with(".gguf") => bail!(Io, "a directory; open {name:?} inside it"),
        Some(name) => bail!(
            Unsupported,
            "a directory with {name:?} but no safetensors; PyTorch checkpoints are not supported"
        ),
        None => bail!(Io, "a directory without a model"),
    }
}

/// Returns an `Io` error from the failed operation and the error of the operating system.
pub(super) fn io(what: impl fmt::Display, cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format_args!("{what}: {cause}")).caused_by(cause)
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let storage = match self {
            Self::Mapped { .. } => "mapped",
            Self::Memory(_) => "in memory",
        };
        write!(f, "{} bytes, {storage}", self.as_slice().len())
    }
}
