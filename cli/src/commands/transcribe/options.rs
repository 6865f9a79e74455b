//! Options of decoding: language, task, beam search, fallback, prompt.

use super::decoding_options::TranscribeOptionArgs;
use std::sync::Arc;
use tabla::audio::VoiceModel;
use tabla::speech::{Task, Thresholds, WordTimes};
use tabla::{Cancel, TranscribeOptions};

impl TranscribeOptionArgs {
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
        let voice_model = self.vad_model.as_deref().map(VoiceModel::open);
        let voice_model = voice_model.transpose()?;
        Ok(self
            .clone()
            .plain_options()
            .language(self.language.map(|language| language.code.to_string()))
            .task(self.task())
            .temperature_increment((increment > 0.0).then_some(increment))
            .thresholds(Thresholds {
                compression_ratio: Some(self.compression_ratio_threshold),
                logprob: Some(self.logprob_threshold),
                no_speech: Some(self.no_speech_threshold),
            })
            .silence_level(self.silence_level)
            .voice_model(voice_model.map(Arc::new))
            .word_timestamps(words == WordTimes::On)
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
