//! Opening of audio files: detection of the container format.

use crate::file::AudioFile;
use crate::metadata::{Plain, has_more_flac_blocks, plain, plain_flac};
use crate::mp4::{Edit, edits};
use crate::replay::Replay;
use crate::runs::CheckedRuns;
use crate::wav::{Wave, WaveStream};
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use symphonia::core::common::Limit;
use symphonia::core::errors::Error as DecodeError;
use symphonia::core::formats::probe::{Hint, Probe, ProbeOptions};
use symphonia::core::formats::{FormatOptions, FormatReader};
use symphonia::core::io::{
    MediaSource, MediaSourceStream, MediaSourceStreamOptions, ReadBytes, ReadOnlySource,
    SeekBuffered,
};
use symphonia::core::meta::MetadataOptions;
use symphonia::default::register_enabled_formats;
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Maximum number of bytes before the first frame of a file, apart from its tags.
const MAX_JUNK: u32 = 16 * 1024;
/// Bytes in which edit lists of a stream, the samples of a WAV stream and the frames of a FLAC stream are searched
/// first.
const HEAD: u64 = 64 * 1024;
/// Maximum number of bytes before the samples of a WAV stream whose chunks have wrong sizes.
const MAX_WAVE_HEAD: u64 = 1 << 20;
/// Maximum number of bytes of the blocks of a FLAC stream: a picture has at most 16 MiB.
const MAX_FLAC_HEAD: u64 = 32 << 20;

/// Message of a probe that recognizes nothing.
const NO_FORMAT: &str = "core (probe): no suitable format reader found";

/// Message of a panic in `symphonia`.
const PANIC: &str = "the file is damaged, the decoder panicked";

/// Types of errors that `symphonia` returns for files, although reading succeeds.
const IN_FILES: [io::ErrorKind; 4] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::InvalidData,
    io::ErrorKind::InvalidInput,
    io::ErrorKind::Other,
];

/// Supported formats, for error messages.
const FORMATS: &str = "WAV, MP3, FLAC, Ogg (Vorbis, Opus, FLAC), MP4 and M4A (AAC, ALAC, MP3, Opus), \
    WebM and Matroska, AAC";

/// A file whose format is known.
pub(crate) struct Container {
    pub(crate) format: Box<dyn FormatReader>,
    pub(crate) edits: Vec<Edit>,
    /// Whether the file is shorter than its header states.
    pub(crate) is_truncated: bool,
}

/// Ways to read a source, the best first.
pub(crate) type Attempts = Box<dyn Iterator<Item = Result<Container>>>;

/// Opens a file, a pipe or a device.
pub(crate) fn open_path(path: &Path) -> Result<Attempts> {
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() {
        return open_file(file);
    }
    open_stream(file)
}

/// Opens a file, which may be in memory.
pub(crate) fn open_file(file: impl MediaSource + 'static) -> Result<Attempts> {
    let mut file = AudioFile::new(file).map_err(failed)?;
    let edits = edits(&mut file);
    let views = file.views().map_err(failed)?;
    let is_truncated = file.is_truncated(&views);
    Ok(Box::new(views.into_iter().map(move |view| {
        let source = file.view(&view).map_err(failed)?;
        let container = open(source, edits.clone())?;
        Ok(Container {
            is_truncated,
            ..container
        })
    })))
}

/// Opens a stream that cannot seek.
pub(crate) fn open_stream(mut stream: impl Read + Send + Sync + 'static) -> Result<Attempts> {
    let (mut head, mut size) = (Vec::new(), HEAD);
    let wave = loop {
        let missing = size - head.len() as u64;
        let read = (&mut stream).take(missing).read_to_end(&mut head);
        read.map_err(failed)?;
        let has_ended = (head.len() as u64) < size;
        let wave = match has_ended {
            true => Wave::read(&mut Cursor::new(&head), head.len() as u64),
            false => Wave::read_stream(&head),
        };
        let is_complete = match head.get(8..12) {
            Some(b"WAVE") => wave.is_some() || size >= MAX_WAVE_HEAD,
            _ => !has_more_flac_blocks(&head) || size >= MAX_FLAC_HEAD,
        };
        if is_complete || has_ended {
            break wave;
        }
        size *= 2;
    };
    let Some(wave) = wave else {
        return Ok(replays(head, stream));
    };
    let header = Cursor::new(wave.header(None));
    let start = usize::try_from(wave.start).unwrap_or(usize::MAX);
    let samples = Cursor::new(head.split_off(start.min(head.len()))).chain(stream);
    let samples = WaveStream::new(samples, &wave);
    let source = Box::new(ReadOnlySource::new(header.chain(samples)));
    Ok(Box::new(std::iter::once(open(source, Vec::new()))))
}

