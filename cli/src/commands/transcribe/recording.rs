//! The transcription of one recording.

use super::input::{Audio, Input, RawArgs};
use super::output::Output;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use tabla::Transcription;

/// Recordings up to this duration have one window, which needs no measurement of the whole recording.
const WINDOW_SECONDS: f64 = 30.0;

/// A recording and its transcription.
pub(super) struct Recording<'a> {
    file: &'a Input,
    raw: &'a RawArgs,
    transcription: Transcription,
    bar: Seconds<'a>,
}

impl<'a> Recording<'a> {
    /// A recording that adds its seconds to the progress bar.
    pub(super) fn new(
        file: &'a Input,
        raw: &'a RawArgs,
        transcription: Transcription,
        bar: &'a Progress,
    ) -> Self {
        Self {
            file,
            raw,
            transcription,
            bar: Seconds {
                bar,
                length: 0,
                position: 0,
            },
        }
    }

    /// Transcribes the recording. The output is started and not finished.
    pub(super) fn transcribe(mut self, output: &mut Output) -> Result<(), Failure> {
        let mut audio = self.file.open(self.raw)?;
        let duration = audio.duration();
        self.bar.set(duration.unwrap_or(0.0), 0.0);
        if self.file.can_reopen() && duration.is_none_or(|d| d > WINDOW_SECONDS) {
            self.measure()?;
        }
        output.start(self.file)?;
        let mut samples = Vec::new();
        while audio.read(&mut samples)? > 0 {
            self.transcription.push(&samples)?;
            samples.clear();
            self.write_segments(output)?;
        }
        self.transcription.finish();
        self.write_segments(output)?;
        if let Some(warning) = audio.warning() {
            terminal::note(&format!("warning: {}: {warning}", self.file));
        }
        let duration = self.transcription.duration();
        self.bar.set(duration, duration);
        output.finish(self.transcription.language(), duration)
    }

    /// Finds the loudest frame of the whole recording.
    fn measure(&mut self) -> Result<(), Failure> {
        match self.file.open(self.raw)? {
            Audio::Container(mut reader) => Ok(self.transcription.measure(&mut reader)?),
            Audio::Raw(_) | Audio::Stream(_) => Ok(()),
        }
    }

    /// Writes the segments that are found in the samples so far.
    fn write_segments(&mut self, output: &mut Output) -> Result<(), Failure> {
        loop {
            let segment = self.transcription.next_segment()?;
            let transcription = &self.transcription;
            self.bar
                .set(transcription.duration(), transcription.position());
            let Some(segment) = segment else {
                return Ok(());
            };
            output.segment(self.transcription.language(), &segment)?;
        }
    }
}

/// The seconds of a recording on a progress bar, which other recordings may share.
struct Seconds<'a> {
    bar: &'a Progress,
    length: u64,
    position: u64,
}

impl Seconds<'_> {
    /// Sets the duration and the position in seconds. Both only increase.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    fn set(&mut self, length: f64, position: f64) {
        let length = self.length.max(length as u64);
        let position = self.position.max(position as u64);
        self.bar
            .advance(length - self.length, position - self.position);
        (self.length, self.position) = (length, position);
    }
}
