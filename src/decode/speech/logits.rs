//! Encoder states and logits of a speech model, to compare them with other programs.

use super::passes::Passes;
use crate::cancel::Cancel;
use crate::decode::Model;
use crate::error::{Result, bail};

/// Results of the tables of a speech model.
#[derive(Clone, Debug)]
pub struct SpeechLogits {
    /// Output of the encoder, `[context, dim]`.
    pub encoder: Vec<f32>,
    /// Logits after each token, `[tokens, vocab]`.
    pub logits: Vec<f32>,
}

/// Computes the encoder states of a normalized spectrogram, `[2 context, mels]`, and the logits after
/// each of `tokens`.
///
/// # Errors
///
/// `State` if the model is no speech model; `Argument` for a spectrogram of another size, no tokens,
/// and tokens outside the vocabulary; `TooLarge` if the tokens exceed the context.
pub fn speech_logits(model: &Model, mel: &[f32], tokens: &[u32]) -> Result<SpeechLogits> {
    let Some(speech) = model.speech() else {
        bail!(State, "the model is no speech model");
    };
    let frames = 2 * speech.context as usize;
    if mel.len() != frames * speech.filters.mels() {
        bail!(
            Argument,
            "spectrogram of {} numbers: expected {frames} frames of {}",
            mel.len(),
            speech.filters.mels()
        );
    }
    let facts = model.facts();
    if tokens.is_empty() {
        bail!(Argument, "there are no tokens");
    }
    if tokens.len() > facts.context as usize {
        bail!(
            TooLarge,
            "{} tokens exceed the context of {} positions",
            tokens.len(),
            facts.context
        );
    }
    if let Some(bad) = tokens.iter().find(|token| **token >= facts.vocab) {
        let vocab = facts.vocab;
        bail!(Argument, "token {bad} is outside the vocabulary of {vocab}");
    }
    let (mel, tokens, dim) = (mel.to_vec(), tokens.to_vec(), facts.dim as usize);
    model.call(move |engine| {
        engine.end_windows();
        let linked = &mut engine.linked;
        let mut passes = Passes::new(linked, 1, Cancel::new())?;
        passes.encode(linked, &mel)?;
        let mut encoder = vec![0.0; mel.len() / passes.speech.filters.mels() / 2 * dim];
        passes.read_encoder(linked, &mut encoder)?;
        let mut logits = vec![0.0; tokens.len() * linked.facts.vocab as usize];
        passes.score(linked, &tokens, &mut logits)?;
        Ok(SpeechLogits { encoder, logits })
    })
}
