//! Audio files, standard input and raw PCM.

use crate::output::{Failure, terminal};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tabla::audio::{AudioReader, PcmConverter, SAMPLE_RATE};
use tabla::error::Context;

/// Samples read at a time: one second.
const BLOCK: usize = SAMPLE_RATE as usize;
/// Interval at which a program that waits for standard input checks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

/// Format of audio without a header.
#[derive(Args, Clone, Debug)]
pub(super) struct RawArgs {
    /// Read raw PCM without a header, with samples of this type, little-endian and interleaved [default:
    /// s16 with --rate or --channels, otherwise the format is detected]
    #[arg(help_heading = "Raw audio", long, value_name = "s16|f32")]
    sample_format: Option<SampleFormat>,
    /// Sample rate of raw PCM in Hz [default: 16000]
    #[arg(help_heading = "Raw audio", long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1000..=768_000))]
    rate: Option<u32>,
    /// Number of channels of raw PCM [default: 1]
    #[arg(help_heading = "Raw audio", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    channels: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SampleFormat {
    S16,
    F32,
}

impl SampleFormat {
    fn bytes(self) -> usize {
        match self {
            Self::S16 => size_of::<i16>(),
            Self::F32 => size_of::<f32>(),
        }
    }
}

impl RawArgs {
    /// Whether audio has no header.
    fn is_raw(&self) -> bool {
        self.sample_format.is_some() || self.rate.is_some() || self.channels.is_some()
    }

    fn reader(&self, input: impl Read + Send + 'static) -> Result<RawReader, Failure> {
        let format = self.sample_format.unwrap_or(SampleFormat::S16);
        let rate = self.rate.unwrap_or(SAMPLE_RATE);
        let channels = self.channels.unwrap_or(1) as usize;
        let frame = channels * format.bytes();
        Ok(RawReader {
            input: Box::new(input),
            converter: Some(PcmConverter::new(rate, channels)?),
            format,
            frame,
            // A tenth of a second.
            block: frame * (rate as usize).div_ceil(10),
            bytes: Vec::new(),
        })
    }
}

/// A recording: a path, or `-` for standard input.
#[derive(Clone, Debug)]
pub(super) struct Input(PathBuf);

impl From<OsString> for Input {
    fn from(path: OsString) -> Self {
        Self(PathBuf::from(path))
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_stdin() {
            return f.write_str("standard input");
        }
        self.0.display().fmt(f)
    }
}

impl Input {
    pub(super) fn is_stdin(&self) -> bool {
        self.0 == Path::new("-")
    }

