//! Loading stages: names, order, timing, error context.

use super::options::LoadOptions;
use crate::cancel::Cancel;
use crate::error::{Context, Result, bail};
use crate::reserve;
use std::time::{Duration, Instant};

/// A loading stage, in execution order. The integer value is the stage number, 1 to 18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Chooses the device.
    Device = 1,
    /// Reads the device profile. On a GPU, validates the shaders.
    Profile,
    /// Detects the file format from the content.
    Format,
    /// Maps the file, reads its header and metadata.
    Weights,
    /// Reads the hyperparameters.
    Config,
    /// Looks up the architecture.
    Architecture,
    /// Checks the range of every hyperparameter.
    Validation,
    /// Resolves tensor names, tied embeddings, RoPE style and vocabulary size.
    Tensors,
    /// Sizes the KV cache and checks that it fits into memory. On a GPU, first applies the tuning
    /// of this model, because the size depends on it.
    Cache,
    /// Computes the RoPE frequencies, which some models scale by the context length.
    Rope,
    /// Starts to build the tokenizer, on a thread that runs until the warm-up; waiting for it then counts here.
    Tokenizer,
    /// Reads the chat templates.
    ChatTemplates,
    /// Reads pooling, maximum length and prompts of embeddings, and the filters of speech models.
    Embedding,
    /// Sizes the prefill chunk and checks that its scratch memory fits.
    Scratch,
    /// Builds the decode tables, which sample a token for each row.
    Step,
    /// Builds the prefill and embedding tables.
    Batch,
    /// Uploads weights and parameters to the device.
    Buffers,
    /// Runs every table once, so that the first token has no start-up cost.
    WarmUp,
}

/// Number of stages.
pub const STAGES: u32 = Stage::WarmUp as u32;

impl Stage {
    /// Returns the name used in messages and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Profile => "profile",
            Self::Format => "format",
            Self::Weights => "weights",
            Self::Config => "config",
            Self::Architecture => "architecture",
            Self::Validation => "validation",
            Self::Tensors => "tensors",
            Self::Cache => "cache",
            Self::Rope => "rope",
            Self::Tokenizer => "tokenizer",
            Self::ChatTemplates => "chat templates",
            Self::Embedding => "embedding",
            Self::Scratch => "scratch",
            Self::Step => "step tables",
            Self::Batch => "batch tables",
            Self::Buffers => "buffers",
            Self::WarmUp => "warm-up",
        }
    }
}

/// A finished stage, passed to a progress callback.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Duration of the stage.
    pub took: Duration,
    /// Number of finished stages, of [`STAGES`].
    pub ended: u32,
}

/// Runs stages: measures and reports their duration, and adds their name to errors.
pub(super) struct Stages<'a> {
    report: &'a mut dyn FnMut(&Progress),
    cancel: Option<Cancel>,
    pub(super) took: Vec<(&'static str, Duration)>,
}

impl<'a> Stages<'a> {
    pub(super) fn new(options: &LoadOptions, report: &'a mut dyn FnMut(&Progress)) -> Self {
        Self {
            report,
            cancel: options.cancel.clone(),
            took: Vec::with_capacity(STAGES as usize),
        }
    }

    /// Waits for the work that an earlier stage started, and adds the duration to it.
    pub(super) fn finish<T>(
        &mut self,
        stage: Stage,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let label = format_args!("stage {} {}", stage as u32, stage.name());
        let out = work().context(label)?;
        reserve::check().context(label)?;
        let entry = self.took.iter_mut().find(|(name, _)| *name == stage.name());
        if let Some((_, took)) = entry {
            *took += start.elapsed();
        }
        Ok(out)
    }

    pub(super) fn run<T>(&mut self, stage: Stage, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let span = tracing::info_span!("stage", number = stage as u32, name = stage.name());
        let _in_span = span.enter();
        let start = Instant::now();
        let label = format_args!("stage {} {}", stage as u32, stage.name());
        if self.cancel.as_ref().is_some_and(Cancel::take_pending) {
            bail!(Cancelled, "{label}: loading was stopped");
        }
        let out = work().context(label)?;
        reserve::check().context(label)?;
        let took = start.elapsed();
        tracing::debug!(took = ?took, "ended");
        self.took.push((stage.name(), took));
        let ended = u32::try_from(self.took.len()).unwrap_or(STAGES);
        (self.report)(&Progress { stage, took, ended });
        Ok(out)
    }
}
