//! Options of loading a model.

use crate::cancel::Cancel;
use crate::device::{GpuFeatures, Precision, Replay};
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::cpu::Level;
use crate::op::sampler::SamplerKind;
use crate::quant::i2_s;
use std::path::PathBuf;

/// Default number of positions of the KV cache.
pub const CONTEXT_DEFAULT: u32 = 4096;

/// Maximum number of sequences of a KV cache.
pub const SEQUENCES_MAX: u32 = 256;

/// The device that runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A hardware GPU if there is one, otherwise the CPU. Software adapters are not used.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU or a software adapter. Loading fails if there is none.
    Gpu,
}

/// Memory layout of weights on a CPU. Applies to quantized weights and, with AMX and
/// [`Precision::Fast`], to BF16 weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightMemory {
    /// Packed as far as the copies fit into free memory, experts last; others are mapped.
    #[default]
    Auto,
    /// Memory-mapped file pages. Loading does not read them, and processes share them.
    Mapped,
    /// All are repacked while loading, in huge pages. Decoding is faster.
    Packed,
}

/// Whether a model on a GPU supports speculative decoding
/// ([`SpeculateOptions`](crate::SpeculateOptions)). A CPU always supports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSpeculation {
    /// A single sequence is decoded by the table with one row, which is the fastest.
    #[default]
    Off,
    /// A single sequence is decoded by tables with at least two rows, as several sequences are. On a
    /// GPU the order of sums may differ from [`Off`](Self::Off).
    On,
}

/// Drafting head: a small part of a model that drafts its next tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DraftingHead {
    /// No drafting head.
    #[default]
    None,
    /// The head for multi-token prediction (MTP) in the files of the model.
    Mtp,
    /// An EAGLE-3 drafter: a GGUF file or a folder of Hugging Face.
    Eagle3(PathBuf),
}

/// Layers whose experts are computed on the CPU, while a GPU computes the rest of the model: the products
/// of the experts that a router selects, not shared experts. Their weights stay in host memory. On a CPU,
/// and in a model without experts, all are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuExperts {
    /// No layer.
    #[default]
    Off,
    /// The first layers, of all layers of the model.
    First(u32),
    /// All layers.
    All,
}

impl CpuExperts {
    /// Returns the number of layers, of all layers of a model.
    #[cfg(feature = "gpu")]
    pub(super) fn layers(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::First(layers) => layers,
            Self::All => u32::MAX,
        }
    }
}