    /// File name without its extension.
    pub(super) fn stem(&self) -> String {
        if self.is_stdin() {
            return "stdin".to_string();
        }
        let name = self.0.file_stem().unwrap_or(self.0.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Whether the recording can be read twice: pipes and devices cannot.
    pub(super) fn can_reopen(&self) -> bool {
        !self.is_stdin() && self.0.is_file()
    }

    /// Opens a regular file, so that an error is reported before the model is loaded.
    pub(super) fn check(&self, raw: &RawArgs) -> Result<(), Failure> {
        if self.can_reopen() || !(self.is_stdin() || self.0.exists()) {
            self.open(raw)?;
        }
        Ok(())
    }

    /// Opens the recording.
    pub(super) fn open(&self, raw: &RawArgs) -> Result<Audio, Failure> {
        if self.is_stdin() {
            return read_ahead(raw.clone()).map(Audio::Stream);
        }
        if raw.is_raw() {
            let file = File::open(&self.0);
            let file = file.map_err(|cause| Failure::file("read", &self.0, cause))?;
            return raw.reader(file).map(|reader| Audio::Raw(reader.into()));
        }
        Ok(Audio::Container(AudioReader::open(&self.0)?.into()))
    }
}

/// Blocks that are read before they are transcribed; then the sender of a pipe waits. A block has at most
/// a second.
const BLOCKS_AHEAD: usize = 300;

/// Samples of standard input; no samples at the end.
type Blocks = Receiver<Result<Vec<f32>, Failure>>;

/// Reads standard input on a thread: a recorder does not wait while a window is transcribed, and Ctrl-C
/// does not wait for a recorder.
fn read_ahead(raw: RawArgs) -> Result<Blocks, Failure> {
    let (send, receive) = sync_channel(BLOCKS_AHEAD);
    // The read cannot be cancelled: the thread may run until the process exits.
    let read = move || {
        let mut audio = match open_stdin(&raw) {
            Ok(audio) => audio,
            Err(failure) => return drop(send.send(Err(failure))),
        };
        loop {
            let mut samples = Vec::new();
            let block = audio.read(&mut samples).map(|_| samples);
            let is_last = block.as_ref().map_or(true, Vec::is_empty);
            // The receiver is dropped after Ctrl-C.
            if send.send(block).is_err() || is_last {
                return;
            }
        }
    };
    match tabla::reserve::thread("tabla-stdin").and_then(|thread| thread.spawn(read)) {
        Ok(_) => Ok(receive),
        Err(cause) => Err(Failure::Program {
            message: "cannot start a thread that reads standard input".to_string(),
            cause: Some(cause),
        }),
    }
}

fn open_stdin(raw: &RawArgs) -> Result<Audio, Failure> {
    if raw.is_raw() {
        return raw
            .reader(io::stdin())
            .map(|reader| Audio::Raw(reader.into()));
    }
    let reader = AudioReader::from_reader(io::stdin()).context("standard input");
    Ok(Audio::Container(reader?.into()))
}

/// An open recording.
pub(super) enum Audio {
    Container(Box<AudioReader>),
    Raw(Box<RawReader>),
    Stream(Blocks),
}

impl Audio {
    /// Duration in seconds, if the header has it.
    pub(super) fn duration(&self) -> Option<f64> {
        match self {
            Self::Container(reader) => reader.duration(),
            Self::Raw(_) | Self::Stream(_) => None,
        }
    }

    /// What was damaged in the part that was read.
    pub(super) fn warning(&self) -> Option<&str> {
        match self {
            Self::Container(reader) => reader.warning(),
            Self::Raw(_) | Self::Stream(_) => None,
        }
    }

    /// Appends samples at 16 kHz, at most [`BLOCK`] of a file with a header. Returns 0 at the end, which
    /// is Ctrl-C for standard input.
    pub(super) fn read(&mut self, out: &mut Vec<f32>) -> Result<usize, Failure> {
        match self {
            Self::Container(reader) => Ok(reader.read(BLOCK, out)?),
            Self::Raw(reader) => reader.read(out),
            Self::Stream(blocks) => {
                while !terminal::interrupted() {
                    match blocks.recv_timeout(POLL) {
                        Ok(block) => {
                            let block = block?;
                            out.extend_from_slice(&block);
                            return Ok(block.len());
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return Ok(0),
                    }
                }
                Ok(0)
            }
        }
    }
}

/// Reader of PCM without a header.
pub(super) struct RawReader {
    input: Box<dyn Read + Send>,
    /// `None` after the end.
    converter: Option<PcmConverter>,
    format: SampleFormat,
    /// Bytes of a frame.
    frame: usize,
    /// Maximum number of bytes of a read.
    block: usize,
    /// Bytes that are not converted yet. At the end an incomplete frame is dropped.
    bytes: Vec<u8>,
}

impl RawReader {
    /// Appends the samples of at least one frame. Returns 0 at the end.
    fn read(&mut self, out: &mut Vec<f32>) -> Result<usize, Failure> {
        let before = out.len();
        while out.len() == before {
            let Some(converter) = &mut self.converter else {
                break;
            };
            let start = self.bytes.len();
            self.bytes.resize(start + self.block, 0);
            let read = read_some(&mut self.input, &mut self.bytes[start..])?;
            self.bytes.truncate(start + read);
            if read == 0 {
                let converter = self.converter.take().expect("it was there");
                converter.finish(out)?;
                break;
            }
            let whole = self.bytes.len() - self.bytes.len() % self.frame;
            let frames = &self.bytes[..whole];
            match self.format {
                SampleFormat::S16 => converter.push_i16(&numbers(frames, i16::from_le_bytes), out),
                SampleFormat::F32 => converter.push(&numbers(frames, f32::from_le_bytes), out),
            }?;
            self.bytes.drain(..whole);
        }
        Ok(out.len() - before)
    }
}

/// Reads what is available, and waits only if there is nothing.
fn read_some(input: &mut dyn Read, bytes: &mut [u8]) -> Result<usize, Failure> {
    loop {
        match input.read(bytes) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => {
                let message = "cannot read raw audio".to_string();
                let cause = Some(cause);
                return Err(Failure::Program { message, cause });
            }
            Ok(read) => return Ok(read),
        }
    }
}

fn numbers<T, const N: usize>(bytes: &[u8], parse: fn([u8; N]) -> T) -> Vec<T> {
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().map(|number| parse(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_have_no_extension() {
        for (path, stem) in [
            ("-", "stdin"),
            ("a/b.c.wav", "b.c"),
            ("talk", "talk"),
            (".wav", ".wav"),
        ] {
            assert_eq!(Input(PathBuf::from(path)).stem(), stem);
        }
    }

    /// A reader that returns one byte at a time.
    struct Bytes(std::vec::IntoIter<u8>);

    impl Read for Bytes {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            match (self.0.next(), out) {
                (Some(byte), [first, ..]) => *first = byte,
                _ => return Ok(0),
            }
            Ok(1)
        }
    }

    #[test]
    fn raw_frames_may_arrive_in_parts() {
        let args = RawArgs {
            sample_format: None,
            rate: None,
            channels: Some(2),
        };
        // Two frames, and a part of a third.
        let bytes: Vec<u8> = [0x4000i16, 0x2000, -0x8000, 0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .chain([1, 2, 3])
            .collect();
        let mut reader = args.reader(Bytes(bytes.into_iter())).expect("valid");
        let mut out = Vec::new();
        while reader.read(&mut out).expect("it reads") > 0 {}
        assert_eq!(out, [0.375, -0.5]);
    }
}
