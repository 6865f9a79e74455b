//! Brings one file into the cache: goes on where an earlier try ended, and believes a hash alone.

use super::cache::Cache;
use super::server::{Remote, Server, Trouble};
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use ring::digest::{Context, SHA256};
use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::time::Duration;

/// How often a broken connection is made anew, and after which pause.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// A download of one commit of a model.
pub(super) struct Download<'a> {
    pub(super) server: &'a Server,
    pub(super) cache: &'a Cache,
    pub(super) commit: &'a str,
    /// Hears why it takes time.
    pub(super) say: fn(&str),
}

impl Download<'_> {
    /// Puts a file into the snapshot, unless it is there.
    pub(super) fn bring(&self, name: &str) -> Result<(), Failure> {
        let (cache, repo) = (self.cache, self.cache.repo());
        if cache.holds(self.commit, name) {
            return Ok(());
        }
        let remote = self.server.describe(repo, self.commit, name)?;
        let wait = || (self.say)(&format!("waiting for another program that fetches {name}"));
        let _lock = cache.lock(&remote.etag, wait)?;
        let blob = cache.blob(&remote.etag);
        if !blob.exists() {
            let partial = self.fetch(name, &remote)?;
            fs::rename(&partial, &blob).map_err(|cause| Failure::file("write", &blob, cause))?;
        }
        cache.link(&remote.etag, self.commit, name)
    }

    /// The path of all bytes of a file, checked.
    fn fetch(&self, name: &str, remote: &Remote) -> Result<PathBuf, Failure> {
        let path = self.cache.partial(&remote.etag);
        let mut partial = Partial::open(path, remote)?;
        partial.check_space(name)?;
        (self.say)(&format!("fetching {name}, {}", partial.sizes()));
        let bar = Progress::of_bytes(name, partial.at, remote.size);
        let url = self.server.address(self.cache.repo(), self.commit, name);
        let mut tries = 1;
        while partial.at < remote.size {
            match self.pour(&url, &mut partial, &bar) {
                Ok(()) => {}
                Err(Trouble::Passing(_)) if tries < TRIES => std::thread::sleep(PAUSE),
                Err(trouble) => return Err(partial.interrupted(name, trouble)),
            }
            tries += 1;
        }
        drop(bar);
        partial.checked(name, remote)
    }

    /// Takes bytes until there are no more or the connection breaks.
    fn pour(&self, url: &str, partial: &mut Partial, bar: &Progress) -> Result<(), Trouble> {
        let (from, response) = self.server.open(self.cache.repo(), url, partial.at)?;
        if from != partial.at {
            partial.restart()?;
        }
        // A byte too many shows itself.
        let left = (partial.size - partial.at).saturating_add(1);
        let mut body = response.into_body().into_reader().take(left);
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match body.read(&mut chunk) {
                Ok(0) => return partial.check_end(),
                Ok(read) => read,
                Err(cause) => return Err(broken(Some(cause))),
            };
            partial.take(&chunk[..read])?;
            bar.at(partial.at);
        }
    }
}

fn broken(cause: Option<io::Error>) -> Trouble {
    let message = "the connection broke".to_string();
    Trouble::Passing(Failure::Program { message, cause })
}

/// The bytes of a file that are there so far.
struct Partial {
    path: PathBuf,
    file: File,
    at: u64,
    size: u64,
    /// Of the bytes so far, where there is a hash to hold them against.
    digest: Option<Context>,
}

impl Partial {
    /// What an earlier try left. Without a hash nothing vouches for it: then it begins anew.
    fn open(path: PathBuf, remote: &Remote) -> Result<Self, Failure> {
        if let Some(folder) = path.parent() {
            let fail = |cause| Failure::file("create", folder, cause);
            fs::create_dir_all(folder).map_err(fail)?;
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let fail = |cause| Failure::file("open", &path, cause);
        let file = options.open(&path).map_err(fail)?;
        let there = file.metadata().map_err(fail)?.len();
        let mut partial = Self {
            path,
            file,
            at: 0,
            size: remote.size,
            digest: remote.sha256().map(|_| Context::new(&SHA256)),
        };
        if partial.digest.is_some() && there <= partial.size {
            partial.read_back()?;
        } else {
            partial.restart()?;
        }
        Ok(partial)
    }

    /// Reads what is there, up to its end.
    fn read_back(&mut self) -> Result<(), Failure> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = self.file.read(&mut chunk);
            let read = read.map_err(|cause| Failure::file("read", &self.path, cause))?;
            if read == 0 {
                return Ok(());
            }
            self.count(&chunk[..read]);
        }
    }

    /// Forgets what is there.
    fn restart(&mut self) -> Result<(), Failure> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(|cause| Failure::file("empty", &self.path, cause))?;
        self.at = 0;
        self.digest = self.digest.take().map(|_| Context::new(&SHA256));
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        written.map_err(|cause| Failure::file("write", &self.path, cause))?;
        self.count(bytes);
        Ok(())
    }

    fn count(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
    }

    /// Whether the file system has room for the rest.
    fn check_space(&self, name: &str) -> Result<(), Failure> {
        let missing = self.size - self.at;
        let free = fs4::available_space(&self.path)
            .map_err(|cause| Failure::file("ask for the free space of", &self.path, cause))?;
        if missing <= free {
            return Ok(());
        }
        let (missing, free) = (terminal::bytes(missing), terminal::bytes(free));
        let path = self.path.display();
        Err(Failure::new(format!(
            "{name} needs {missing} more, and {free} are free where {path} is"
        )))
    }

    /// The size, and how much of it is there.
    fn sizes(&self) -> String {
        let size = terminal::bytes(self.size);
        match self.at {
            0 => size,
            at => format!("{size}, of which {} are there", terminal::bytes(at)),
        }
    }

    /// Whether an answer that ended gave all bytes and not one more.
    fn check_end(&self) -> Result<(), Trouble> {
        match self.at.cmp(&self.size) {
            Ordering::Less => Err(broken(None)),
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                let message = format!("more came than the {} bytes that were promised", self.size);
                Err(Failure::new(message).into())
            }
        }
    }

    /// What to say where it ends early.
    fn interrupted(&self, name: &str, trouble: Trouble) -> Failure {
        let (at, size) = (terminal::bytes(self.at), terminal::bytes(self.size));
        match trouble {
            Trouble::Passing(Failure::Program { message, cause }) => Failure::Program {
                message: format!(
                    "{message} at {at} of {size} of {name}; the same command goes on from there"
                ),
                cause,
            },
            Trouble::Passing(failure) | Trouble::Final(failure) => failure,
        }
    }

    /// The path of the bytes if they are the right ones, on the disk; else they are removed.
    fn checked(self, name: &str, remote: &Remote) -> Result<PathBuf, Failure> {
        let fail = |cause| Failure::file("write", &self.path, cause);
        self.file.sync_data().map_err(fail)?;
        let there = self.file.metadata().map_err(fail)?.len();
        drop(self.file);
        let found = self.digest.map(|digest| hex(digest.finish().as_ref()));
        let right = found.as_deref() == remote.sha256() && there == remote.size;
        if right {
            return Ok(self.path);
        }
        fs::remove_file(&self.path).map_err(|cause| Failure::file("remove", &self.path, cause))?;
        let expected = &remote.etag;
        let found = found.unwrap_or_else(|| format!("{there} bytes"));
        Err(Failure::new(format!(
            "{name} came damaged and was removed: its SHA-256 is {found} and should be {expected}"
        )))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
