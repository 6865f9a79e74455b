//! A stream that cannot seek, but whose start can be read again.

use crate::metadata::Plain;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of bytes that can be read again.
const MAX_KEPT: usize = 32 << 20;

/// Source of readers of the same stream, each from its start. Once it is dropped, or the readers have read more
/// than [`MAX_KEPT`] bytes, no byte is kept any longer than the current reader needs.
pub(crate) struct Replay(Arc<Mutex<Kept>>);

struct Kept {
    stream: Box<dyn Read + Send + Sync>,
    /// Start of the stream. Empty once it is not kept and was read.
    start: Vec<u8>,
    is_kept: bool,
}

impl Replay {
    /// Keeps what is read of a stream, of which `start` was read already.
    pub(crate) fn new(start: Vec<u8>, stream: impl Read + Send + Sync + 'static) -> Self {
        Self(Arc::new(Mutex::new(Kept {
            stream: Box::new(stream),
            start,
            is_kept: true,
        })))
    }

    /// Returns the stream from its start, without metadata; `None` if its start is not kept.
    pub(crate) fn reader(&self, plain: &Plain) -> Option<ReplayReader> {
        let skipped = usize::try_from(plain.start).ok()?;
        let kept = lock(&self.0);
        (kept.is_kept && skipped <= kept.start.len()).then(|| ReplayReader {
            kept: Arc::clone(&self.0),
            at: plain.start,
            plain: plain.clone(),
        })
    }

    /// Calls a function with the start of the stream, as far as it was read.
    pub(crate) fn with_start<T>(&self, call: impl FnOnce(&[u8]) -> T) -> T {
        call(&lock(&self.0).start)
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        lock(&self.0).is_kept = false;
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream from its start.
pub(crate) struct ReplayReader {
    kept: Arc<Mutex<Kept>>,
    /// Position in the stream.
    at: u64,
    plain: Plain,
}

impl Read for ReplayReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut kept = lock(&self.kept);
        let at = usize::try_from(self.at).unwrap_or(usize::MAX);
        let read = match kept.start.get(at..).filter(|rest| !rest.is_empty()) {
            Some(mut rest) => rest.read(out)?,
            None => kept.read(out)?,
        };
        self.plain.apply(self.at, &mut out[..read]);
        self.at += read as u64;
        Ok(read)
    }
}

impl Kept {
    /// Reads what follows the start.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(out)?;
        self.is_kept &= self.start.len() + read <= MAX_KEPT;
        match self.is_kept {
            true => self.start.extend_from_slice(&out[..read]),
            false => self.start = Vec::new(),
        }
        Ok(read)
    }
}
