//! Transcription: windows of audio through the encoder, and their tokens from the decoder.
//!
//! [`Transcription`] runs on the caller's thread and moves over the recording, a window at a time. The
//! model's thread decodes the windows: [`window_batch`] has those of several recordings, [`window`] the
//! attempts at one, [`hypotheses`] the texts of an attempt, and [`passes`] runs the tables.

mod gate;
mod hypotheses;
mod logits;
#[rustfmt::skip] // generated
mod option_fields;
mod options;
mod pages;
mod passes;
mod spectrogram;
mod transcription;
mod window;
mod window_batch;

pub use logits::{SpeechLogits, speech_logits};
pub use options::TranscribeOptions;
pub use transcription::Transcription;
pub(super) use window_batch::WindowBatch;
