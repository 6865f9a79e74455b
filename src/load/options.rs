//! LoadOptions of a load.

use crate::device::{GpuFeatures, Precision, Replay};
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::cpu::Level;
use crate::op::sampler::SamplerKind;
use crate::quant::i2_s;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Positions of the KV cache when nobody asks for a number.
pub const CONTEXT_DEFAULT: u32 = 4096;

/// Sequences of a KV cache at most.
pub const SEQUENCES_MAX: u32 = 256;

/// Which device replays the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU where there is one, else the CPU. An adapter that is itself software is no GPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, be it software; an error where there is none.
    Gpu,
}

/// Where weights are while a CPU computes with them: quantized ones and, with AMX and fast, BF16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightMemory {
    /// Packed where they fit into the memory that is free, else mapped.
    #[default]
    Auto,
    /// In the file's own pages: loading reads none of them, and every process shares them.
    Mapped,
    /// Rearranged while loading, in huge pages of their own: tokens come faster.
    Packed,
}

/// The tables that the steps of a single sequence go through on a GPU. A CPU computes the same bits by
/// all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepTables {
    /// The one of a lone row, which is the fastest.
    #[default]
    Lone,
    /// Those of two rows and more, as steps of several sequences do: guesses at tokens
    /// ([`SpeculateOptions`](crate::SpeculateOptions)) can be checked.
    Wide,
}

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Which device replays the tables.
    pub device: DeviceChoice,
    /// Threads on a CPU; 0 takes every core.
    pub threads: u32,
    /// Positions of the KV cache; 0 takes what the model was trained for, [`CONTEXT_DEFAULT`]
    /// at most.
    pub context: u32,
    /// Sequences that the KV cache holds, each of so many positions: they go on together;
    /// 0 is 1, and [`SEQUENCES_MAX`] are the most.
    pub sequences: u32,
    /// How exactly the device computes.
    pub precision: Precision,
    /// Where a CPU has its weights.
    pub weights: WeightMemory,
    /// The GPU adapter, by a part of its name or its index in [`devices`](crate::devices); the best one where absent.
    /// Who names one gets it or an error, and never the CPU.
    pub adapter: Option<String>,
    /// What is asked of a GPU.
    pub gpu_features: GpuFeatures,
    /// How a GPU replays tables.
    pub replay: Replay,
    /// A folder whose shaders stand in front of the embedded ones.
    pub shader_folder: Option<PathBuf>,
    /// A folder of tunings, as [`Tuning::write`](crate::Tuning::write) fills it: a GPU's tables follow that of this model on
    /// this adapter, where there is one. Sums may then have another order.
    pub tuning_folder: Option<PathBuf>,
    /// A folder that keeps a GPU's compiled kernels for the next load, where its driver gives them
    /// out; nothing is kept where absent.
    pub kernel_folder: Option<PathBuf>,
    /// Tokens of a prefill chunk at most; 0 takes what suits the device.
    pub chunk_tokens: u32,
    /// The CPU's instruction set; `None` takes the best, or what `TABLA_CPU` names.
    pub level: Option<Level>,
    /// The samplers of the tables, in their order: what is not among them stays off. `None` takes
    /// [`SamplerKind::DEFAULT`].
    pub samplers: Option<Vec<SamplerKind>>,
    /// Whether a model that generates text yields embeddings too. Encoders always do.
    pub embeddings: bool,
    /// How the tensors of type `I2_S` are laid out, which no file says.
    pub i2s_layout: i2_s::Layout,
    /// The storage type of [`HEAD_TYPES`](crate::HEAD_TYPES) that the head is encoded in anew; `None` leaves it as it
    /// is stored. An embedding that is the head too stays what it is for looking tokens up.
    pub head_type: Option<DType>,
    /// The storage type of the KV cache, of [`CACHE_TYPES`](crate::CACHE_TYPES); `None` takes f16, or f32 where
    /// [`precision`](Self::precision) is exact.
    pub cache_type: Option<DType>,
    /// The tables that the steps of a single sequence go through.
    pub steps: StepTables,
    /// Bytes of the KV cache for prefixes: what was computed for sequences that have gone, and waits for
    /// whoever comes with the same tokens. They come on top of what the sequences take, in whole pages
    /// of 64 positions, and the oldest go first. `None` takes no more, and lets prefixes have what the
    /// sequences leave; with 0 nothing stays, and a session that goes on is computed anew.
    pub prefix_bytes: Option<u64>,
    /// Set from any thread, it stops the load in front of its next stage.
    pub stop: Option<Arc<AtomicBool>>,
}

impl LoadOptions {
    /// The samplers of the tables, each there once.
    pub(super) fn samplers(&self) -> Result<Vec<SamplerKind>> {
        let chain = self.samplers.as_deref().unwrap_or(SamplerKind::DEFAULT);
        SamplerKind::check(chain)?;
        Ok(chain.to_vec())
    }
}
