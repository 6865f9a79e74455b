//! Downloads files into the cache. Partial downloads are resumed, and SHA-256 hashes are verified.

use super::cache::Cache;
use super::server::{Remote, RequestError, Server};
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use ring::digest::{Context, SHA256};
use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of connection attempts.
const ATTEMPTS_MAX: u32 = 5;
/// Delay between connection attempts.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Size of a read in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// A download of files of one commit.
pub(super) struct Download<'a> {
    pub(super) server: &'a Server,
    pub(super) cache: &'a Cache,
    pub(super) commit: &'a str,
    /// Receives progress messages.
    pub(super) report: fn(&str),
}

impl Download<'_> {
    /// Downloads a file into the snapshot if it is missing.
    pub(super) fn fetch(&self, name: &str) -> Result<(), Failure> {
        let (cache, repo) = (self.cache, self.cache.repo());
        if cache.contains(self.commit, name) {
            return Ok(());
        }
        let remote = self.server.metadata(repo, self.commit, name)?;
        let on_wait = || {
            (self.report)(&format!(
                "waiting for another process that downloads {name}"
            ));
        };
        let _lock = cache.lock(&remote.etag, on_wait)?;
        let blob = cache.blob(&remote.etag);
        if !blob.exists() {
            let partial = self.download(name, &remote)?;
            fs::rename(&partial, &blob).map_err(|cause| Failure::file("write", &blob, cause))?;
        }
        cache.link(&remote.etag, self.commit, name)
    }

    /// Downloads a file and returns the path of its verified contents.
    fn download(&self, name: &str, remote: &Remote) -> Result<PathBuf, Failure> {
        let path = self.cache.partial(&remote.etag);
        let mut partial = Partial::open(path, remote)?;
        partial.check_space(name)?;
        (self.report)(&format!("downloading {name}, {}", partial.sizes()));
        let bar = Progress::of_bytes(name, partial.position, remote.size);
        let url = self.server.url(self.cache.repo(), self.commit, name);
        let mut attempts = 1;
        while partial.position < remote.size {
            match self.receive(&url, &mut partial, &bar) {
                Ok(()) => {}
                Err(RequestError::Transient(_)) if attempts < ATTEMPTS_MAX => {
                    std::thread::sleep(RETRY_DELAY);
                }
                Err(error) => return Err(partial.failure(name, error)),
            }
            attempts += 1;
        }
        drop(bar);
        partial.verify(name, remote)
    }

    /// Receives bytes until the end or until the connection fails.
    fn receive(
        &self,
        url: &str,
        partial: &mut Partial,
        bar: &Progress,
    ) -> Result<(), RequestError> {
        let (from, response) = self.server.open(self.cache.repo(), url, partial.position)?;
        if from != partial.position {
            partial.restart()?;
        }
        // One more byte than expected, to detect a response that is too long.
        let left = (partial.size - partial.position).saturating_add(1);
        let mut body = response.into_body().into_reader().take(left);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match body.read(&mut chunk) {
                Ok(0) => return partial.check_end(),
                Ok(read) => read,
                Err(cause) => return Err(connection_lost(Some(cause))),
            };
            partial.append(&chunk[..read])?;
            bar.set_position(partial.position);
        }
    }
}

fn connection_lost(cause: Option<io::Error>) -> RequestError {
    let message = "connection lost".to_string();
    RequestError::Transient(Failure::Program { message, cause })
}

/// A partial download.
struct Partial {
    path: PathBuf,
    file: File,
    /// Number of bytes in the file.
    position: u64,
    /// Expected size of the complete file in bytes.
    size: u64,
    /// SHA-256 state of the bytes so far; `None` if the server has no hash.
    digest: Option<Context>,
}

