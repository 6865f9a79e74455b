//! Decoding: sessions, batching, scheduling, sampling and embeddings.
//!
//! A session sends its sequence to the model's thread and gets it back with the sampled tokens.
//! Only that thread uses the device: the scheduler selects the next requests, the engine runs them,
//! and all sequences share the pages of the KV cache.

mod batch;
mod burst;
mod capture;
mod captured;
mod classify;
mod draft_passes;
mod drafter;
mod embed;
mod end;
mod engine;
mod free_output;
mod generate;
#[rustfmt::skip] // generated
mod generate_fields;
mod generation;
mod generation_state;
mod grammar_start;
mod grammar_state;
mod hooks;
mod kv;
mod logit_biases;
mod lost;
mod model;
mod notifier;
mod output_queue;
mod output_request;
mod outputs;
mod pooling;
mod reasoning;
mod request;
mod request_queue;
mod rerank;
mod reuse;
mod rows;
mod sampling;
#[rustfmt::skip] // generated
mod sampling_options;
mod sampling_request;
mod saved;
mod scheduler;
mod score;
mod sequence;
mod session;
mod speculate;
mod speech;
mod table_set;
mod text_limits;

pub use batch::{Batch, BatchEvent, BatchPiece};
pub use captured::Captured;
pub use classify::{ClassifyInput, ClassifyOptions};
pub use embed::{EmbedOptions, FailedInput};
pub use generate::{GenerateOptions, Overflow};
pub use generation::{AsSession, Generation, StartError};
pub use grammar_start::GrammarStart;
pub use hooks::{Adapter, Hooks};
pub use model::Model;
pub use outputs::{DraftStats, Finish, Logprob, OwnedPiece, Piece, ScoredToken, Stats};
pub use reasoning::ReasoningMarkers;
pub use rerank::RerankOptions;
pub use sampling::Sampling;
pub use session::Session;
pub use speculate::SpeculateOptions;
pub use speech::{SpeechLogits, TranscribeOptions, Transcription, speech_logits};
