//! A folder of compiled models: the first load of a model compiles it, later ones open the compiled file.

use super::write::compile_model;
use super::{Header, VERSION, build};
use crate::cancel::Cancel;
use crate::device::DeviceKind;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{DeviceChoice, DraftingHead, LoadOptions};
use crate::source::Source;
use blake3::Hasher;
use std::fs::{File, Metadata};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum size of a cache in bytes. The models that were used the longest time ago are deleted first.
pub const CACHE_BYTES_MAX: u64 = 32 << 30;

/// Extension of compiled models.
const EXTENSION: &str = "tabla";
/// Extension of files whose time is that of the last use; that of a model that is mapped must not change.
const USED: &str = "used";
/// Extension of files that a process locks while it compiles a model.
const LOCK: &str = "lock";

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

/// Returns the compiled model of a source and the options to load it with: those that are already in its weights are
/// removed. A model that cannot be compiled or written is loaded from its own files, with a warning.
///
/// # Errors
///
/// `Cancelled`.
pub(crate) fn find(
    source: &Source,
    options: &LoadOptions,
    kind: DeviceKind,
) -> Result<(Source, LoadOptions)> {
    let unchanged = || Ok((source.clone(), options.clone()));
    let (Some(folder), Source::Path(path)) = (&options.compiled_cache_path, source) else {
        return unchanged();
    };
    if matches!(options.drafting_head, DraftingHead::Eagle3(_)) || is_compiled(path) {
        return unchanged();
    }
    match compiled(path, folder, options, kind) {
        Ok(compiled) => {
            let mut options = options.clone();
            options.lora.clear();
            Ok((Source::Path(compiled), options))
        }
        Err(error) if error.kind() == ErrorKind::Cancelled => Err(error),
        Err(error) => {
            tracing::warn!("{}: not compiled: {error}", path.display());
            unchanged()
        }
    }
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

/// Returns whether a file is a compiled model, by its key.
fn is_compiled(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == EXTENSION)
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
        let lock = compiled.with_extension(LOCK);
        let file = File::create(&lock).map_err(|e| failed(&lock, e))?;
        // Another process may be compiling the same model. The system unlocks the file when a process ends.
        file.lock().map_err(|e| failed(&lock, e))?;
        if !compiled.is_file() {
            write(path, &compiled, options, kind)?;
            evict(folder, &compiled)?;
        }
        let _ = std::fs::remove_file(&lock);
    }
    let used = compiled.with_extension(USED);
    // Without its time of use, a model is only deleted earlier.
    let _ = std::fs::write(used, []);
    Ok(compiled)
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
        let path = path.canonicalize().map_err(|e| failed(path, e))?;
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

/// Returns the files that a model at `path` may consist of: those of its folder, or of the folder that it is. A single
/// GGUF file is alone.
fn stamped(path: &Path) -> Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = match path.is_dir() {
        true => path,
        false if name.ends_with(".gguf") && !name.contains("-of-") => {
            return Ok(vec![path.to_path_buf()]);
        }
        false => path.parent().unwrap_or(path),
    };
    let entries = folder.read_dir().map_err(|e| failed(folder, e))?;
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        match path.is_dir() {
            // Modules of sentence-transformers.
            true => files.extend(
                path.read_dir()
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|e| e.path()),
            ),
            false => files.push(path),
        }
    }
    files.sort();
    Ok(files)
}

/// Returns what changes if a file is written: size and time.
fn stamp(metadata: &Metadata) -> String {
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    format!("{} {}", metadata.len(), since.as_nanos())
}

fn failed(path: &Path, cause: std::io::Error) -> Error {
    let message = format!("{}: {cause}", path.display());
    Error::new(ErrorKind::Io, message).caused_by(cause)
}