impl Partial {
    /// Opens the partial file of an earlier attempt. Without a hash it cannot be verified, so the download
    /// restarts.
    fn open(path: PathBuf, remote: &Remote) -> Result<Self, Failure> {
        if let Some(folder) = path.parent() {
            let fail = |cause| Failure::file("create", folder, cause);
            fs::create_dir_all(folder).map_err(fail)?;
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let fail = |cause| Failure::file("open", &path, cause);
        let file = options.open(&path).map_err(fail)?;
        let len = file.metadata().map_err(fail)?.len();
        let mut partial = Self {
            path,
            file,
            position: 0,
            size: remote.size,
            digest: remote.sha256().map(|_| Context::new(&SHA256)),
        };
        if partial.digest.is_some() && len <= partial.size {
            partial.hash_existing()?;
        } else {
            partial.restart()?;
        }
        Ok(partial)
    }

    /// Hashes the existing bytes.
    fn hash_existing(&mut self) -> Result<(), Failure> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = self.file.read(&mut chunk);
            let read = read.map_err(|cause| Failure::file("read", &self.path, cause))?;
            if read == 0 {
                return Ok(());
            }
            self.update(&chunk[..read]);
        }
    }

    /// Discards the existing bytes.
    fn restart(&mut self) -> Result<(), Failure> {
        let truncated = self.file.set_len(0).and_then(|()| self.file.rewind());
        truncated.map_err(|cause| Failure::file("truncate", &self.path, cause))?;
        self.position = 0;
        self.digest = self.digest.take().map(|_| Context::new(&SHA256));
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        written.map_err(|cause| Failure::file("write", &self.path, cause))?;
        self.update(bytes);
        Ok(())
    }

    fn update(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
    }

    /// Checks that the file system has enough free space.
    fn check_space(&self, name: &str) -> Result<(), Failure> {
        let missing = self.size - self.position;
        let free = fs4::available_space(&self.path)
            .map_err(|cause| Failure::file("get the free space of", &self.path, cause))?;
        if missing <= free {
            return Ok(());
        }
        let (missing, free) = (terminal::bytes(missing), terminal::bytes(free));
        let path = self.path.display();
        Err(Failure::new(format!(
            "not enough disk space: {name} needs {missing}, {free} are free at {path}"
        )))
    }

    /// Formats the size and the number of existing bytes.
    fn sizes(&self) -> String {
        let size = terminal::bytes(self.size);
        match self.position {
            0 => size,
            position => format!("{size}, resuming at {}", terminal::bytes(position)),
        }
    }

    /// Checks the size after the end of a response.
    fn check_end(&self) -> Result<(), RequestError> {
        match self.position.cmp(&self.size) {
            Ordering::Less => Err(connection_lost(None)),
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                let message = format!("server sent more than {} bytes", self.size);
                Err(Failure::new(message).into())
            }
        }
    }

    /// Returns the error of an incomplete download.
    fn failure(&self, name: &str, error: RequestError) -> Failure {
        let (position, size) = (terminal::bytes(self.position), terminal::bytes(self.size));
        match error {
            RequestError::Transient(Failure::Program { message, cause }) => Failure::Program {
                message: format!(
                    "{message} at {position} of {size} of {name}; repeat the command to resume"
                ),
                cause,
            },
            RequestError::Transient(failure) | RequestError::Permanent(failure) => failure,
        }
    }

    /// Flushes and verifies the file. Returns its path, or removes it if size or hash differ.
    fn verify(self, name: &str, remote: &Remote) -> Result<PathBuf, Failure> {
        let fail = |cause| Failure::file("write", &self.path, cause);
        self.file.sync_data().map_err(fail)?;
        let len = self.file.metadata().map_err(fail)?.len();
        drop(self.file);
        let hash = self.digest.map(|digest| hex(digest.finish().as_ref()));
        let is_valid = hash.as_deref() == remote.sha256() && len == remote.size;
        if is_valid {
            return Ok(self.path);
        }
        fs::remove_file(&self.path).map_err(|cause| Failure::file("remove", &self.path, cause))?;
        let expected = &remote.etag;
        let actual = hash.unwrap_or_else(|| format!("{len} bytes"));
        Err(Failure::new(format!(
            "{name} is corrupt and was removed: expected SHA-256 {expected}, got {actual}"
        )))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
