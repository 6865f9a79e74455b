//! Plain facts about a device: everything that tunes a dispatch is a field here.

use crate::dtype::DType;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::fmt;

/// Which kind of device replays the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor's cores and their SIMD units.
    Cpu,
    /// A GPU through wgpu.
    Gpu,
}

/// How exactly the device computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Activations may go to int8 in blocks before a quantized product, on a CPU to bf16 before one
    /// of BF16 weights, on a GPU with matrix units both to f16 before products of many tokens, and
    /// the KV cache is f16.
    #[default]
    Fast,
    /// Every product in f32 on decoded weights, KV cache in f32. Only ternary digits with one scale
    /// meet activations in int8 here too, for which they were trained.
    Exact,
}

/// What is asked of a GPU beside what kernels cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuFeatures {
    /// All that it has.
    #[default]
    All,
    /// No more than every device of WebGPU has: its default limits, and no optional feature.
    Baseline,
}

/// How a kernel is made beside the plain way, which runs everywhere: folders of `shaders/lib`. The
/// better ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelVariant {
    /// Lanes of a subgroup sum without workgroup memory.
    Subgroup,
    /// Attention of many tokens by tiles of them, for heads of 512 elements at most in whole octets.
    Tile,
    /// Activations go to int8 in blocks before a quantized product; sums as above.
    Int8,
    /// Products of many tokens by cooperative matrices of 8 by 8, in f16 with sums in f32.
    Matrix8,
    /// The same, of 16 by 16.
    Matrix16,
}

impl KernelVariant {
    /// Every form.
    pub const ALL: &'static [Self] = &[
        Self::Subgroup,
        Self::Tile,
        Self::Int8,
        Self::Matrix8,
        Self::Matrix16,
    ];

    /// Whether every product is of f32 on decoded weights.
    pub fn exact(self) -> bool {
        matches!(self, Self::Subgroup | Self::Tile)
    }

    /// Its name in the names of kernels, which is its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subgroup => "subgroup",
            Self::Tile => "tile",
            Self::Int8 => "subgroup+int8",
            Self::Matrix8 => "subgroup+matrix+of8",
            Self::Matrix16 => "subgroup+matrix+of16",
        }
    }
}

/// What a command works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemSize {
    /// Rows and columns of its weight; one row of its activations, where it has none.
    pub shape: [u32; 2],
    /// Whether it takes many tokens at once, and not one.
    pub many: bool,
}

/// The kernel that was measured to be the best for commands of one operation, storage type and
/// extent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedKernel {
    /// Its name in listings, which has operation, storage type and form.
    pub kernel: String,
    /// What the commands work on.
    pub extent: ProblemSize,
}

/// How a GPU replays a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// Recorded where the back end can, else encoded.
    #[default]
    Auto,
    /// Encoded anew for every submission, through wgpu.
    Encoded,
    /// Recorded once as command buffers of Vulkan, which are submitted again and again.
    Recorded,
}

/// Which small commands of one token the products that read them do themselves: each workgroup does
/// the work again, and none waits for a command of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fusion {
    /// None.
    Apart,
    /// Norms.
    Norms,
    /// Gated activations.
    Gates,
    /// Both.
    Fused,
}

impl Fusion {
    /// Every one, the least first.
    pub const ALL: [Self; 4] = [Self::Apart, Self::Norms, Self::Gates, Self::Fused];

    /// Its name in listings and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apart => "apart",
            Self::Norms => "norms",
            Self::Gates => "gates",
            Self::Fused => "fused",
        }
    }

    /// Whether norms are fused.
    pub fn norms(self) -> bool {
        matches!(self, Self::Norms | Self::Fused)
    }

    /// Whether gated activations are.
    pub fn gates(self) -> bool {
        matches!(self, Self::Gates | Self::Fused)
    }
}

