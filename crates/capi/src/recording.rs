//! A transcription and the audio that it reads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tabla::audio::{AudioReader, PcmConverter, SAMPLE_RATE};
use tabla::error::bail;
use tabla::speech::Segment;
use tabla::{Cancel, Result, Transcription};

/// Samples read at a time: one second.
const BLOCK: usize = SAMPLE_RATE as usize;
/// Recordings up to this duration have one window, which needs no measurement of the whole recording.
const WINDOW_SECONDS: f64 = 30.0;

/// Encoded audio.
pub(super) enum Encoded {
    Path(PathBuf),
    Bytes(Arc<[u8]>),
}

impl Encoded {
    fn open(&self) -> Result<AudioReader> {
        match self {
            Self::Path(path) => AudioReader::open(path),
            Self::Bytes(bytes) => AudioReader::from_bytes(Arc::clone(bytes)),
        }
    }

    /// Whether the audio can be read twice: pipes and devices cannot.
    fn can_reopen(&self) -> bool {
        match self {
            Self::Path(path) => Path::is_file(path),
            Self::Bytes(_) => true,
        }
    }
}

/// Where samples come from.
enum Audio {
    /// The program passes them.
    Pushed(Box<PcmConverter>),
    /// They are read when segments are requested.
    Read(Box<AudioReader>),
    Ended,
}

/// Encoded audio that is read a first time for its maximum.
struct Unmeasured {
    encoded: Encoded,
    /// Opened with the recording, whose file may be removed since. `None` after a cancellation.
    reader: Option<Box<AudioReader>>,
}

/// A transcription and its audio.
pub(super) struct Recording {
    pub(super) transcription: Transcription,
    audio: Audio,
    /// Long audio whose maximum is found before its first segment.
    unmeasured: Option<Unmeasured>,
    samples: Vec<f32>,
}

impl Recording {
    /// A recording whose samples the program passes.
    pub(super) fn pushed(transcription: Transcription, converter: PcmConverter) -> Self {
        Self {
            transcription,
            audio: Audio::Pushed(Box::new(converter)),
            unmeasured: None,
            samples: Vec::new(),
        }
    }

    /// A recording of encoded audio. Long audio is read twice: the first time for its maximum, in the
    /// first call of [`Self::next_segment`], so that a program can cancel it.
    pub(super) fn encoded(transcription: Transcription, encoded: Encoded) -> Result<Self> {
        let reader = encoded.open()?;
        let is_long = reader.duration().is_none_or(|d| d > WINDOW_SECONDS);
        let unmeasured = match is_long && encoded.can_reopen() {
            true => Some(Unmeasured {
                reader: Some(Box::new(encoded.open()?)),
                encoded,
            }),
            false => None,
        };
        Ok(Self {
            transcription,
            audio: Audio::Read(Box::new(reader)),
            unmeasured,
            samples: Vec::new(),
        })
    }

    /// Adds samples of the program.
    pub(super) fn push(&mut self, samples: &[f32]) -> Result<()> {
        let Audio::Pushed(converter) = &mut self.audio else {
            bail!(
                State,
                "the recording has ended, or is read from encoded audio"
            );
        };
        self.samples.clear();
        converter.push(samples, &mut self.samples)?;
        self.transcription.push(&self.samples)
    }

    /// Adds all samples of a recording and ends it. Stops at a cancellation, which the next call of
    /// [`Self::next_segment`] reports.
    pub(super) fn push_all(
        &mut self,
        samples: &[f32],
        channels: usize,
        cancel: &Cancel,
    ) -> Result<()> {
        for block in samples.chunks(BLOCK * channels) {
            if cancel.is_pending() {
                break;
            }
            self.push(block)?;
        }
        self.finish()
    }

    /// Ends the recording.
    pub(super) fn finish(&mut self) -> Result<()> {
        let audio = std::mem::replace(&mut self.audio, Audio::Ended);
        if let Audio::Pushed(converter) = audio {
            self.samples.clear();
            converter.finish(&mut self.samples)?;
            self.transcription.push(&self.samples)?;
        }
        self.unmeasured = None;
        self.transcription.finish();
        Ok(())
    }

    /// Returns the next segment, for which encoded audio is read as far as needed.
    pub(super) fn next_segment(&mut self) -> Result<Option<Segment>> {
        if let Some(Unmeasured { encoded, reader }) = &mut self.unmeasured {
            let mut reader = match reader.take() {
                Some(reader) => reader,
                None => Box::new(encoded.open()?),
            };
            self.transcription.measure(&mut reader)?;
            self.unmeasured = None;
        }
        loop {
            if let Some(segment) = self.transcription.next_segment()? {
                return Ok(Some(segment));
            }
            let Audio::Read(reader) = &mut self.audio else {
                return Ok(None);
            };
            self.samples.clear();
            if reader.read(BLOCK, &mut self.samples)? > 0 {
                self.transcription.push(&self.samples)?;
            } else {
                self.finish()?;
            }
        }
    }
}
