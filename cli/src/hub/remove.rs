//! Removes models and interrupted downloads from the cache.

use super::cache::{Cache, files_below};
use super::{HubModel, choose, stored};
use crate::output::Failure;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Suffix of partial blobs.
const INCOMPLETE: &str = ".incomplete";

/// The files that the removal of a model deletes. Everything is below the folder of the model in the cache.
pub(crate) struct Removal {
    /// Number of bytes that the files use.
    pub(crate) bytes: u64,
    /// Number of bytes of the model that other snapshots or models use too. They stay.
    pub(crate) shared_bytes: u64,
    cache: Cache,
    /// Links of the snapshot; on Windows also files.
    links: Vec<PathBuf>,
    /// Files of `blobs`, complete or partial.
    blobs: Vec<PathBuf>,
}

impl Removal {
    /// Returns the removal of `ORG/REPO:QUANT`, or of `ORG/REPO` with all its files.
    pub(crate) fn of(name: &str) -> Result<Self, Failure> {
        let model: HubModel = name.parse().map_err(|_| stored::unknown(name))?;
        let cache = Cache::of(&model.repo)?;
        if !cache.folder().exists() {
            return Err(stored::unknown(name));
        }
        check_folders(&cache)?;
        let (links, blobs) = match &model.file_or_quant {
            None => (existing(cache.snapshots())?, existing(cache.blobs())?),
            Some(file_or_quant) => {
                let commit = cache.commit().ok_or_else(|| stored::unknown(name))?;
                let names = cache.names(&commit)?;
                let selection = choose::choose(&names, Some(file_or_quant))
                    .map_err(|_| stored::unknown(name))?;
                let links = stored::files(&selection, &names, &cache.snapshot(&commit))?.0;
                let blobs = links.iter().filter_map(|link| blob_of(&cache, link));
                let blobs = blobs.collect();
                (links, blobs)
            }
        };
        let mut removal = Self {
            bytes: 0,
            shared_bytes: 0,
            cache,
            links,
            blobs,
        };
        removal.keep_shared_blobs()?;
        removal.bytes = file_bytes(&removal.blobs) + file_bytes(&removal.links);
        Ok(removal)
    }

    /// Keeps the blobs that other links of the model's folder use.
    fn keep_shared_blobs(&mut self) -> Result<(), Failure> {
        let removed: BTreeSet<&PathBuf> = self.links.iter().collect();
        let others = existing(self.cache.snapshots())?;
        let others = others.iter().filter(|link| !removed.contains(link));
        let used: BTreeSet<PathBuf> = others
            .filter_map(|link| blob_of(&self.cache, link))
            .collect();
        let (shared, unused) = self.blobs.drain(..).partition(|blob| used.contains(blob));
        let shared: Vec<PathBuf> = shared;
        self.shared_bytes = file_bytes(&shared);
        self.blobs = unused;
        Ok(())
    }

    /// Deletes the files, then the folders that are empty. Fails before it deletes anything if another
    /// process downloads one of the files.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut locks = Vec::new();
        for blob in &self.blobs {
            let lock = self.cache.try_lock(&etag_of(blob))?;
            locks.push(lock.ok_or_else(|| {
                Failure::new(format!(
                    "another process downloads {}: try again later",
                    self.cache.repo()
                ))
            })?);
        }
        // A link without its blob is harmless, a blob without its links wastes space.
        for path in self.links.iter().chain(&self.blobs) {
            remove_file(path)?;
        }
        if files_below(self.cache.folder())?
            .iter()
            .all(|path| self.is_reference(path))
        {
            return remove_folder(&self.cache);
        }
        for link in &self.links {
            remove_empty_folders(link, &self.cache.snapshots());
        }
        Ok(())
    }

    /// Whether this is a file without a use if the model has no other files.
    fn is_reference(&self, path: &Path) -> bool {
        let below = path.strip_prefix(self.cache.folder()).ok();
        let first = below.and_then(|path| path.iter().next());
        first.is_some_and(|name| name == "refs" || name == ".no_exist")
    }
}

/// Returns the files below a folder that may not exist.
fn existing(folder: PathBuf) -> Result<Vec<PathBuf>, Failure> {
    match folder.exists() {
        true => files_below(&folder),
        false => Ok(Vec::new()),
    }
}

/// Checks that the folders of a model are no links to folders outside of the cache.
fn check_folders(cache: &Cache) -> Result<(), Failure> {
    let mut folders = vec![
        cache.folder().to_path_buf(),
        cache.blobs(),
        cache.snapshots(),
    ];
    folders.extend(cache.commit().map(|commit| cache.snapshot(&commit)));
    for folder in folders {
        if fs::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(Failure::new(format!(
                "{} is a link: remove the model where it is stored",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// Returns the blob of a link. `None` for files, and for links to files outside of the model's blobs.
fn blob_of(cache: &Cache, link: &Path) -> Option<PathBuf> {
    if !fs::symlink_metadata(link).ok()?.is_symlink() {
        return None;
    }
    let target = fs::canonicalize(link).ok()?;
    let blobs = fs::canonicalize(cache.blobs()).ok()?;
    let name = target.strip_prefix(blobs).ok()?;
    Some(cache.blobs().join(name))
}

/// Returns the etag of a blob, complete or partial.
fn etag_of(blob: &Path) -> String {
    let name = blob.file_name().unwrap_or_default().to_string_lossy();
    match name.strip_suffix(INCOMPLETE) {
        // `huggingface_hub` adds a random word to the etag.
        Some(etag) => etag.split('.').next().unwrap_or(etag).to_string(),
        None => name.into_owned(),
    }
}

/// Returns the size of files, without links.
fn file_bytes(paths: &[PathBuf]) -> u64 {
    let metadata = paths
        .iter()
        .filter_map(|path| fs::symlink_metadata(path).ok());
    metadata
        .filter(|file| file.is_file())
        .map(|file| file.len())
        .sum()
}

/// Removes a file or a link. A file that does not exist is not an error.
fn remove_file(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|cause| Failure::file("remove", path, cause)),
    }
}

/// Removes the folders of a removed file, up to `end`, until one is not empty.
fn remove_empty_folders(file: &Path, end: &Path) {
    let folders = file.ancestors().skip(1);
    for folder in folders.take_while(|folder| *folder != end) {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

/// Removes the files of interrupted downloads, except those that a process downloads. Returns their
/// number and their size in bytes.
pub(crate) fn remove_incomplete() -> Result<(usize, u64), Failure> {
    let (mut count, mut bytes) = (0, 0);
    for cache in Cache::all()? {
        if check_folders(&cache).is_err() {
            continue;
        }
        let mut blobs = existing(cache.blobs())?;
        blobs.retain(|blob| blob.to_string_lossy().ends_with(INCOMPLETE));
        for blob in &blobs {
            let Some(_lock) = cache.try_lock(&etag_of(blob))? else {
                continue;
            };
            bytes += file_bytes(std::slice::from_ref(blob));
            count += 1;
            remove_file(blob)?;
        }
        if !blobs.is_empty() && files_below(cache.folder())?.is_empty() {
            remove_folder(&cache)?;
        }
    }
    Ok((count, bytes))
}

fn remove_folder(cache: &Cache) -> Result<(), Failure> {
    let folder = cache.folder();
    fs::remove_dir_all(folder).map_err(|cause| Failure::file("remove", folder, cause))
}
