//! A folder of compiled models: the first load of a model compiles it, later ones open the compiled file.

use super::write::compile_model;
use super::{Header, VERSION, build};
use crate::cancel::Cancel;
use crate::device::{DeviceKind, Profile};
use crate::error::{Error, ErrorKind, Result, bail};
use crate::exec::Layout;
use crate::format::{Kind, detect};
use crate::options::{DeviceChoice, LoadOptions};
use crate::output;
use crate::source::{Opened, Source, open_for};
use blake3::Hasher;
use std::fs::{File, Metadata, TryLockError};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Maximum size of a cache in bytes. The models that were used the longest time ago are deleted first.
pub const CACHE_BYTES_MAX: u64 = 32 << 30;

/// Extension of compiled models.
const EXTENSION: &str = "tabla";
/// Extension of files whose time is that of the last use; that of a model that is mapped must not change.
const USED: &str = "used";
/// Extension of files that a process locks while it compiles a model.
const LOCK: &str = "lock";

/// File of a tokenizer, which a model in one file may have next to it.
const TOKENIZER: &str = "tokenizer.json";

/// A model in a cache.
#[derive(Clone, Debug)]
pub struct CachedModel {
    /// Path of the compiled model.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last use.
    pub used: SystemTime,
    /// Properties; `None` for a file that this version cannot read.
    pub header: Option<Header>,
}

/// Opens the compiled model of a source, and returns the options to load it with: without those that are already in its
/// weights. `None` without a cache, and with a warning for a model that cannot be compiled, written or opened.
///
/// # Errors
///
/// `Cancelled`.
pub(crate) fn open_cached(
    source: &Source,
    options: &LoadOptions,
    profile: &Profile,
) -> Result<Option<(Opened, LoadOptions)>> {
    let (Some(folder), Source::Path(path)) = (&options.compiled_cache_path, source) else {
        return Ok(None);
    };
    if is_compiled(path) {
        return Ok(None);
    }
    let mut merged = options.clone();
    merged.lora.clear();
    let opened = fits(options, &merged, profile).and_then(|()| {
        let compiled = compiled(path, folder, options, profile.kind)?;
        let open = || {
            open_for(
                &Source::Path(compiled.clone()),
                Kind::Gguf,
                &merged,
                profile,
            )
        };
        open().or_else(|error| {
            match error.kind() {
                ErrorKind::Format | ErrorKind::Unsupported => {
                    let _ = std::fs::remove_file(&compiled);
                }
                // Another process has deleted it.
                ErrorKind::Io if !compiled.exists() => {}
                // Another process may be able to open it.
                _ => return Err(error),
            }
            tracing::warn!("{error}; compiling {} again", path.display());
            self::compiled(path, folder, options, profile.kind)?;
            open()
        })
    });
    match opened {
        Ok(opened) => Ok(Some((opened, merged))),
        Err(error) if error.kind() == ErrorKind::Cancelled => Err(error),
        Err(error) => {
            tracing::warn!("{}: not compiled: {error}", path.display());
            Ok(None)
        }
    }
}

/// Checks that the device reads what would be compiled for it.
fn fits(options: &LoadOptions, merged: &LoadOptions, profile: &Profile) -> Result<()> {
    let layout = match profile.kind {
        DeviceKind::Cpu => Layout::Panels,
        DeviceKind::Gpu => Layout::Sections,
    };
    Header::of(options, &[layout])?.check(merged, profile)
}

/// Lists the models of a cache, those that were used last first.
///
/// # Errors
///
/// `Io` if the folder cannot be read; a folder that does not exist is empty.
pub fn cached_models(folder: &Path) -> Result<Vec<CachedModel>> {
    let entries = match folder.read_dir() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| failed(folder, e))?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let compiled = paths.filter(|path| path.extension().is_some_and(|e| e == EXTENSION));
    let model = |path: PathBuf| {
        let metadata = path.metadata().ok()?;
        let used = path.with_extension(USED).metadata();
        let used = used
            .and_then(|used| used.modified())
            .or(metadata.modified());
        let header = crate::format::open(&path).and_then(|file| Header::read(&file));
        Some(CachedModel {
            bytes: metadata.len(),
            used: used.unwrap_or(SystemTime::UNIX_EPOCH),
            header: header.ok().flatten(),
            path,
        })
    };
    let mut models: Vec<_> = compiled.filter_map(model).collect();
    models.sort_by_key(|model| std::cmp::Reverse(model.used));
    Ok(models)
}

/// Returns whether a file is a compiled model. Its header is read only if its name does not end in `.gguf`: reading the
/// header of a large model twice would take longer than opening it from the cache.
fn is_compiled(path: &Path) -> bool {
    path.extension().is_none_or(|e| e != "gguf")
        && path.is_file()
        && detect(path).is_ok_and(|kind| kind == Kind::Gguf)
        && crate::format::open(path).is_ok_and(|file| Header::of_any_build(&file.metadata).is_ok())
}