/// Returns the ways to read a stream, of which `head` was read already: as it is, then without metadata. A FLAC
/// stream is read without metadata only, as FLAC files are.
fn replays(head: Vec<u8>, stream: impl Read + Send + Sync + 'static) -> Attempts {
    let edits = edits(&mut Cursor::new(&head));
    let flac = plain_flac(&mut Cursor::new(&head));
    let replay = Replay::new(head, stream);
    let view = move |replay: &Replay, plain: &Plain| {
        let reader = replay.reader(plain)?;
        Some(open(Box::new(ReadOnlySource::new(reader)), edits.clone()))
    };
    let first = view(&replay, flac.as_ref().unwrap_or(&Plain::default()));
    let second = std::iter::once_with(move || {
        let plain = replay.with_start(|start| plain(&mut Cursor::new(start)));
        view(&replay, &plain.filter(|_| flac.is_none())?)
    });
    Box::new(first.into_iter().chain(second.flatten()))
}

fn failed(e: io::Error) -> Error {
    Error::new(ErrorKind::Io, &e).caused_by(e)
}

fn open(source: Box<dyn MediaSource>, edits: Vec<Edit>) -> Result<Container> {
    let source = Box::new(CheckedRuns::new(source));
    let mut stream = MediaSourceStream::new(source, MediaSourceStreamOptions::default());
    match stream.read_byte() {
        Ok(_) => (),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            bail!(Format, "the audio file is empty")
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(failure("header of the audio file", e.into()));
        }
        Err(e) => return Err(failed(e)),
    }
    stream.seek_buffered_rel(-1);
    let mut probe = Probe::new_with_options(&ProbeOptions {
        max_probe_depth: MAX_JUNK,
        ..ProbeOptions::default()
    });
    register_enabled_formats(&mut probe);
    let tags = MetadataOptions::default().limit_visual_bytes(Limit::Maximum(0));
    let format = guard(|| probe.probe(&Hint::new(), stream, FormatOptions::default(), tags));
    match format {
        Ok(format) => Ok(Container {
            format,
            edits,
            is_truncated: false,
        }),
        Err(DecodeError::Unsupported(NO_FORMAT)) => bail!(
            Unsupported,
            "not an audio file: no decoder recognizes its content; supported formats: {FORMATS}"
        ),
        Err(e) => Err(failure("header of the audio file", e)),
    }
}

/// Calls `symphonia`, version 0.6.1 of which panics on some damaged files: fragmented MP4 files with
/// wrong offsets of samples, Vorbis headers with invalid codebooks or floors.
pub(crate) fn guard<T>(call: impl FnOnce() -> Result<T, DecodeError>) -> Result<T, DecodeError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(DecodeError::LimitError(PANIC)))
}

/// Converts an error of a decoder; `clause` says what failed.
pub(crate) fn failure(clause: &str, error: DecodeError) -> Error {
    let known = match &error {
        DecodeError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Some((ErrorKind::Format, "the file is truncated"))
        }
        DecodeError::Unsupported("isomp4: missing moov atom") => Some((
            ErrorKind::Format,
            "no moov box: the file is truncated, or its header follows the audio and the stream \
             cannot seek",
        )),
        DecodeError::LimitError(PANIC) => Some((ErrorKind::Format, PANIC)),
        DecodeError::DecodeError("riff: invalid channel count") => Some((
            ErrorKind::Unsupported,
            "number of channels is 0 or above 26",
        )),
        _ => None,
    };
    if let Some((kind, message)) = known {
        return Error::new(kind, format_args!("{clause}: {message}")).caused_by(error);
    }
    let kind = match &error {
        // Decoders return errors of these types for damaged files.
        DecodeError::IoError(e) if e.raw_os_error().is_none() && IN_FILES.contains(&e.kind()) => {
            ErrorKind::Format
        }
        DecodeError::IoError(_) => ErrorKind::Io,
        DecodeError::Unsupported(_) => ErrorKind::Unsupported,
        DecodeError::LimitError(_) => ErrorKind::TooLarge,
        _ => ErrorKind::Format,
    };
    Error::new(kind, format_args!("{clause}: {error}")).caused_by(error)
}