/// What planning and linking may know of a device.
#[derive(Clone, Debug)]
pub struct Profile {
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// The maker's name for it.
    pub name: String,
    /// `amx`, `avx512`, `avx2`, `dotprod`, `neon` or `scalar` on a CPU; `vulkan`, `metal` or `dx12` on a GPU.
    pub backend: String,
    /// Name and version of a GPU's driver; empty on a CPU.
    pub driver: String,
    /// Threads that replay the table; 0 on a GPU.
    pub threads: u32,
    /// Last-level data cache of a core in bytes; 0 where unknown.
    pub cache_bytes: u64,
    /// Workgroups in one dimension at most.
    pub grid_max: u32,
    /// Bytes that one binding may span at most.
    pub binding_bytes_max: u64,
    /// Bytes that a weight of this type, of so many rows and columns, takes on the device.
    pub weight_bytes: fn(DType, u32, u32) -> u64,
    /// Storage buffers that one kernel may bind at most.
    pub bindings_max: u32,
    /// The forms of kernels that it can run; none on a CPU.
    pub forms: Vec<KernelVariant>,
    /// Which kernels commands take instead of those of the best form.
    pub choices: Vec<TunedKernel>,
    /// Which small commands of one token products do themselves.
    pub fusion: Fusion,
    /// Positions that attention of few tokens takes at a time; 0: all.
    pub attention_part: u32,
    /// Tokens of a prefill chunk.
    pub chunk_tokens: u32,
    /// Tokens of the longest chain in one submission.
    pub chain_tokens: u32,
    /// Whether the device is still at work when a run returns: a chain is submitted then before the
    /// one in front of it was read.
    pub runs_ahead: bool,
}

impl Profile {
    /// A device without forms or bounds, for tests of planning.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self {
            kind: DeviceKind::Cpu,
            name: "test".into(),
            backend: "scalar".into(),
            driver: String::new(),
            threads: 1,
            cache_bytes: 0,
            grid_max: 65535,
            binding_bytes_max: 1 << 20,
            weight_bytes: |dtype, rows, cols| {
                let elements = u64::from(rows) * u64::from(cols);
                dtype.bytes(elements).unwrap_or_default()
            },
            bindings_max: 8,
            forms: Vec::new(),
            choices: Vec::new(),
            chunk_tokens: 8,
            fusion: Fusion::Apart,
            attention_part: 0,
            chain_tokens: 8,
            runs_ahead: false,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Cpu => write!(
                f,
                "{} ({}, {} threads)",
                self.name, self.backend, self.threads
            ),
            DeviceKind::Gpu => write!(f, "{} ({})", self.name, self.backend),
        }
    }
}

/// What there is to know of a GPU before it is opened.
#[derive(Clone, Debug)]
pub struct AdapterFacts {
    /// The maker's name.
    pub name: String,
    /// `discrete`, `integrated`, `virtual`, `other` or `software`.
    pub kind: &'static str,
    /// `vulkan`, `metal` or `dx12`.
    pub backend: String,
    /// Name and version of the driver.
    pub driver: String,
    /// PCI vendor.
    pub vendor: u32,
    /// Bytes of the largest buffer.
    pub buffer_bytes_max: u64,
    /// Bytes that one binding may span at most.
    pub binding_bytes_max: u64,
    /// Bytes of workgroup memory.
    pub workgroup_bytes_max: u32,
    /// Lanes that run in step, least and most.
    pub subgroup_sizes: [u32; 2],
    /// Optional features that it has, of those that are used: `subgroups` and `cooperative_matrix` by
    /// kernels, `timestamps` to time commands.
    pub features: Vec<&'static str>,
    /// Those that it has not: plain kernels stand in, commands are not timed.
    pub without: Vec<&'static str>,
    /// What the shaders need and it has not; empty for an adapter that can be opened.
    pub lacks: Vec<String>,
}

/// What a table could be linked to on this machine.
#[derive(Clone, Debug)]
pub struct Devices {
    /// The CPU.
    pub cpu: Profile,
    /// The adapters that wgpu finds, software ones too.
    pub gpus: Vec<AdapterFacts>,
}

impl Devices {
    /// A JSON object: `cpu`, and `gpus` in the order of their numbers.
    pub fn json(&self) -> Json {
        let cpu = json!({
            "name": self.cpu.name,
            "backend": self.cpu.backend,
            "threads": self.cpu.threads,
            "cache_bytes": self.cpu.cache_bytes,
        });
        let gpus = self.gpus.iter().map(|gpu| {
            json!({
                "name": gpu.name,
                "kind": gpu.kind,
                "backend": gpu.backend,
                "driver": gpu.driver,
                "vendor": gpu.vendor,
                "buffer_bytes_max": gpu.buffer_bytes_max,
                "binding_bytes_max": gpu.binding_bytes_max,
                "workgroup_bytes_max": gpu.workgroup_bytes_max,
                "subgroup_sizes": gpu.subgroup_sizes,
                "features": gpu.features,
                "without": gpu.without,
                "lacks": gpu.lacks,
            })
        });
        json!({ "cpu": cpu, "gpus": gpus.collect::<Vec<_>>() })
    }
}
