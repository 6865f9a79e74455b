//! The stages of loading: their names, their clock, their place in an error.

use super::options::Options;
use crate::error::{Context, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The 18 stages, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Choose the device.
    Device = 1,
    /// Embedded or overriding shaders.
    Shaders,
    /// Tell the file's format by its content.
    Format,
    /// Map the file, read header and metadata.
    Weights,
    /// Read the numbers of the model.
    Config,
    /// Find the recipe.
    Architecture,
    /// The facts of the device that tune dispatches.
    Tuning,
    /// Tied embeddings, RoPE style, vocabulary size.
    Quirks,
    /// RoPE frequencies.
    Rope,
    /// A range for every number.
    Validation,
    /// The tokenizer and the tokens that stop generation.
    Tokenizer,
    /// Size of the KV cache, held against memory.
    Cache,
    /// Size of a chunk, held against memory.
    Scratch,
    /// The tables that pick a token for each of their rows.
    Step,
    /// The tables that chunks of tokens go through.
    Batch,
    /// Buffers and parameters on the device.
    Buffers,
    /// One pass, so that the first token finds everything awake.
    WarmUp,
    /// The model.
    Handle,
}

/// How many stages there are.
pub const STAGES: u32 = Stage::Handle as u32;

impl Stage {
    /// Its name in messages and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Shaders => "shaders",
            Self::Format => "format",
            Self::Weights => "weights",
            Self::Config => "config",
            Self::Architecture => "architecture",
            Self::Tuning => "tuning",
            Self::Quirks => "quirks",
            Self::Rope => "rope",
            Self::Validation => "validation",
            Self::Tokenizer => "tokenizer",
            Self::Cache => "cache",
            Self::Scratch => "scratch",
            Self::Step => "step tables",
            Self::Batch => "batch tables",
            Self::Buffers => "buffers",
            Self::WarmUp => "warm-up",
            Self::Handle => "handle",
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
    pub(super) fn new(options: &Options, report: &'a mut dyn FnMut(&Progress)) -> Self {
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