/// Passes the fields of [`LoadOptions`] to the macro `$each`, after the tokens `$start`. The setters of
/// [`ModelBuilder`](crate::ModelBuilder) are declared from the same list.
macro_rules! load_options {
    ($each:path, $($start:tt)*) => {
        $each! { $($start)* {
            /// The device that runs the model. Default: [`Auto`](crate::load::DeviceChoice::Auto).
            pub device: DeviceChoice,
            /// Number of CPU threads. 0 uses every core.
            pub threads: u32,
            /// Context length: positions of the KV cache per sequence. 0 uses the trained context
            /// length, at most [`CONTEXT_DEFAULT`](crate::load::CONTEXT_DEFAULT). Models with LongRoPE use
            /// their long factors if it is over their original context length.
            pub max_context: u32,
            /// Number of sequences that the KV cache holds at once; requests of further sessions are
            /// queued. Sequences are decoded in batches of at most 32. 0 means 1; at most
            /// [`SEQUENCES_MAX`](crate::load::SEQUENCES_MAX). For a speech model: number of recordings
            /// that are transcribed at once, at most 32.
            pub sequences: u32,
            /// Numerical precision of the computation. Default:
            /// [`Fast`](crate::device::Precision::Fast).
            pub precision: Precision,
            /// Memory layout of weights on a CPU. Default: [`Auto`](crate::load::WeightMemory::Auto).
            pub weights: WeightMemory,
            /// Layers whose experts are computed on the CPU, while a GPU computes the rest of the model.
            /// Default: [`Off`](crate::load::CpuExperts::Off).
            pub cpu_experts: CpuExperts,
            /// GPU adapter: a part of its name, or its index in [`devices`](crate::load::devices).
            /// `None` uses the best one. If the adapter is not found, loading fails and does not fall
            /// back to the CPU.
            pub adapter: Option<String>,
            /// GPU features to use. Default: [`All`](crate::device::GpuFeatures::All).
            pub gpu_features: GpuFeatures,
            /// Method by which a GPU replays a table. Default: [`Auto`](crate::device::Replay::Auto).
            pub replay: Replay,
            /// Folder of shaders that override the embedded ones. `None` uses only the embedded ones.
            pub shader_path: Option<PathBuf>,
            /// Folder of tunings written by [`Tuning::write`](crate::tools::Tuning::write). A GPU uses
            /// the tuning of this model and adapter if there is one, which may change the order of
            /// sums.
            pub tuning_path: Option<PathBuf>,
            /// Folder of the GPU pipeline cache, if the driver supports one. `None` disables the cache.
            pub pipeline_cache_path: Option<PathBuf>,
            /// Maximum number of tokens of a prefill chunk. 0 uses the default of the device.
            pub chunk_tokens: u32,
            /// Instruction set of the CPU. `None` uses `TABLA_CPU` if set, otherwise the best
            /// available.
            pub level: Option<Level>,
            /// The sampler chain, in order. Samplers that are not listed are disabled. `None` uses
            /// [`SamplerKind::DEFAULT`].
            pub samplers: Option<Vec<SamplerKind>>,
            /// Whether a decoder also computes embeddings, default false. Encoders always do.
            pub embeddings: bool,
            /// Layout of tensors of type `I2_S`, which files do not record. Default:
            /// [`Blocks128`](crate::quant::i2_s::Layout::Blocks128).
            pub i2s_layout: i2_s::Layout,
            /// Storage type of [`LM_HEAD_TYPES`](crate::load::LM_HEAD_TYPES) to requantize the output
            /// projection (`lm_head`) to. `None` keeps its type. A tied token embedding keeps its own
            /// type.
            pub lm_head_type: Option<DType>,
            /// LoRA adapters that are merged into the weights, with the factors of their changes: folders of
            /// `peft` or GGUF files. The weights are encoded again in their own types, and all sessions
            /// use them; [`Model::hooks_with`](crate::Model::hooks_with) applies adapters per session.
            pub lora: Vec<(PathBuf, f32)>,
            /// Storage type of the KV cache, one of [`CACHE_TYPES`](crate::load::CACHE_TYPES). `None`
            /// uses f16, or f32 if [`precision`](Self::precision) is exact.
            pub cache_type: Option<DType>,
            /// Whether a model on a GPU supports speculative decoding. Default:
            /// [`Off`](crate::load::GpuSpeculation::Off).
            pub gpu_speculation: GpuSpeculation,
            /// The drafting head to load, which drafts tokens for
            /// [`SpeculateOptions::Head`](crate::SpeculateOptions::Head). Default:
            /// [`None`](crate::load::DraftingHead::None).
            pub drafting_head: DraftingHead,
            /// Bytes of the prefix cache: KV cache pages of finished sequences, reused by prompts with
            /// the same prefix. They are added to the pages of the sequences, in pages of 64 positions,
            /// and the oldest prefix is evicted first. `None` adds no pages and caches prefixes in
            /// pages that are free. 0 disables the prefix cache; continuing a session then recomputes
            /// it.
            pub prefix_bytes: Option<u64>,
            /// Handle that cancels loading from any thread, before its next stage. Keep a clone of it.
            pub cancel: Option<Cancel>,
        } }
    };
}
pub(crate) use load_options;

load_options! {
    tabla_core::options,
    /// Options of loading a model; [`Model::builder`](crate::Model::builder) has a setter for each.
    /// The default of every number is 0 and of every `Option` is `None`.
    #[derive(Clone, Debug, Default)]
    pub struct LoadOptions
}

impl LoadOptions {
    /// Returns the sampler chain.
    ///
    /// # Errors
    ///
    /// `Argument` if a sampler occurs twice.
    pub(super) fn sampler_chain(&self) -> Result<Vec<SamplerKind>> {
        let chain = self.samplers.as_deref().unwrap_or(SamplerKind::DEFAULT);
        SamplerKind::check(chain)?;
        Ok(chain.to_vec())
    }
}
