//! Options of transcriptions.

use super::gate::Gate;
use super::option_fields::transcribe_options;
use crate::cancel::Cancel;
use crate::speech::BeamOptions;

transcribe_options! {
    tabla_core::options,
    /// Options of [`Transcription::new`](super::Transcription::new). The defaults are those of
    /// OpenAI's program.
    #[derive(Clone, Debug)]
    pub struct TranscribeOptions
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
