//! A model's folder in the cache, which is shared with Python's `huggingface_hub`.
//!
//! ```text
//! models--ORG--REPO/blobs/ETAG              contents of a file
//! models--ORG--REPO/blobs/ETAG.incomplete   partial download
//! models--ORG--REPO/snapshots/COMMIT/NAME   link to the blob
//! models--ORG--REPO/refs/main               newest downloaded commit
//! .locks/models--ORG--REPO/ETAG.lock        held while the blob is written
//! ```

use crate::output::Failure;
use crate::output::cache_folders::{self, path_from_env};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Branch to download.
const BRANCH: &str = "main";

/// The cache folder of a model.
pub(super) struct Cache {
    repo: String,
    /// `models--ORG--REPO`
    folder: PathBuf,
    locks: PathBuf,
}

impl Cache {
    /// Returns the cache folder of a model, which may not exist.
    pub(super) fn of(repo: &str) -> Result<Self, Failure> {
        let root = root()?;
        let name = format!("models--{}", repo.replace('/', "--"));
        Ok(Self {
            repo: repo.to_string(),
            folder: root.join(&name),
            locks: root.join(".locks").join(name),
        })
    }

    /// Returns the cache folders of all models, sorted by name. None if there is no cache.
    pub(super) fn all() -> Result<Vec<Self>, Failure> {
        let root = root()?;
        let fail = |cause| Failure::file("list", &root, cause);
        let entries = match fs::read_dir(&root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut repos = Vec::new();
        for entry in entries {
            let name = entry.map_err(fail)?.file_name();
            repos.extend(name.to_str().and_then(repo_of_folder));
        }
        repos.sort();
        repos.iter().map(|repo| Self::of(repo)).collect()
    }

    /// `ORG/REPO`.
    pub(super) fn repo(&self) -> &str {
        &self.repo
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Folder of a commit's files.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.snapshots().join(commit)
    }

    /// Whether a file of a commit exists.
    pub(super) fn contains(&self, commit: &str, name: &str) -> bool {
        self.snapshot(commit).join(name).exists()
    }

    /// Path of a complete blob.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// Path of a partial blob.
    pub(super) fn partial(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// Newest downloaded commit.
    pub(super) fn commit(&self) -> Option<String> {
        let text = fs::read_to_string(self.reference()).ok()?;
        Some(text.trim().to_string()).filter(|commit| is_commit(commit))
    }

    /// Stores the newest commit atomically.
    pub(super) fn set_commit(&self, commit: &str) -> Result<(), Failure> {
        if self.commit().as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.reference();
        let temporary = path.with_extension(format!("{}.incomplete", std::process::id()));
        create_folder_of(&path)?;
        fs::write(&temporary, commit)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|cause| Failure::file("write", &path, cause))
    }

    /// Folder of complete and partial blobs.
    pub(super) fn blobs(&self) -> PathBuf {
        self.folder.join("blobs")
    }

    /// Folder of all snapshots.
    pub(super) fn snapshots(&self) -> PathBuf {
        self.folder.join("snapshots")
    }

    fn reference(&self) -> PathBuf {
        self.folder.join("refs").join(BRANCH)
    }

    /// Returns the names of the existing files of a commit.
    pub(super) fn names(&self, commit: &str) -> Result<Vec<String>, Failure> {
        let folder = self.snapshot(commit);
        let mut names = Vec::new();
        for path in files_below(&folder)? {
            if path.exists() {
                let name = path.strip_prefix(&folder).unwrap_or(&path);
                let parts = name.iter().map(|part| part.to_string_lossy());
                names.push(parts.collect::<Vec<_>>().join("/"));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Locks a blob without waiting; `None` if another process holds the lock.
    pub(super) fn try_lock(&self, etag: &str) -> Result<Option<File>, Failure> {
        let (path, file) = self.open_lock(etag)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(Failure::file("lock", &path, cause)),
        }
    }

    fn open_lock(&self, etag: &str) -> Result<(PathBuf, File), Failure> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_folder_of(&path)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        match options.open(&path) {
            Ok(file) => Ok((path, file)),
            Err(cause) => Err(Failure::file("lock", &path, cause)),
        }
    }

    /// Locks a blob against other processes, including Python. Calls `on_wait` before it blocks. Dropping
    /// the file or the end of the process releases the lock.
    pub(super) fn lock(&self, etag: &str, on_wait: impl FnOnce()) -> Result<File, Failure> {
        let (path, file) = self.open_lock(etag)?;
        let fail = |cause| Failure::file("lock", &path, cause);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                on_wait();
                file.lock().map_err(fail)?;
            }
            Err(TryLockError::Error(cause)) => return Err(fail(cause)),
        }
        Ok(file)
    }

