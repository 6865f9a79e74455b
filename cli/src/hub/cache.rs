//! The folder of one model in the cache that is shared with Python's `huggingface_hub`.
//!
//! ```text
//! models--ORG--REPO/blobs/ETAG              a file's bytes
//! models--ORG--REPO/blobs/ETAG.incomplete   what is there of them so far
//! models--ORG--REPO/snapshots/COMMIT/NAME   a link to the blob
//! models--ORG--REPO/refs/main               the newest commit that was fetched
//! .locks/models--ORG--REPO/ETAG.lock        held by who writes the blob
//! ```

use crate::output::Failure;
use crate::output::cache_folders::{self, path_from_env};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The branch that is fetched.
const BRANCH: &str = "main";

/// One model's part of the cache.
pub(super) struct Cache {
    repo: String,
    layout: hf_hub::CacheRepo,
    /// `models--ORG--REPO`
    folder: PathBuf,
    locks: PathBuf,
}

impl Cache {
    /// The folder of a model; it need not be there.
    pub(super) fn of(repo: &str) -> Result<Self, Failure> {
        let root = match path_from_env("HF_HUB_CACHE") {
            Some(folder) => folder,
            None => home()?.join("hub"),
        };
        let model = hf_hub::Repo::model(repo.to_string());
        let name = model.folder_name();
        Ok(Self {
            repo: repo.to_string(),
            folder: root.join(&name),
            locks: root.join(".locks").join(name),
            layout: hf_hub::Cache::new(root).repo(model),
        })
    }

    /// `ORG/REPO`.
    pub(super) fn repo(&self) -> &str {
        &self.repo
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the files of a commit are.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.layout.pointer_path(commit)
    }

    /// Whether a file of a commit is there.
    pub(super) fn holds(&self, commit: &str, name: &str) -> bool {
        self.snapshot(commit).join(name).exists()
    }

    /// Where the bytes of an etag are once they are complete.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// Where the bytes of an etag are before.
    pub(super) fn partial(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// The newest commit that was fetched.
    pub(super) fn commit(&self) -> Option<String> {
        let text = fs::read_to_string(self.reference()).ok()?;
        Some(text.trim().to_string()).filter(|commit| is_commit(commit))
    }

    /// Notes that a commit is the newest. Readers see the old one or this one.
    pub(super) fn set_commit(&self, commit: &str) -> Result<(), Failure> {
        if self.commit().as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.reference();
        let written = path.with_extension(format!("{}.incomplete", std::process::id()));
        create_folder_of(&path)?;
        fs::write(&written, commit)
            .and_then(|()| fs::rename(&written, &path))
            .map_err(|cause| Failure::file("write", &path, cause))
    }

    fn reference(&self) -> PathBuf {
        self.folder.join("refs").join(BRANCH)
    }

    /// The names of the files of a commit that are there.
    pub(super) fn names(&self, commit: &str) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        let mut folders = vec![(self.snapshot(commit), String::new())];
        while let Some((folder, below)) = folders.pop() {
            let fail = |cause| Failure::file("list", &folder, cause);
            for entry in fs::read_dir(&folder).map_err(fail)? {
                let entry = entry.map_err(fail)?;
                let name = format!("{below}{}", entry.file_name().to_string_lossy());
                if entry.file_type().map_err(fail)?.is_dir() {
                    folders.push((entry.path(), format!("{name}/")));
                } else if entry.path().exists() {
                    names.push(name);
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// Waits until nobody else writes the blob, in this program or in Python. Dropping the file,
    /// or the end of the program in whatever way, lets the next one go on.
    pub(super) fn lock(&self, etag: &str, wait: impl FnOnce()) -> Result<File, Failure> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_folder_of(&path)?;
        let fail = |cause| Failure::file("lock", &path, cause);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                wait();
                file.lock().map_err(fail)?;
            }
            Err(TryLockError::Error(cause)) => return Err(fail(cause)),
        }
        Ok(file)
    }

    /// Puts the blob of an etag under its name into a commit. The caller holds the etag's lock.
    pub(super) fn link(&self, etag: &str, commit: &str, name: &str) -> Result<(), Failure> {
        let path = self.snapshot(commit).join(name);
        // Somebody may have been quicker, and may be reading.
        if path.exists() {
            return Ok(());
        }
        create_folder_of(&path)?;
        // From `snapshots/COMMIT/NAME` up to the model's folder.
        let up = "../".repeat(2 + name.matches('/').count());
        let target = format!("{up}blobs/{etag}");
        link(&self.blob(etag), Path::new(&target), &path)
            .map_err(|cause| Failure::file("link", &path, cause))
    }
}

#[cfg(unix)]
fn link(_blob: &Path, target: &Path, path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        // A link whose blob somebody removed.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(target, path)
}

/// Not every user of Windows may make links: there the bytes move, as they do in Python.
#[cfg(windows)]
fn link(blob: &Path, target: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path).or_else(|_| fs::rename(blob, path))
}

/// The user's token: `HF_TOKEN`, else the file that `hf auth login` writes.
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

/// `ORG/REPO`, if this is the path of a snapshot.
pub(crate) fn repo_of(snapshot: &Path) -> Option<String> {
    let snapshots = snapshot.parent()?;
    let model = snapshots.parent()?.file_name()?.to_str()?;
    let named = snapshots.file_name()? == "snapshots";
    let repo = model.strip_prefix("models--").filter(|_| named)?;
    Some(repo.replace("--", "/"))
}

/// Whether this is the name of a commit, which makes a folder.
pub(super) fn is_commit(text: &str) -> bool {
    is_hex(text, 40)
}

/// Whether this is so many digits of lower-case hex.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    let digit = |b| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    text.len() == digits && text.bytes().all(digit)
}

/// `HF_HOME`, which has the cache and the token.
fn home() -> Result<PathBuf, Failure> {
    if let Some(home) = path_from_env("HF_HOME") {
        return Ok(home);
    }
    let caches = cache_folders::folder().ok_or_else(|| {
        Failure::new("there is no home folder to cache models in: set HF_HOME to a folder")
    })?;
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
    fn a_snapshot_knows_its_model() {
        let path = Path::new("hub/models--org--name/snapshots/0123");
        assert_eq!(repo_of(path).as_deref(), Some("org/name"));
        for other in ["models--org--name/blobs/0123", "snapshots/0123", "a", ""] {
            assert_eq!(repo_of(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_commit_is_forty_digits() {
        assert!(is_commit(&"0a9f".repeat(10)));
        for bad in ["", "..", "main", &"A".repeat(40), &"/".repeat(40)] {
            assert!(!is_commit(bad), "{bad}");
        }
    }
}
