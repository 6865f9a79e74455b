//! Options of loading a model.

use super::option_fields::load_options;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::op::sampler::SamplerKind;
use std::path::PathBuf;

/// Default number of positions of the KV cache.
pub const CONTEXT_DEFAULT: u32 = 4096;

/// Value of [`LoadOptions::max_context`]: the context length that the model was trained with.
pub const CONTEXT_TRAINED: u32 = u32::MAX;

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
/// [`Precision::Fast`](crate::device::Precision::Fast), to BF16 weights.
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

/// How a CPU reads weights that it uses in place: those that are not packed ([`WeightMemory`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMode {
    /// [`Read`](Self::Read) from file systems of other machines or of programs (NFS, SMB, 9P, FUSE), whose pages may
    /// fail to be read at any time, if the weights fit into memory, otherwise [`Mmap`](Self::Mmap).
    #[default]
    Auto,
    /// Memory-mapped from the file, and shared with other processes. If another program truncates the file, the
    /// process is ended by `SIGBUS`, or passes fail after
    /// [`catch_file_faults`](crate::format::catch_file_faults).
    Mmap,
    /// Copied to memory while loading, in huge pages. Later changes of the file have no effect. On other systems
    /// than Linux the file is mapped, with a warning.
    Read,
}

/// Whether a model on a GPU supports speculative decoding
/// (`SpeculateOptions`). A CPU always supports it.
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

load_options! {
    tabla_core::options,
    /// Options of loading a model; `Model::builder` has a setter for each.
    #[derive(Clone, Debug)]
    pub struct LoadOptions
}

impl LoadOptions {
    /// Returns the sampler chain.
    ///
    /// # Errors
    ///
    /// `Argument` if a sampler occurs twice.
    pub(crate) fn sampler_chain(&self) -> Result<Vec<SamplerKind>> {
        let chain = self.samplers.as_deref().unwrap_or(SamplerKind::DEFAULT);
        SamplerKind::check(chain)?;
        Ok(chain.to_vec())
    }
}
