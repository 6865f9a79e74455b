//! The public transcription: samples in, segments out.

use super::options::TranscribeOptions;
use super::passes::Passes;
use super::spectrogram::Spectrogram;
use super::window::{WindowDecoder, WindowRequest, WindowText, text_of};
use super::window_batch::WindowJob;
use crate::audio::{AudioReader, SAMPLE_RATE};
use crate::cancel::Cancel;
use crate::decode::Model;
use crate::error::{Result, bail};
use crate::model::BEAMS_MAX;
use crate::speech::{
    FRAMES_PER_SECOND, History, InitialPrompt, Language, Segment, SpecialTokens, Task, Thresholds,
    Verdict, Window, add_words, last_end,
};
use crate::text::EncodeOptions;
use std::collections::VecDeque;
use std::sync::mpsc::channel;

/// Temperature above which the text of a window is not part of the next prompt.
const PROMPT_TEMPERATURE_MAX: f64 = 0.5;
/// Samples read at a time by [`Transcription::measure`].
const MEASURED_SAMPLES: usize = 1 << 16;
/// Minimum number of frames of a window, as in whisper.cpp: in less than 0.1 seconds at the end of a
/// recording, models invent text.
const FRAMES_MIN: usize = 10;
/// Minimum number of frames to a window that begins at the end of the last word.
const ADVANCE_MIN: u32 = 100;

/// A transcription: takes the samples of a recording and returns segments as they are found.
///
/// ```no_run
/// use tabla::{Model, TranscribeOptions, Transcription};
///
/// let model = Model::load("ggml-base.en.bin")?;
/// let mut transcription = Transcription::new(&model, &TranscribeOptions::default())?;
/// # let samples = [0.0];
/// transcription.push(&samples)?;
/// transcription.finish();
/// while let Some(segment) = transcription.next_segment()? {
///     println!("{:.2} {:.2}{}", segment.start, segment.end, segment.text);
/// }
/// # Ok::<(), tabla::Error>(())
/// ```
#[derive(Debug)]
pub struct Transcription {
    model: Model,
    options: TranscribeOptions,
    special: SpecialTokens,
    spectrogram: Spectrogram,
    /// Frames per window.
    frames: usize,
    /// First frame of the next window.
    seek: usize,
    history: History,
    language: Option<&'static Language>,
    /// `None` while the model's thread has it.
    decoder: Option<WindowDecoder>,
    segments: VecDeque<Segment>,
    next_id: u32,
    /// End of the last word in seconds, with word timestamps.
    last_speech: f64,
}

impl Transcription {
    /// Prepares a transcription.
    ///
    /// # Errors
    ///
    /// `State` if the model is no speech model, `Argument` for an unknown language or an option out
    /// of range, `Unsupported` for a language or a task that the model lacks.
    pub fn new(model: &Model, options: &TranscribeOptions) -> Result<Self> {
        let Some(speech) = model.speech() else {
            bail!(State, "the model is no speech model and cannot transcribe");
        };
        for (name, value) in [
            ("beam_size", options.beam_size),
            ("best_of", options.best_of),
        ] {
            if !(1..=BEAMS_MAX).contains(&value) {
                bail!(Argument, "{name} must be 1 to {BEAMS_MAX}, got {value}");
            }
        }
        check_numbers(options)?;
        let special = speech.tokens;
        let language = match &options.language {
            _ if !special.is_multilingual() => Some(Language::find("en")?),
            Some(name) => Some(Language::find(name)?),
            None => None,
        };
        crate::speech::sot_sequence(
            &special,
            language.unwrap_or(Language::find("en")?),
            options.task,
        )?;
        let prompt = match &options.initial_prompt {
            Some(text) => {
                let text = format!(" {}", text.trim());
                model.tokenizer().encode(&text, EncodeOptions::default())?
            }
            None => Vec::new(),
        };
        let (cancel, beams) = (
            options.cancel.clone().unwrap_or_default(),
            options.beam_size.max(options.best_of) as usize,
        );
        let passes = model.call(move |engine| {
            (engine.linked.check_files)()?;
            Passes::new(&engine.linked, beams, cancel)
        })?;
        Ok(Self {
            decoder: Some(WindowDecoder::new(passes, options)?),
            options: options.clone(),
            spectrogram: Spectrogram::new(speech.filters.clone(), options.gate()),
            frames: 2 * speech.context as usize,
            seek: 0,
            history: History::new(&prompt, InitialPrompt::Once),
            language,
            segments: VecDeque::new(),
            next_id: 0,
            last_speech: 0.0,
            model: model.clone(),
            special,
        })
    }