    /// Links a blob into a commit. The caller must hold the lock of the etag.
    pub(super) fn link(&self, etag: &str, commit: &str, name: &str) -> Result<(), Failure> {
        let path = self.snapshot(commit).join(name);
        // Another process may have created the link and may be reading the file.
        if path.exists() {
            return Ok(());
        }
        create_folder_of(&path)?;
        // From `snapshots/COMMIT/NAME` to the model's folder.
        let up = "../".repeat(2 + name.matches('/').count());
        let target = format!("{up}blobs/{etag}");
        link(&self.blob(etag), Path::new(&target), &path)
            .map_err(|cause| Failure::file("link", &path, cause))
    }
}

#[cfg(unix)]
fn link(_blob: &Path, target: &Path, path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        // A dangling link was removed.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(target, path)
}

/// Symbolic links need a privilege on Windows. Without it the blob is moved, as in `huggingface_hub`.
#[cfg(windows)]
fn link(blob: &Path, target: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path).or_else(|_| fs::rename(blob, path))
}

/// Returns the user's token: `HF_TOKEN`, otherwise the file that `hf auth login` writes.
pub(super) fn token() -> Result<Option<String>, Failure> {
    let token = match std::env::var("HF_TOKEN") {
        Ok(token) => token,
        Err(_) => {
            let path = match path_from_env("HF_TOKEN_PATH") {
                Some(path) => path,
                None => home()?.join("token"),
            };
            match fs::read_to_string(&path) {
                Ok(token) => token,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Failure::file("read", &path, error)),
            }
        }
    };
    Ok(Some(token.trim().to_string()).filter(|token| !token.is_empty()))
}

/// Returns `ORG/REPO` if this is the path of a snapshot.
pub(crate) fn repo_of(snapshot: &Path) -> Option<String> {
    let snapshots = snapshot.parent()?;
    let model = snapshots.parent()?.file_name()?.to_str()?;
    let named = snapshots.file_name()? == "snapshots";
    repo_of_folder(model).filter(|_| named)
}

/// Returns `ORG/REPO` of `models--ORG--REPO`.
fn repo_of_folder(name: &str) -> Option<String> {
    Some(name.strip_prefix("models--")?.replace("--", "/"))
}

/// Returns the files and links below a folder. Links to folders are not followed.
pub(super) fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let fail = |cause| Failure::file("list", &folder, cause);
        for entry in fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            match entry.file_type().map_err(fail)?.is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    Ok(files)
}

/// Returns the folder of all models.
pub(crate) fn root() -> Result<PathBuf, Failure> {
    match path_from_env("HF_HUB_CACHE") {
        Some(folder) => Ok(folder),
        None => Ok(home()?.join("hub")),
    }
}

/// Whether this is a commit hash. It is used as a folder name.
pub(super) fn is_commit(text: &str) -> bool {
    is_hex(text, 40)
}

/// Whether this is a lower-case hexadecimal number of the given length.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    let digit = |b| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    text.len() == digits && text.bytes().all(digit)
}

/// Returns `HF_HOME`, the folder of the cache and the token.
fn home() -> Result<PathBuf, Failure> {
    if let Some(home) = path_from_env("HF_HOME") {
        return Ok(home);
    }
    let caches = cache_folders::folder()
        .ok_or_else(|| Failure::new("no home folder for the model cache: set HF_HOME"))?;
    Ok(caches.join("huggingface"))
}

fn create_folder_of(path: &Path) -> Result<(), Failure> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    fs::create_dir_all(folder).map_err(|cause| Failure::file("create", folder, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_snapshot_paths() {
        let path = Path::new("hub/models--org--name/snapshots/0123");
        assert_eq!(repo_of(path).as_deref(), Some("org/name"));
        for other in ["models--org--name/blobs/0123", "snapshots/0123", "a", ""] {
            assert_eq!(repo_of(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn validates_commit_hashes() {
        assert!(is_commit(&"0a9f".repeat(10)));
        for invalid in ["", "..", "main", &"A".repeat(40), &"/".repeat(40)] {
            assert!(!is_commit(invalid), "{invalid}");
        }
    }
}
