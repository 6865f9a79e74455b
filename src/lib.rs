//! Tabla runs language, embedding, reranking and speech models on CPUs and GPUs. It loads a GGUF or
//! safetensors model, compiles it once into flat tables of
//! [`DispatchCmd`](op::table::DispatchCmd)s, and replays one table per token.
//!
//! ```no_run
//! use tabla::text::EncodeOptions;
//! use tabla::{GenerateOptions, Model, Sampling, Session};
//!
//! let model = Model::builder("model.gguf")
//!     .max_context(8192)
//!     .on_progress(|progress| eprintln!("{}", progress.stage.name()))
//!     .load()?;
//! let mut session = Session::new(model);
//! let prompt = session.tokenizer().encode("Once upon a time", EncodeOptions::PROMPT)?;
//! session.prefill(&prompt)?;
//! let options = GenerateOptions::default()
//!     .max_tokens(64)
//!     .sampling(Sampling::default().seed(7));
//! for piece in session.generate(&options)? {
//!     print!("{}", piece?.text);
//! }
//! # Ok::<(), tabla::Error>(())
//! ```
//!
//! [`Model::load`] loads a model with the default options, [`Model::builder`] with others. A
//! [`Session`] is one sequence of tokens, which prefill and generation extend.
//! [`Generation::next_piece`] returns the pieces of a generation without allocating memory.
//! [`Batch`] generates for many prompts on one thread. [`Cancel`] cancels a session, or loading, from
//! any thread.
//!
//! | module | content |
//! |---|---|
//! | [`load`] | options and progress of loading, devices of the machine |
//! | [`text`] | tokenizers, chat templates, tool calls, grammars |
//! | [`embed`] | embeddings and reranking |
//! | [`tools`] | inspection, quantization, conversion, tuning and comparison of models, control vectors |
//! | [`format`](mod@format), [`dtype`], [`quant`] | model files, storage types and their codecs |
//! | [`audio`], [`speech`] | audio files, and the rules of transcription |
//! | [`utf8`] | decoding of text files |
//! | [`error`](mod@error) | creation of errors |
//! | [`op`], [`plan`], [`exec`], [`device`] | operations, tables, and the devices that replay them |

mod builder;
mod decode;
mod sync;

pub use tabla_audio as audio;
pub use tabla_core::{device, dtype, op, reserve, utf8};
pub use tabla_format as format;
pub use tabla_load::{exec, load};
pub use tabla_plan as plan;
pub use tabla_quant as quant;
pub use tabla_speech as speech;
pub use tabla_text as text;

use tabla_load::{cancel, model, output};

pub use builder::ModelBuilder;
pub use decode::{
    Adapter, AsSession, Batch, BatchEvent, BatchPiece, Captured, DraftStats, Finish,
    GenerateOptions, Generation, GrammarStart, Hooks, Logprob, Model, Overflow, OwnedPiece, Piece,
    ReasoningMarkers, Sampling, ScoredToken, Session, SpeculateOptions, StartError, Stats,
    TranscribeOptions, Transcription,
};
pub use tabla_core::error::{Error, ErrorKind, Result};
pub use tabla_core::op::hooks::{CapturePositions, CapturedPoint, Edit, EditAction, HookSpec};
pub use tabla_load::cancel::Cancel;
pub use tabla_load::model::{Facts, TableId, Tuned};
pub use tabla_load::source::{ModelBytes, Source};

/// Creation of errors: a macro that returns an [`Error`], a trait that adds context to one, and functions that
/// shorten texts of files and users in messages.
pub mod error {
    pub use tabla_core::error::{Context, bail, excerpt, shorten};
    pub(crate) use tabla_core::error::{Error, ErrorKind, Result};
}

/// Embeddings, reranking and classification: [`Session::embed`], [`Session::rerank`] and
/// [`Session::classify`].
pub mod embed {
    pub use crate::decode::{
        ClassifyInput, ClassifyOptions, EmbedOptions, FailedInput, RerankOptions,
    };
    pub use tabla_load::model::{Classifier, Embedding, Pooling, ScoreActivation};
}

/// Tools for model files and devices: inspection, quantization, conversion, tuning and comparison;
/// control vectors.
pub mod tools {
    pub use crate::decode::{SpeechLogits, speech_logits};
    pub use tabla_tools::*;
}

/// Handles can move to other threads.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<Model>();
    is_sync::<Model>();
    is_send::<Session>();
    is_send::<Generation>();
    is_send::<Batch>();
    is_send::<Cancel>();
    is_sync::<Cancel>();
    is_send::<text::CompiledGrammar>();
    is_sync::<text::CompiledGrammar>();
};

/// The examples of the documentation, which the documentation tests compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/sampling.md")]
    mod sampling {}
    #[doc = include_str!("../docs/structure.md")]
    mod structure {}
    #[doc = include_str!("../docs/inside.md")]
    mod inside {}
}