    /// Adds samples: mono, 16 kHz, -1 to 1. [`AudioReader`](crate::audio::AudioReader) and
    /// [`PcmConverter`](crate::audio::PcmConverter) convert other audio.
    ///
    /// # Errors
    ///
    /// `Argument` for a sample that is not finite, `TooLarge` if the recording becomes longer than
    /// [`TranscribeOptions::max_duration`], `State` after [`Self::finish`].
    pub fn push(&mut self, samples: &[f32]) -> Result<()> {
        if self.spectrogram.has_ended() {
            bail!(State, "the recording has ended");
        }
        self.check_duration(&self.spectrogram, samples.len())?;
        self.spectrogram.push(samples)
    }

    /// Checks the duration of a recording with `more` samples.
    fn check_duration(&self, recording: &Spectrogram, more: usize) -> Result<()> {
        let seconds = (recording.sample_count() + more) as f64 / f64::from(SAMPLE_RATE);
        match self.options.max_duration {
            Some(most) if seconds > most => bail!(
                TooLarge,
                "the recording is longer than {most} seconds, the limit: split it"
            ),
            _ => Ok(()),
        }
    }

    /// Reads a whole recording to find its loudest frame, without transcribing it. Windows are then
    /// normalized with the maximum of the recording, as by OpenAI; otherwise with that of the frames
    /// so far. It makes a difference for quiet windows of recordings over 30 seconds.
    ///
    /// # Errors
    ///
    /// Those of the reader and of [`Self::push`], and `Cancelled`.
    pub fn measure(&mut self, reader: &mut AudioReader) -> Result<()> {
        let speech = self.model.speech().expect("checked by new");
        let mut all = Spectrogram::new(speech.filters.clone(), None);
        let mut samples = Vec::new();
        while reader.read(MEASURED_SAMPLES, &mut samples)? > 0 {
            self.check_cancelled()?;
            self.check_duration(&all, samples.len())?;
            all.push(&samples)?;
            all.forget(all.len());
            samples.clear();
        }
        all.finish();
        all.forget(usize::MAX);
        self.spectrogram.raise_max(all.max());
        Ok(())
    }

    /// Ends the recording.
    pub fn finish(&mut self) {
        self.spectrogram.finish();
    }

    /// Returns the next segment. `None` means that more samples are needed, or, after
    /// [`Self::finish`], that there are no more segments.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and errors of the device. The transcription can continue after a cancellation.
    pub fn next_segment(&mut self) -> Result<Option<Segment>> {
        loop {
            if let Some(segment) = self.segments.pop_front() {
                return Ok(Some(segment));
            }
            if !self.transcribe_window()? {
                return Ok(None);
            }
        }
    }

