//! Device profiles: properties and limits of a device that planning and dispatch depend on.

use crate::dtype::DType;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::fmt;

/// Kind of the device that replays a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// CPU with SIMD kernels.
    Cpu,
    /// A GPU through wgpu.
    Gpu,
}

/// Numerical precision of computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Activations may be rounded: to int8 blocks for quantized products, on a CPU to bf16 for BF16
    /// weights; GPUs with cooperative matrices round activations and weights to f16 for products of
    /// many tokens, and attention of them. The KV cache is f16.
    #[default]
    Fast,
    /// Products in f32 on dequantized weights, KV cache in f32. Ternary weights with a single scale
    /// still use int8 activations, as they were trained with.
    Exact,
}

/// Optional GPU features to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuFeatures {
    /// All supported features.
    #[default]
    All,
    /// WebGPU default limits and no optional feature.
    Baseline,
}

/// Variant of a kernel that needs a device feature, built from folders of `shaders/lib`; the
/// default kernel runs on every device. Ordered by preference, the preferred variants last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelVariant {
    /// Reductions use operations on subgroups of at least eight lanes instead of workgroup memory.
    Subgroup,
    /// Tiled attention for many tokens, also without a KV cache; the head dimension is a multiple of 8 and at most 512.
    Tile,
    /// Products of at most eight tokens that decode a weight once for all of them; subgroup reductions.
    Few,
    /// Quantized products with activations in int8 blocks; subgroup reductions.
    Int8,
    /// As `Few`, with activations in int8 blocks.
    FewInt8,
    /// Products and attention of many tokens on 8x8 cooperative matrices, f16 with f32 accumulation.
    Matrix8,
    /// As `Matrix8`, by larger tiles, for products with enough of them to use the whole device.
    LargeMatrix8,
    /// Products and attention of many tokens on 16x16 cooperative matrices, f16 with f32 accumulation.
    Matrix16,
    /// As `Matrix16`, by larger tiles.
    LargeMatrix16,
}

impl KernelVariant {
    /// All variants.
    pub const ALL: &'static [Self] = &[
        Self::Subgroup,
        Self::Tile,
        Self::Few,
        Self::Int8,
        Self::FewInt8,
        Self::Matrix8,
        Self::LargeMatrix8,
        Self::Matrix16,
        Self::LargeMatrix16,
    ];

    /// Returns whether all products are in f32 on dequantized weights.
    pub fn exact(self) -> bool {
        matches!(self, Self::Subgroup | Self::Tile | Self::Few)
    }

    /// Returns whether products are of cooperative matrices.
    pub fn uses_matrices(self) -> bool {
        matches!(
            self,
            Self::Matrix8 | Self::Matrix16 | Self::LargeMatrix8 | Self::LargeMatrix16
        )
    }

    /// Returns the number of lanes of a subgroup that the kernels are written for, and that subgroups have at least; with
    /// more, results are the same, but workgroups load their tiles several times.
    pub fn subgroup_lanes(self) -> Option<u32> {
        matches!(self, Self::Matrix16 | Self::LargeMatrix16).then_some(32)
    }

    /// Returns the suffix in kernel names: the folder names joined by `+`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Subgroup => "subgroup",
            Self::Tile => "tile",
            Self::Few => "subgroup+few",
            Self::Int8 => "subgroup+int8",
            Self::FewInt8 => "subgroup+few+int8",
            Self::Matrix8 => "subgroup+matrix+of8",
            Self::Matrix16 => "subgroup+matrix+of16",
            Self::LargeMatrix8 => "subgroup+matrix+large+of8",
            Self::LargeMatrix16 => "subgroup+matrix+large+of16",
        }
    }
}

/// Problem size of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemSize {
    /// Rows and columns of the weight; without a weight, 1 and the columns of the activations.
    pub shape: [u32; 2],
    /// Whether the command processes more than one token.
    pub multiple_tokens: bool,
}

/// Fastest measured kernel for commands of one operation, storage type and problem size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedKernel {
    /// Kernel name: operation, storage type and variant.
    pub kernel: String,
    /// Problem size of the commands.
    pub extent: ProblemSize,
}

/// Method by which a GPU replays a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// Recorded if the backend supports it, otherwise encoded.
    #[default]
    Auto,
    /// Encoded through wgpu for every submission.
    Encoded,
    /// Recorded once into Vulkan command buffers that are resubmitted.
    Recorded,
}

