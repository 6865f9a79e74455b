//! The stages of loading: names, order, timing, error context.

use super::options::LoadOptions;
use crate::error::{Context, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The 18 stages, in the order in which they run. Its value as an integer is the stage's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Chooses the device.
    Device = 1,
    /// Reads the facts of the device that planning uses. On a GPU, checks the shaders, embedded or
    /// overriding.
    Profile,
    /// Detects the file's format by its content.
    Format,
    /// Maps the file, reads header and metadata.
    Weights,
    /// Reads the numbers of the model.
    Config,
    /// Finds the recipe.
    Architecture,
    /// Checks every number against its range.
    Validation,
    /// Resolves tied embeddings, RoPE style, vocabulary size.
    Quirks,
    /// Sizes the KV cache and checks that it fits into memory. On a GPU, applies the tuning of this
    /// model first, because the size depends on it.
    Cache,
    /// Computes the RoPE frequencies, which some files scale by the context.
    Rope,
    /// Reads the tokenizer and the tokens that stop generation.
    Tokenizer,
    /// Reads the chat templates.
    ChatTemplates,
    /// Reads pooling, length and prompts of embeddings.
    Embedding,
    /// Sizes a prefill chunk and checks that its working memory fits.
    Scratch,
    /// Builds the tables that pick a token for each of their rows.
    Step,
    /// Builds the tables that chunks of tokens go through.
    Batch,
    /// Fills buffers and parameters on the device.
    Buffers,
    /// Runs one pass, so that the first token needs no further preparation.
    WarmUp,
}

/// Number of stages.
pub const STAGES: u32 = Stage::WarmUp as u32;

impl Stage {
    /// Its name in messages and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Profile => "profile",
            Self::Format => "format",
            Self::Weights => "weights",
            Self::Config => "config",
            Self::Architecture => "architecture",
            Self::Validation => "validation",
            Self::Quirks => "quirks",
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

/// A stage that has ended, for a progress callback.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The stage that ended.
    pub stage: Stage,
    /// How long it took.
    pub took: Duration,
    /// Stages that have ended so far, of [`STAGES`].
    pub ended: u32,
}

/// Runs stages: times each, reports it, and names it in its error.
pub(super) struct Stages<'a> {
    report: &'a mut dyn FnMut(&Progress),
    stop: Option<Arc<AtomicBool>>,
    pub(super) took: Vec<(&'static str, Duration)>,
}

impl<'a> Stages<'a> {
    pub(super) fn new(options: &LoadOptions, report: &'a mut dyn FnMut(&Progress)) -> Self {
        Self {
            report,
            stop: options.stop.clone(),
            took: Vec::with_capacity(STAGES as usize),
        }
    }

    pub(super) fn run<T>(&mut self, stage: Stage, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let span = tracing::info_span!("stage", number = stage as u32, name = stage.name());
        let _in_span = span.enter();
        let start = Instant::now();
        let here = format_args!("stage {} {}", stage as u32, stage.name());
        let stop = self.stop.as_ref();
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            bail!(Cancelled, "{here}: the load was stopped");
        }
        let out = work().context(here)?;
        let took = start.elapsed();
        tracing::debug!(took = ?took, "ended");
        self.took.push((stage.name(), took));
        let ended = u32::try_from(self.took.len()).unwrap_or(STAGES);
        (self.report)(&Progress { stage, took, ended });
        Ok(out)
    }
}
