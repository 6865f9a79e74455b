//! Transcription: windows of audio through the encoder, and their tokens from the decoder.
//!
//! [`Transcription`] runs on the caller's thread and moves over the recording. The device computes a
//! window at a time, on the model's thread: [`window`] decodes it with the [`passes`] over the tables.

mod gate;
mod logits;
mod options;
mod pages;
mod passes;
mod spectrogram;
mod transcription;
mod window;

pub use logits::{SpeechLogits, speech_logits};
pub use options::TranscribeOptions;
pub use transcription::Transcription;
