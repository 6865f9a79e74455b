//! Ids of Whisper's special tokens, derived from the size of the vocabulary.
//!
//! The tokens follow the text tokens in this order: `endoftext`, `startoftranscript`, languages,
//! `translate`, `transcribe`, `startoflm`, `startofprev`, `nospeech`, `notimestamps`, and 1501
//! timestamps.

use crate::language::{LANGUAGES, Language};
use tabla_core::error::{Result, bail};

/// Seconds between timestamps.
pub const TIMESTAMP_SECONDS: f64 = 0.02;
/// Number of timestamps, from 0 to 30 seconds.
const TIMESTAMPS: u32 = 1501;

/// Task of a transcription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// Text in the spoken language.
    #[default]
    Transcribe,
    /// English text.
    Translate,
}

impl Task {
    /// Name in options and in `verbose_json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transcribe => "transcribe",
            Self::Translate => "translate",
        }
    }
}

/// Ids of the special tokens of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Number of ids: 51864, 51865 or 51866.
    pub vocab: u32,
    /// Number of language tokens: 99 or 100.
    pub languages: u32,
    /// End of text. All smaller ids are text.
    pub eot: u32,
    /// Start of transcript. The first language follows.
    pub sot: u32,
    /// Task: English text.
    pub translate: u32,
    /// Task: text in the spoken language.
    pub transcribe: u32,
    /// Start of a language model's text; unused.
    pub startoflm: u32,
    /// Start of the previous text in a prompt.
    pub startofprev: u32,
    /// No speech.
    pub nospeech: u32,
    /// Last token of a prompt for text without timestamps.
    pub notimestamps: u32,
    /// First timestamp: 0 seconds.
    pub first_timestamp: u32,
}

impl SpecialTokens {
    /// Returns the ids for a vocabulary of this size.
    ///
    /// # Errors
    ///
    /// `Unsupported` if no Whisper model has a vocabulary of this size.
    pub fn of(vocab: u32) -> Result<Self> {
        let (eot, languages) = match vocab {
            51_864 => (50_256, 99),
            51_865 => (50_257, 99),
            51_866 => (50_257, 100),
            _ => bail!(
                Unsupported,
                "vocabulary of {vocab} tokens: expected 51864 (English), 51865 (99 languages) or \
                 51866 (100 languages)"
            ),
        };
        let translate = eot + 2 + languages;
        let first_timestamp = translate + 6;
        if first_timestamp + TIMESTAMPS != vocab {
            bail!(
                Internal,
                "special tokens end at {}, vocabulary at {vocab}",
                first_timestamp + TIMESTAMPS
            );
        }
        Ok(Self {
            vocab,
            languages,
            eot,
            sot: eot + 1,
            translate,
            transcribe: translate + 1,
            startoflm: translate + 2,
            startofprev: translate + 3,
            nospeech: translate + 4,
            notimestamps: translate + 5,
            first_timestamp,
        })
    }

    /// Whether the model has several languages and tasks.
    pub fn is_multilingual(&self) -> bool {
        self.eot != 50_256
    }

    /// Last timestamp: 30 seconds.
    pub fn last_timestamp(&self) -> u32 {
        self.vocab - 1
    }

    /// Whether a token is a timestamp.
    pub fn is_timestamp(&self, token: u32) -> bool {
        token >= self.first_timestamp
    }

    /// Seconds of a timestamp from the start of the window; 0 for other tokens.
    pub fn seconds(&self, timestamp: u32) -> f64 {
        f64::from(self.timestamp_position(timestamp)) * TIMESTAMP_SECONDS
    }

    /// Number of a timestamp, in units of 20 ms; 0 for other tokens.
    pub fn timestamp_position(&self, timestamp: u32) -> u32 {
        timestamp.saturating_sub(self.first_timestamp)
    }

    /// Returns the language at a position in the order of the language tokens.
    pub fn language(&self, index: u32) -> Option<&'static Language> {
        if index >= self.languages {
            return None;
        }
        LANGUAGES.get(index as usize)
    }

    /// Returns the language of a language token.
    pub fn language_of(&self, token: u32) -> Option<&'static Language> {
        let index = token.checked_sub(self.sot + 1)?;
        self.language(index)
    }

    /// Returns the token of a language.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the model lacks the language.
    pub fn language_token(&self, language: &Language) -> Result<u32> {
        let index = language.index();
        if index >= self.languages {
            bail!(
                Unsupported,
                "language {} ({}) needs a model of {} languages, this model has {}",
                language.code,
                language.name,
                LANGUAGES.len(),
                self.languages
            );
        }
        Ok(self.sot + 1 + index)
    }

    /// Returns the token of a task.
    pub fn task_token(&self, task: Task) -> u32 {
        match task {
            Task::Transcribe => self.transcribe,
            Task::Translate => self.translate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::error::ErrorKind;

    #[test]
    fn ids_are_those_of_published_models() {
        for (vocab, expected) in [
            (
                51_864,
                [
                    50256, 50257, 50357, 50358, 50359, 50360, 50361, 50362, 50363,
                ],
            ),
            (
                51_865,
                [
                    50257, 50258, 50358, 50359, 50360, 50361, 50362, 50363, 50364,
                ],
            ),
            (
                51_866,
                [
                    50257, 50258, 50359, 50360, 50361, 50362, 50363, 50364, 50365,
                ],
            ),
        ] {
            let t = SpecialTokens::of(vocab).unwrap();
            let found = [
                t.eot,
                t.sot,
                t.translate,
                t.transcribe,
                t.startoflm,
                t.startofprev,
                t.nospeech,
                t.notimestamps,
                t.first_timestamp,
            ];
            assert_eq!(found, expected, "{vocab}");
            assert_eq!(t.is_multilingual(), vocab > 51_864);
            assert_eq!(t.last_timestamp() - t.first_timestamp, 1500);
            assert!((t.seconds(t.last_timestamp()) - 30.0).abs() < 1e-12);
            assert_eq!(t.language_of(t.sot), None);
            assert_eq!(t.language_of(t.translate), None);
            assert_eq!(t.language_of(t.sot + 1).unwrap().code, "en");
        }
    }

    #[test]
    fn rejects_other_vocabularies() {
        for vocab in [0, 50_257, 51_863, 51_867, 51_968, u32::MAX] {
            let error = SpecialTokens::of(vocab).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(&vocab.to_string()));
        }
    }

    #[test]
    fn languages_have_tokens() {
        let old = SpecialTokens::of(51_865).unwrap();
        let new = SpecialTokens::of(51_866).unwrap();
        let yue = Language::find("cantonese").unwrap();
        assert_eq!(new.language_token(yue).unwrap(), new.translate - 1);
        let error = old.language_token(yue).unwrap_err();
        assert_eq!(
            error.to_string(),
            "language yue (cantonese) needs a model of 100 languages, this model has 99"
        );
        let german = Language::find("de").unwrap();
        assert_eq!(old.language_token(german).unwrap(), 50_261);
        assert_eq!(old.language_of(50_261), Some(german));
        assert_eq!(old.language(99), None);
    }
}
