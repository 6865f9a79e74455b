//! Which parts of a recording are silent: by their level, or by a model of voices.

use crate::audio::{HOP, VOICE_WINDOW, VoiceDetector, VoiceModel};
use std::ops::Range;
use std::sync::Arc;

/// Probability of speech below which audio is no speech; that at which whisper.cpp ends speech.
const SPEECH_MIN: f32 = 0.35;

/// A test of frames for silence.
#[derive(Debug)]
pub(super) enum Gate {
    /// Mean square of samples up to which frames are silent.
    Power(f32),
    /// A model, and its probability of speech for each window of samples so far.
    Voice(Box<VoiceDetector>, Vec<f32>),
}

impl Gate {
    /// Returns the test for a level in dBFS.
    pub(super) fn level(dbfs: f32) -> Self {
        Self::Power(10f32.powf(dbfs / 10.0))
    }

    /// Returns the test by a model.
    pub(super) fn voice(model: &Arc<VoiceModel>) -> Self {
        Self::Voice(Box::new(VoiceDetector::new(Arc::clone(model))), Vec::new())
    }

    /// Adds samples of the recording.
    pub(super) fn push(&mut self, samples: &[f32]) {
        if let Self::Voice(detector, probabilities) = self {
            detector.push(samples, probabilities);
        }
    }

    /// Ends the recording.
    pub(super) fn finish(&mut self) {
        if let Self::Voice(detector, probabilities) = self {
            detector.finish(probabilities);
        }
    }

    /// Returns how many of the `computed` frames can be tested.
    pub(super) fn known(&self, computed: usize) -> usize {
        match self {
            Self::Power(_) => computed,
            Self::Voice(_, probabilities) => computed.min(probabilities.len() * VOICE_WINDOW / HOP),
        }
    }

    /// Returns whether `frames`, with these mean squares of samples, are silent.
    pub(super) fn is_silent(&self, frames: Range<usize>, squares: &[f32]) -> bool {
        match self {
            Self::Power(power) => squares.iter().sum::<f32>() <= power * squares.len() as f32,
            Self::Voice(_, probabilities) => {
                let first = frames.start * HOP / VOICE_WINDOW;
                let end = (frames.end * HOP)
                    .div_ceil(VOICE_WINDOW)
                    .min(probabilities.len());
                let windows = &probabilities[first.min(end)..end];
                windows.iter().all(|probability| *probability < SPEECH_MIN)
            }
        }
    }
}