/// Device properties that planning and linking depend on.
#[derive(Clone, Debug)]
pub struct Profile {
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// Product name of the device.
    pub name: String,
    /// `amx`, `avx512`, `avxvnni`, `avx2`, `i8mm`, `dotprod`, `neon` or `scalar` on a CPU; `vulkan`,
    /// `metal` or `dx12` on a GPU.
    pub backend: String,
    /// Name and version of the GPU driver; empty on a CPU.
    pub driver: String,
    /// Number of threads that replay the table; 0 on a GPU.
    pub threads: u32,
    /// Number of compute units or multiprocessors of a GPU; 0 if unknown, and on a CPU.
    pub cores: u32,
    /// Last-level data cache per core in bytes; 0 if unknown.
    pub cache_bytes: u64,
    /// Maximum number of workgroups per grid dimension.
    pub grid_max: u32,
    /// Maximum size of a buffer binding in bytes.
    pub binding_bytes_max: u64,
    /// Returns the size in bytes on the device of a weight of this type, number of rows and number
    /// of columns.
    pub weight_bytes: fn(DType, u32, u32) -> u64,
    /// Maximum number of storage buffers per kernel.
    pub bindings_max: u32,
    /// Kernel variants that the device supports; empty on a CPU.
    pub variants: Vec<KernelVariant>,
    /// Tuned kernels, which override the preferred variant.
    pub tuned_kernels: Vec<TunedKernel>,
    /// Minimum number of positions per part of split attention for few tokens; 0 disables splitting.
    pub attention_part: u32,
    /// Number of tokens per prefill chunk.
    pub chunk_tokens: u32,
    /// Maximum number of tokens per burst (N-step submission).
    pub burst_tokens: u32,
    /// Whether `run` returns before the device has finished; the next burst is then submitted
    /// before the previous one is read.
    pub asynchronous: bool,
    /// Experts that run on the CPU, while the profile is that of a GPU.
    pub host_experts: Option<HostExperts>,
}

/// Layers whose routed experts run on the CPU, while a GPU runs everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostExperts {
    /// Number of layers from the first one on, including those without experts.
    pub layers: u32,
    /// Name and instruction set of the CPU.
    pub cpu: String,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Cpu => {
                let (name, backend, threads) = (&self.name, &self.backend, self.threads);
                let plural = if threads == 1 { "" } else { "s" };
                write!(f, "{name} ({backend}, {threads} thread{plural})")
            }
            DeviceKind::Gpu => write!(f, "{} ({})", self.name, self.backend),
        }?;
        match &self.host_experts {
            Some(HostExperts { layers: 1, cpu }) => {
                write!(f, ", experts of the first layer on {cpu}")
            }
            Some(HostExperts { layers, cpu }) => {
                write!(f, ", experts of the first {layers} layers on {cpu}")
            }
            None => Ok(()),
        }
    }
}

/// Properties of a GPU adapter before it is opened.
#[derive(Clone, Debug)]
pub struct AdapterFacts {
    /// Product name.
    pub name: String,
    /// `discrete`, `integrated`, `virtual`, `other` or `software`.
    pub kind: &'static str,
    /// `vulkan`, `metal` or `dx12`.
    pub backend: String,
    /// Name and version of the driver.
    pub driver: String,
    /// PCI vendor.
    pub vendor: u32,
    /// Maximum buffer size in bytes.
    pub buffer_bytes_max: u64,
    /// Maximum size of a buffer binding in bytes.
    pub binding_bytes_max: u64,
    /// Workgroup memory in bytes.
    pub workgroup_bytes_max: u32,
    /// Minimum and maximum subgroup size.
    pub subgroup_sizes: [u32; 2],
    /// Supported optional features: `subgroups` and `cooperative_matrix` for kernels, `timestamps`
    /// to time commands.
    pub features: Vec<&'static str>,
    /// Unsupported optional features; default kernels replace them, and commands are not timed.
    pub without: Vec<&'static str>,
    /// Required features and limits that the adapter lacks; empty if it can be opened.
    pub lacks: Vec<String>,
}

/// Devices of this machine.
#[derive(Clone, Debug)]
pub struct Devices {
    /// The CPU.
    pub cpu: Profile,
    /// GPU adapters that wgpu reports, including software adapters.
    pub gpus: Vec<AdapterFacts>,
}

impl Devices {
    /// Returns a JSON object: `cpu`, and `gpus` in the order of their indices.
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
