//! A file that is opened in several ways, one after the other, until one of them results in audio.

use crate::metadata::{EBML, Plain, matroska_end, plain, plain_flac};
use crate::mp4;
use crate::wav::Wave;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use symphonia::core::io::{MediaSource, ReadOnlySource};

/// Number of bytes from which on the size of a WAV file means that it is unknown.
const MAX_WAVE: u64 = 0x7f00_0000;

/// A way to read a file.
#[derive(Debug)]
pub(crate) enum View {
    /// The samples of a WAV file, after a header without other chunks.
    Wave(Wave),
    /// With seeks.
    Whole,
    /// With seeks, as if it had this number of bytes, of which the last are missing.
    Truncated(u64),
    /// From the start to the end. Nothing is read at the end first, and sizes beyond the end are accepted.
    Stream,
    /// With seeks, without metadata.
    Plain(Plain),
    /// From the start to the end, without metadata.
    PlainStream(Plain),
}

/// An open file.
#[derive(Clone)]
pub(crate) struct AudioFile {
    source: Arc<Mutex<dyn MediaSource>>,
    /// Number of bytes for seeks from the end.
    end: u64,
    len: Option<u64>,
    plain: Plain,
}

impl AudioFile {
    pub(crate) fn new(mut source: impl MediaSource + 'static) -> io::Result<Self> {
        let end = source.seek(SeekFrom::End(0))?;
        Ok(Self {
            source: Arc::new(Mutex::new(source)),
            end,
            len: Some(end),
            plain: Plain::default(),
        })
    }

    /// Returns the ways to read the file, the best first.
    pub(crate) fn views(&mut self) -> io::Result<Vec<View>> {
        if let Some(wave) = Wave::read(self, self.end) {
            return Ok(vec![View::Wave(wave)]);
        }
        let mut start = Vec::new();
        self.rewind()?;
        self.take(EBML.len() as u64).read_to_end(&mut start)?;
        if let Some(plain) = plain_flac(self) {
            return Ok(vec![View::Plain(plain.clone()), View::PlainStream(plain)]);
        }
        let mut views = match mp4::stated_end(self) {
            _ if start == EBML => vec![View::Stream, View::Whole],
            Some(end) if end > self.end => vec![View::Truncated(end), View::Stream],
            _ => vec![View::Whole, View::Stream],
        };
        if let Some(plain) = plain(self) {
            views.extend([View::Plain(plain.clone()), View::PlainStream(plain)]);
        }
        Ok(views)
    }

    /// Returns whether the file is shorter than its header states. Programs that write to a pipe state
    /// large sizes in WAV files.
    pub(crate) fn is_truncated(&mut self, views: &[View]) -> bool {
        let stated = match views.first() {
            Some(View::Wave(wave)) => {
                let stated = wave.stated.filter(|stated| *stated < MAX_WAVE);
                stated.map(|stated| wave.start + stated)
            }
            Some(View::Truncated(end)) => Some(*end),
            _ => matroska_end(self),
        };
        stated.is_some_and(|stated| stated > self.end)
    }

    /// Opens the file for a decoder.
    pub(crate) fn view(&self, view: &View) -> io::Result<Box<dyn MediaSource>> {
        let mut file = self.clone();
        file.rewind()?;
        Ok(match view {
            View::Wave(wave) => {
                let samples = wave.samples(&mut file, self.end);
                let size = samples.end - samples.start;
                file.seek(SeekFrom::Start(samples.start))?;
                let header = Cursor::new(wave.header(Some(size)));
                Box::new(ReadOnlySource::new(header.chain(file.take(size))))
            }
            View::Whole => Box::new(file),
            View::Truncated(end) => Box::new(Self {
                end: *end,
                len: None,
                ..file
            }),
            View::Stream => Box::new(ReadOnlySource::new(file)),
            View::Plain(plain) => Box::new(file.without_metadata(plain)?),
            View::PlainStream(plain) => {
                Box::new(ReadOnlySource::new(file.without_metadata(plain)?))
            }
        })
    }

    fn without_metadata(mut self, plain: &Plain) -> io::Result<Self> {
        self.plain = plain.clone();
        self.end = self.end.saturating_sub(plain.start);
        self.len = Some(self.end);
        self.rewind()?;
        Ok(self)
    }

    fn source(&self) -> MutexGuard<'_, dyn MediaSource + 'static> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for AudioFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut source = self.source();
        let at = source.stream_position()?;
        let read = source.read(out)?;
        self.plain.apply(at, &mut out[..read]);
        Ok(read)
    }
}

impl Seek for AudioFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let start = self.plain.start;
        let to = match to {
            SeekFrom::Start(at) => start.checked_add(at),
            SeekFrom::End(offset) => (start + self.end).checked_add_signed(offset),
            SeekFrom::Current(offset) => {
                let at = self.source().stream_position()?;
                at.checked_add_signed(offset)
            }
        };
        let to = to
            .filter(|to| *to >= start)
            .ok_or(io::ErrorKind::InvalidInput)?;
        self.source().seek(SeekFrom::Start(to))?;
        Ok(to - start)
    }
}

impl MediaSource for AudioFile {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        self.len
    }
}
