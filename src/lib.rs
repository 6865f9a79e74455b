//! Tabla runs language, embedding and speech models on CPUs and GPUs. It loads a GGUF or
//! safetensors model, compiles it once into flat tables of
//! [`DispatchCmd`](op::table::DispatchCmd)s, and replays one table per token.
//!
//! ```no_run
//! use tabla::text::EncodeOptions;
//! use tabla::{Flow, GenerateOptions, LoadOptions, Session, Source};
//!
//! let model = tabla::load(&Source::BuiltIn, &LoadOptions::default(), &mut |_| {})?;
//! let mut session = Session::new(model);
//! let prompt = session.tokenizer().encode("Once upon a time", EncodeOptions::PROMPT)?;
//! session.prefill(&prompt, &mut |_, _| {})?;
//! session.generate(&GenerateOptions::default(), &mut |piece| {
//!     print!("{}", piece.text);
//!     Flow::Continue
//! })?;
//! # Ok::<(), tabla::Error>(())
//! ```

pub mod arch;
pub mod exec;

mod decode;
mod load;
mod model;
mod output;

pub use tabla_core::{device, dtype, error, op, plan};
pub use tabla_format as format;
pub use tabla_quant as quant;
pub use tabla_text as text;

#[doc(hidden)]
pub use decode::AnswerState;
pub use decode::{
    Answer, Batch, BatchEvent, BatchPiece, Cancel, DraftStats, EmbedOptions, Finish, Flow,
    GenerateOptions, LogProb, Model, Overflow, Piece, RerankOptions, Sampling, Session,
    SpeculateOptions, Stats,
};
pub use device::{AdapterFacts, DeviceKind, Devices, GpuFeatures, Precision, Profile, Replay};
pub use error::{Error, ErrorKind, Result};
pub use load::{
    CACHE_TYPES, CONTEXT_DEFAULT, CommandGroup, Comparison, ConversionReport, DeviceChoice,
    Difference, ExportOptions, HEAD_TYPES, HiddenStates, LayerDifference, LoadOptions,
    MemoryEstimate, Progress, QUANT_MIXES, QuantMix, QuantizeOptions, SEQUENCES_MAX, STAGES,
    Source, Speedup, Stage, StepTables, TensorReport, TuneReport, Tuning, WeightMemory, compare,
    compile, devices, estimate, export, hidden_states, load_chat_templates, load_tokenizer,
    open_directory, quantize, tune,
};
pub use model::{Embedding, Facts, Pooling, TableId, Tuned};
pub use op::sampler::SamplerKind;

/// Loads a model and starts the thread that owns its device. `report` receives the progress of
/// loading.
///
/// # Errors
///
/// The message names the stage that failed, as in `stage 3 format: ...`. All resources are released
/// on failure.
pub fn load(
    source: &Source,
    options: &LoadOptions,
    report: &mut dyn FnMut(&Progress),
) -> Result<Model> {
    Model::new(load::load(source, options, report)?)
}