    /// Returns the language: the one of the options, or the detected one after the first window.
    pub fn language(&self) -> Option<&'static Language> {
        self.language
    }

    /// Returns the task.
    pub fn task(&self) -> Task {
        self.options.task
    }

    /// Returns the duration of the samples so far in seconds.
    pub fn duration(&self) -> f64 {
        self.spectrogram.sample_count() as f64 / f64::from(SAMPLE_RATE)
    }

    /// Returns the position up to which the recording is transcribed, in seconds.
    pub fn position(&self) -> f64 {
        self.seek as f64 / 100.0
    }

    /// Transcribes the next window. Returns whether there was one.
    fn transcribe_window(&mut self) -> Result<bool> {
        self.check_cancelled()?;
        let ended = self.spectrogram.has_ended();
        self.seek = self.spectrogram.skip_silence(self.seek);
        self.spectrogram.forget(self.seek);
        // A model may end a text at a silence, and what follows in the window would be lost.
        let cut = self.spectrogram.until_silence(self.seek, self.frames);
        let available = self.spectrogram.len().saturating_sub(self.seek);
        let audio = cut.unwrap_or(self.frames).min(available);
        let is_complete = ended || cut.is_some() || available >= self.frames;
        if audio < FRAMES_MIN || !is_complete {
            return Ok(false);
        }
        let window = Window {
            seek: u32::try_from(self.seek).unwrap_or(u32::MAX),
            frames: u32::try_from(audio).unwrap_or(u32::MAX),
        };
        let request = WindowRequest {
            mel: self.spectrogram.window(self.seek, audio, self.frames),
            previous: self.history.previous(),
            language: self.language,
            window,
        };
        let text = self.decode(request)?;
        self.language = Some(text.language);
        let advance = self.add_segments(text, &window)?;
        self.seek += advance.min(window.frames) as usize;
        self.spectrogram.forget(self.seek);
        Ok(true)
    }

    fn check_cancelled(&self) -> Result<()> {
        if self
            .options
            .cancel
            .as_ref()
            .is_some_and(Cancel::take_pending)
        {
            bail!(Cancelled, "transcription cancelled");
        }
        Ok(())
    }

    /// Decodes a window on the model's thread.
    fn decode(&mut self, request: WindowRequest) -> Result<WindowText> {
        let Some(decoder) = self.decoder.take() else {
            bail!(
                State,
                "the transcription has failed: create a new one, or load the model again"
            );
        };
        let (reply, answer) = channel();
        let job = WindowJob {
            decoder,
            request,
            reply,
        };
        self.model.call(move |engine| {
            engine.windows.add(job);
            Ok(())
        })?;
        let (decoder, text) = self.model.receive(&answer)?;
        self.decoder = Some(decoder);
        text
    }

    /// Adds the segments of a window. Returns the number of frames to the next window.
    fn add_segments(&mut self, text: WindowText, window: &Window) -> Result<u32> {
        if text.verdict == Verdict::Silence {
            return Ok(window.frames);
        }
        let mut advance = text.split.advance_frames;
        let mut segments = Vec::with_capacity(text.split.spans.len());
        for span in &text.split.spans {
            let tokens = text.tokens[span.tokens.clone()].to_vec();
            segments.push(Segment {
                id: 0,
                seek: window.seek,
                start: span.start,
                end: span.end,
                text: text_of(self.model.tokenizer(), &self.special, &tokens)?,
                tokens,
                temperature: text.temperature,
                avg_logprob: text.attempt.avg_logprob,
                compression_ratio: text.attempt.compression_ratio,
                no_speech_prob: text.attempt.no_speech_prob,
                words: Vec::new(),
            });
        }
        if self.options.word_timestamps {
            add_words(
                &mut segments,
                text.words,
                self.special.eot,
                self.last_speech,
            );
            if let Some(end) = last_end(&segments) {
                self.last_speech = end;
                let end = frame_at(end);
                if !text.split.is_finished && end >= window.seek.saturating_add(ADVANCE_MIN) {
                    advance = end - window.seek;
                }
            }
        }
        for mut segment in segments {
            segment.clear_if_empty();
            if segment.text.is_empty() {
                continue;
            }
            // Models state times in the silence after the audio.
            segment.clamp(window.end());
            segment.id = self.next_id;
            self.next_id += 1;
            self.history.push(&segment.tokens);
            self.segments.push_back(segment);
        }
        if !self.options.condition_on_previous_text || text.temperature > PROMPT_TEMPERATURE_MAX {
            self.history.forget();
        }
        Ok(advance)
    }
}

/// Returns the frame at a time in seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are at most those of the recording"
)]
fn frame_at(seconds: f64) -> u32 {
    (seconds * f64::from(FRAMES_PER_SECOND)).round() as u32
}

/// Checks the ranges of options.
fn check_numbers(options: &TranscribeOptions) -> Result<()> {
    let increment = options.temperature_increment.unwrap_or(1.0);
    for (name, value, [min, max]) in [
        ("temperature", options.temperature, [0.0, 1.0]),
        ("temperature_increment", increment, [0.01, 1.0]),
        (
            "max_initial_timestamp",
            options.max_initial_timestamp,
            [0.0, 30.0],
        ),
    ] {
        if !(min..=max).contains(&value) {
            bail!(Argument, "{name} must be {min} to {max}, got {value}");
        }
    }
    if let Some(level) = options.silence_level
        && !(-200.0..=0.0).contains(&level)
    {
        bail!(
            Argument,
            "silence_level must be -200 to 0 dBFS, got {level}"
        );
    }
    let Thresholds {
        compression_ratio,
        logprob,
        no_speech,
    } = options.thresholds;
    if let Some(nan) = [compression_ratio, logprob, no_speech]
        .iter()
        .flatten()
        .find(|x| x.is_nan())
    {
        bail!(Argument, "thresholds must be numbers, got {nan}");
    }
    Ok(())
}
