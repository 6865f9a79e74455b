//! Reading of audio files as mono samples at 16 kHz.

use crate::convert::PcmConverter;
use crate::source::{Attempts, Container, open_file, open_path, open_stream};
use crate::track::{Spec, TrackDecoder};
use std::fmt;
use std::io::{Cursor, Read};
use std::mem;
use std::path::Path;
use tabla_core::error::{Context, Error, ErrorKind, Result};

/// An audio file that is decoded to mono samples at 16 kHz while it is read.
///
/// The format is detected from the content: WAV, MP3, FLAC, Ogg (Vorbis, Opus, FLAC), MP4 and M4A (AAC,
/// ALAC, MP3, Opus), `WebM` and Matroska, AAC. Of several tracks the default audio track is decoded.
/// Samples that an encoder adds at the start and at the end are removed, where the file states their
/// number. Metadata is not needed: sizes of WAV chunks may be wrong, and tags may be damaged. Damaged
/// packets are skipped, and a truncated file ends where its data ends; [`warning`](Self::warning) says so.
///
/// The memory in use does not depend on the length of the audio.
pub struct AudioReader {
    decoder: TrackDecoder,
    spec: Spec,
    /// `None` until the first frames are decoded, and after the end.
    converter: Option<PcmConverter>,
    /// Decoded samples of one packet.
    packet: Vec<f32>,
    /// Converted samples, of which the first `taken` were read.
    ready: Vec<f32>,
    taken: usize,
    state: State,
}

enum State {
    Decoding,
    /// An error that follows the samples before it.
    Failed(Error),
    Ended,
}

impl fmt::Debug for AudioReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spec {
            sample_rate,
            channels,
        } = self.spec;
        write!(f, "AudioReader of {channels} channels at {sample_rate} Hz")
    }
}

impl AudioReader {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// * `Io` if the file cannot be read.
    /// * `Format` if the file is empty, if its header is damaged or truncated, or if no packet can be
    ///   decoded.
    /// * `Unsupported` if the format is unknown, if there is no audio track or no decoder for its
    ///   codec, or if the track has more than 32 channels or a rate out of 1000 to 768000 Hz.
    /// * `TooLarge` if a size in the header exceeds a limit.
    pub fn open(path: &Path) -> Result<Self> {
        open_path(path)
            .and_then(Self::first_with_audio)
            .context(path.display())
    }

    /// Opens a file in memory. See [`open`](Self::open) for errors.
    ///
    /// Readers of the same bytes can share them as an `Arc<[u8]>`.
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        Self::first_with_audio(open_file(Cursor::new(bytes))?)
    }

    /// Opens a stream that cannot seek. See [`open`](Self::open) for errors.
    ///
    /// Streams of MP4 files need their header before the audio. The duration is unknown for some
    /// formats, and the samples that an encoder adds at the end may not be removed.
    pub fn from_reader(stream: impl Read + Send + Sync + 'static) -> Result<Self> {
        Self::first_with_audio(open_stream(stream)?)
    }

    /// Returns the first reader with audio, otherwise the result of the first attempt.
    fn first_with_audio(attempts: Attempts) -> Result<Self> {
        let mut first = None;
        for container in attempts {
            match container.and_then(Self::new) {
                Ok(reader) if reader.decoder.has_audio() => return Ok(reader),
                other => first = first.or(Some(other)),
            }
        }
        first.expect("at least one attempt")
    }

    fn new(container: Container) -> Result<Self> {
        let decoder = TrackDecoder::new(container)?;
        let mut reader = Self {
            spec: decoder.spec(),
            decoder,
            converter: None,
            packet: Vec::new(),
            ready: Vec::new(),
            taken: 0,
            state: State::Decoding,
        };
        // The header of some formats does not state the rate, and the audio may be damaged.
        while !reader.decoder.has_audio() && matches!(reader.state, State::Decoding) {
            reader.advance()?;
        }
        Ok(reader)
    }

    /// Returns the number of samples per second of the file, before conversion. 0 if it has no audio
    /// and does not state the rate.
    pub fn sample_rate(&self) -> u32 {
        self.spec.sample_rate
    }

    /// Returns the number of channels of the file, before conversion. 0 if it has no audio and does
    /// not state the number.
    pub fn channels(&self) -> usize {
        self.spec.channels
    }

    /// Returns the length in seconds that the header states, if it does.
    pub fn duration(&self) -> Option<f64> {
        self.decoder.duration()
    }

    /// Returns what was damaged in the part that was read so far: the audio of the rest is returned.
    pub fn warning(&self) -> Option<&str> {
        self.decoder.warning()
    }

    /// Appends at most `samples` samples to `out`, mono at 16 kHz, and returns how many. Returns fewer
    /// only at the end or before an error, and 0 after the end. The samples do not depend on the sizes
    /// of the reads.
    ///
    /// # Errors
    ///
    /// * `Io` if the file cannot be read.
    /// * `Format` if a sample is not finite.
    /// * `Unsupported` if the number of channels or the rate changes to one that is not supported.
    ///
    /// The samples before an error are returned first; after an error there are no more samples.
    pub fn read(&mut self, samples: usize, out: &mut Vec<f32>) -> Result<usize> {
        while self.ready.len() - self.taken < samples && matches!(self.state, State::Decoding) {
            self.ready.drain(..mem::take(&mut self.taken));
            if let Err(e) = self.advance() {
                self.state = State::Failed(e);
            }
        }
        let rest = self.ready.get(self.taken..).unwrap_or_default();
        let rest = &rest[..samples.min(rest.len())];
        if rest.is_empty()
            && samples > 0
            && let State::Failed(e) = mem::replace(&mut self.state, State::Ended)
        {
            return Err(e);
        }
        out.extend_from_slice(rest);
        self.taken += rest.len();
        Ok(rest.len())
    }

    /// Decodes and converts one packet.
    fn advance(&mut self) -> Result<()> {
        let spec = self.decoder.next(&mut self.packet)?;
        if let Some(converter) = self.converter.take_if(|_| spec != Some(self.spec)) {
            converter.finish(&mut self.ready)?;
        }
        let Some(spec) = spec else {
            self.state = State::Ended;
            return Ok(());
        };
        let converter = match &mut self.converter {
            Some(converter) => converter,
            None => {
                let new = PcmConverter::new(spec.sample_rate, spec.channels);
                let new = new.map_err(|e| Error::new(ErrorKind::Unsupported, e.message()));
                self.spec = spec;
                self.converter.insert(new.context("audio track")?)
            }
        };
        converter.push(&self.packet, &mut self.ready)
    }
}