/// Returns the path of the compiled model, which is written if needed.
fn compiled(
    path: &Path,
    folder: &Path,
    options: &LoadOptions,
    kind: DeviceKind,
) -> Result<PathBuf> {
    let key = key(path, options, kind)?;
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let compiled = folder.join(format!("{stem}-{key}.{EXTENSION}"));
    if !compiled.is_file() {
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let lock = Lock::new(compiled.with_extension(LOCK), options)?;
        // Another process may have compiled it.
        if !compiled.is_file() {
            // With the lock, no process writes them any more.
            output::remove_parts(&compiled);
            write(path, &compiled, options, kind)?;
            evict(folder, &compiled)?;
        }
        drop(lock);
    }
    let used = compiled.with_extension(USED);
    // Without its time of use, a model is only deleted earlier.
    let _ = std::fs::write(used, []);
    Ok(compiled)
}

/// A locked file, which is deleted at the end. The system unlocks it when a process ends.
struct Lock(PathBuf, File);

impl Lock {
    /// Waits for other processes, until loading is cancelled.
    fn new(path: PathBuf, options: &LoadOptions) -> Result<Self> {
        let file = File::create(&path).map_err(|e| failed(&path, e))?;
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if options.cancel.as_ref().is_some_and(Cancel::take_pending) {
                bail!(Cancelled, "loading was stopped");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self(path, file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that waits for the deleted file compiles the model again at worst.
        let _ = std::fs::remove_file(&self.0);
        let _ = self.1.unlock();
    }
}

fn write(path: &Path, compiled: &Path, options: &LoadOptions, kind: DeviceKind) -> Result<()> {
    let device = match kind {
        DeviceKind::Cpu => DeviceChoice::Cpu,
        DeviceKind::Gpu => DeviceChoice::Gpu,
    };
    let source = Source::Path(path.to_path_buf());
    let cancelled = || options.cancel.as_ref().is_some_and(Cancel::take_pending);
    let mut progress = |_, _| match cancelled() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    compile_model(&source, compiled, &[device], options, &mut progress).map(drop)
}

/// Deletes the models that were used the longest time ago until the cache is within its limit. `kept` is not deleted.
fn evict(folder: &Path, kept: &Path) -> Result<()> {
    let models = cached_models(folder)?;
    let mut total: u64 = models.iter().map(|model| model.bytes).sum();
    for model in models.iter().rev().filter(|model| model.path != kept) {
        if total <= CACHE_BYTES_MAX {
            break;
        }
        // A process that has mapped the file keeps it.
        if std::fs::remove_file(&model.path).is_ok() {
            let _ = std::fs::remove_file(model.path.with_extension(USED));
            total -= model.bytes;
        }
    }
    Ok(())
}

/// Returns a digest of the files of a model and of the options that its weights depend on.
fn key(path: &Path, options: &LoadOptions, kind: DeviceKind) -> Result<String> {
    let mut hasher = Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(&format!("{VERSION} {}", build()));
    let lora = options.lora.iter();
    let files = lora.map(|(adapter, _)| adapter.as_path()).chain([path]);
    for path in files {
        // Not the target of a link, which in the cache of the Hub is in another folder than the files next to it.
        let path = std::path::absolute(path).map_err(|e| failed(path, e))?;
        for file in stamped(&path)? {
            let metadata = file.metadata().map_err(|e| failed(&file, e))?;
            add(&format!("{} {}", file.display(), stamp(&metadata)));
        }
    }
    let LoadOptions {
        precision,
        i2s_layout,
        lm_head_type,
        lora,
        drafting_head,
        cpu_experts,
        adapter,
        shader_path,
        ..
    } = options;
    add(&format!(
        "{kind:?} {precision:?} {i2s_layout:?} {lm_head_type:?} {lora:?}"
    ));
    add(&format!(
        "{drafting_head:?} {cpu_experts:?} {adapter:?} {shader_path:?}"
    ));
    Ok(hasher.finalize().to_hex()[..16].to_string())
}

/// Returns the files that a model at `path` may consist of: all of a folder of safetensors and of the folders in it, or a
/// file, the other parts of its set, and the tokenizer next to it.
fn stamped(path: &Path) -> Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = path.parent().unwrap_or(path);
    let mut files = if path.is_dir() || name.contains(".safetensors") {
        let folder = if path.is_dir() { path } else { parent };
        let (folders, mut files): (Vec<_>, Vec<_>) =
            entries(folder)?.into_iter().partition(|path| path.is_dir());
        for folder in folders {
            files.extend(entries(&folder)?);
        }
        files
    } else {
        let set = name.find("-of-").and_then(|at| name[..at].rfind('-'));
        let set = set.map(|end| &name[..end]);
        let mut files = entries(parent)?;
        files.retain(|file| {
            let file = file.file_name().unwrap_or_default().to_string_lossy();
            file == name || file == TOKENIZER || set.is_some_and(|set| file.starts_with(set))
        });
        files
    };
    files.sort();
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().map_err(|e| failed(folder, e))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Returns what changes if a file is written or replaced: its size and times, and on Unix its number.
fn stamp(metadata: &Metadata) -> String {
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let stamp = format!("{} {}", metadata.len(), since.as_nanos());
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let (changed, nanos) = (metadata.ctime(), metadata.ctime_nsec());
        format!(
            "{stamp} {changed}.{nanos} {} {}",
            metadata.dev(),
            metadata.ino()
        )
    }
    #[cfg(not(unix))]
    stamp
}

fn failed(path: &Path, cause: std::io::Error) -> Error {
    let message = format!("{}: {cause}", path.display());
    Error::new(ErrorKind::Io, message).caused_by(cause)
}
