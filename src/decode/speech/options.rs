//! Options of transcriptions.

use super::gate::Gate;
use crate::audio::VoiceModel;
use crate::cancel::Cancel;
use crate::speech::{BeamOptions, Task, Thresholds};
use std::sync::Arc;

tabla_core::options! {
    /// Options of [`Transcription::new`](super::Transcription::new). The defaults are those of
    /// OpenAI's program.
    #[derive(Clone, Debug)]
    pub struct TranscribeOptions {
        /// Code or name of the language, such as `de` or `german`; `None`: detected in the first 30
        /// seconds. English models ignore it.
        pub language: Option<String>,
        /// Text in the spoken language, or English text.
        pub task: Task,
        /// Number of beams at temperature 0, 1 to 8; 1: greedy. Default 5.
        pub beam_size: u32,
        /// Beam search ends when `beam_size * patience` texts are finished. Default 1.
        pub patience: f32,
        /// Exponent of the length penalty, 0 to 1; `None`: sums are divided by lengths.
        pub length_penalty: Option<f32>,
        /// Number of samples at a temperature above 0, of which the most likely is kept, 1 to 8.
        /// Default 5.
        pub best_of: u32,
        /// First temperature. Default 0.
        pub temperature: f64,
        /// Increment of the temperature after each failed attempt, 0.01 to 1; `None`: one attempt.
        /// Default 0.2.
        pub temperature_increment: Option<f64>,
        /// When an attempt has failed, and when a window is silent.
        pub thresholds: Thresholds,
        /// Whether the text of earlier windows is part of the prompt. Default true.
        pub condition_on_previous_text: bool,
        /// Text before the recording, such as names that occur in it.
        pub initial_prompt: Option<String>,
        /// Whether segments have timestamps. Otherwise each window is one segment. Default true.
        pub timestamps: bool,
        /// Whether segments have the times of their words, which costs a pass of the decoder per
        /// window. Default false.
        pub word_timestamps: bool,
        /// Latest start of the first segment of a window in seconds. Default 1.
        pub max_initial_timestamp: f64,
        /// Level in dBFS, -200 to 0, below which at least 2 seconds of audio are skipped as silence;
        /// windows end there. `None`: no audio is skipped. Default -60.
        pub silence_level: Option<f32>,
        /// Silero's model of voices, which finds silence instead of `silence_level`: audio without
        /// speech is skipped like silence.
        pub voice_model: Option<Arc<VoiceModel>>,
        /// Maximum duration of the recording in seconds, which is checked while it is read; `None`: no
        /// limit.
        pub max_duration: Option<f64>,
        /// Seed of samples. Default 0.
        pub seed: u64,
        /// Cancels the transcription within a layer of the encoder or a token.
        pub cancel: Option<Cancel>,
    }
}

impl Default for TranscribeOptions {
    fn default() -> Self {
        Self {
            language: None,
            task: Task::Transcribe,
            beam_size: 5,
            patience: 1.0,
            length_penalty: None,
            best_of: 5,
            temperature: 0.0,
            temperature_increment: Some(0.2),
            thresholds: Thresholds::default(),
            condition_on_previous_text: true,
            initial_prompt: None,
            timestamps: true,
            word_timestamps: false,
            max_initial_timestamp: 1.0,
            silence_level: Some(-60.0),
            voice_model: None,
            max_duration: None,
            seed: 0,
            cancel: None,
        }
    }
}

impl TranscribeOptions {
    /// Returns the test for silence.
    pub(super) fn gate(&self) -> Option<Gate> {
        match &self.voice_model {
            Some(model) => Some(Gate::voice(model)),
            None => self.silence_level.map(Gate::level),
        }
    }

    /// Returns the options of the beam search.
    pub(super) fn beams(&self, eot: u32) -> BeamOptions {
        BeamOptions {
            beams: self.beam_size,
            patience: self.patience,
            length_penalty: self.length_penalty,
            eot,
        }
    }
}
