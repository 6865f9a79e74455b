//! Options of decoding: language, task, beam search, fallback, prompt.

use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use tabla::audio::VoiceModel;
use tabla::speech::{Language, Task, Thresholds, WordTimes};
use tabla::{Cancel, TranscribeOptions};

/// How a recording is transcribed.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct DecodingArgs {
    /// Spoken language: a code such as de, an English name, or auto to detect it in the first 30 seconds
    #[arg(help_heading = "Transcription", long, value_name = "LANGUAGE", default_value = "auto", value_parser = language)]
    language: SpokenLanguage,
    /// Translate to English
    #[arg(help_heading = "Transcription", long)]
    translate: bool,
    /// Number of beams at temperature 0; 1: greedy decoding
    #[arg(help_heading = "Transcription", long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=8))]
    beam_size: u32,
    /// Number of samples at a temperature above 0, of which the most likely is kept
    #[arg(help_heading = "Transcription", long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=8))]
    best_of: u32,
    /// First temperature, 0 to 1
    #[arg(help_heading = "Transcription", long, value_name = "N", default_value_t = 0.0, value_parser = unit)]
    temperature: f64,
    /// Increment of the temperature after each failed attempt at a window; 0: no fallback
    #[arg(help_heading = "Transcription", long, value_name = "N", default_value_t = 0.2, value_parser = unit)]
    temperature_increment: f64,
    /// An attempt fails if the text compresses better than by this ratio, which means repetition
    #[arg(
        help_heading = "Transcription",
        long,
        value_name = "N",
        default_value_t = 2.4
    )]
    compression_ratio_threshold: f64,
    /// An attempt fails if the average log-probability of its tokens is below this
    #[arg(
        help_heading = "Transcription",
        long,
        value_name = "N",
        default_value_t = -1.0,
        allow_negative_numbers = true
    )]
    logprob_threshold: f64,
    /// A window is silence if its probability of no speech is above this and the average log-probability
    /// is below --logprob-threshold
    #[arg(
        help_heading = "Transcription",
        long,
        value_name = "N",
        default_value_t = 0.6
    )]
    no_speech_threshold: f64,
    /// Skip audio below this level for at least 2 seconds, in dBFS; off: skip nothing
    #[arg(help_heading = "Transcription", long, value_name = "DB|off", default_value = "-60", allow_negative_numbers = true, value_parser = silence_level)]
    silence_level: SilenceLevel,
    /// Silero model of voices, a ggml file of whisper.cpp: skip audio without speech for at least 2
    /// seconds, instead of --silence-level
    #[arg(help_heading = "Transcription", long, value_name = "FILE")]
    vad_model: Option<PathBuf>,
    /// Text before the recording, such as names that occur in it
    #[arg(help_heading = "Transcription", long, value_name = "TEXT")]
    initial_prompt: Option<String>,
    /// Do not use the text of earlier windows as a prompt, which avoids repetition loops
    #[arg(help_heading = "Transcription", long)]
    no_previous_text: bool,
    /// Decode without timestamps: each window of 30 seconds is one segment
    #[arg(help_heading = "Transcription", long)]
    no_timestamps: bool,
    /// Seed of the samples at a temperature above 0
    #[arg(
        help_heading = "Transcription",
        long,
        value_name = "N",
        default_value_t = 0
    )]
    seed: u64,
}

/// A language; `None`: detected.
type SpokenLanguage = Option<&'static Language>;

/// A level in dBFS; `None`: off.
#[derive(Clone, Copy, Debug)]
struct SilenceLevel(Option<f32>);

/// Parses the name of a language; `auto` detects it.
fn language(name: &str) -> Result<SpokenLanguage, String> {
    if name == "auto" {
        return Ok(None);
    }
    let found = Language::find(name).map_err(|error| error.message().to_string());
    found.map(Some)
}

/// Parses a number from 0 to 1.
fn unit(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x| (0.0..=1.0).contains(x));
    number.ok_or_else(|| "expected a number from 0 to 1".to_string())
}

/// Parses a level in dBFS, or `off`.
fn silence_level(text: &str) -> Result<SilenceLevel, String> {
    if text == "off" {
        return Ok(SilenceLevel(None));
    }
    let number: Option<f32> = text
        .parse()
        .ok()
        .filter(|x: &f32| (-200.0..=0.0).contains(x));
    let level = number
        .ok_or_else(|| "expected a level from -200 to 0 dBFS, such as -60, or off".to_string());
    level.map(|level| SilenceLevel(Some(level)))
}

impl DecodingArgs {
    /// Returns the options of the library.
    ///
    /// # Errors
    ///
    /// Those of opening the model of voices.
    pub(super) fn options(
        &self,
        words: WordTimes,
        cancel: &Cancel,
    ) -> tabla::Result<TranscribeOptions> {
        let increment = self.temperature_increment;
        let voice_model = self
            .vad_model
            .as_deref()
            .map(VoiceModel::open)
            .transpose()?;
        Ok(TranscribeOptions::default()
            .language(self.language.map(|language| language.code.to_string()))
            .task(self.task())
            .beam_size(self.beam_size)
            .best_of(self.best_of)
            .temperature(self.temperature)
            .temperature_increment((increment > 0.0).then_some(increment))
            .thresholds(Thresholds {
                compression_ratio: Some(self.compression_ratio_threshold),
                logprob: Some(self.logprob_threshold),
                no_speech: Some(self.no_speech_threshold),
            })
            .silence_level(self.silence_level.0)
            .voice_model(voice_model.map(Arc::new))
            .initial_prompt(self.initial_prompt.clone())
            .condition_on_previous_text(!self.no_previous_text)
            .timestamps(!self.no_timestamps)
            .word_timestamps(words == WordTimes::On)
            .seed(self.seed)
            .cancel(Some(cancel.clone())))
    }

    /// Returns the task.
    pub(super) fn task(&self) -> Task {
        if self.translate {
            Task::Translate
        } else {
            Task::Transcribe
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_languages_and_levels() {
        assert_eq!(language("auto"), Ok(None));
        let german = language("German").expect("a language");
        assert_eq!(german.map(|language| language.code), Some("de"));
        assert!(language("klingon").is_err_and(|e| e.contains("unknown language \"klingon\"")));
        assert_eq!(silence_level("off").map(|level| level.0), Ok(None));
        assert_eq!(silence_level("-45").map(|level| level.0), Ok(Some(-45.0)));
        for wrong in ["", "loud", "nan", "inf"] {
            assert!(silence_level(wrong).is_err(), "{wrong}");
        }
        assert!(unit("1.5").is_err() && unit("nan").is_err() && unit("0.5").is_ok());
    }
}
