//! Options of the device that runs a model, and of its KV cache.

use super::parsers::{lora_adapter, one_of};
use crate::output::{Failure, cache_folders};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use tabla::device::{GpuFeatures, Precision, Replay};
use tabla::dtype::DType;
use tabla::load::{
    CACHE_TYPES, CpuExperts, DeviceChoice, LM_HEAD_TYPES, LoadOptions, WeightMemory,
};
use tabla::quant::i2_s::Layout;

/// The device, and how it runs a model.
#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    /// Device; auto uses a hardware GPU if there is one, otherwise the CPU
    #[arg(help_heading = "Device", long, value_enum, default_value_t = DeviceArg::Auto)]
    device: DeviceArg,
    /// GPU, by part of its name or by its index in `tabla devices`
    #[arg(help_heading = "Device", long, value_name = "NAME|INDEX")]
    adapter: Option<String>,
    /// GPU features to use: all that the GPU has, or only the baseline of WebGPU
    #[arg(help_heading = "Device", long, value_enum, default_value_t = FeaturesArg::All)]
    gpu_features: FeaturesArg,
    /// Number of CPU threads [default: number of cores]
    #[arg(help_heading = "Device", short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Arithmetic of matrix products. exact computes in f32 and stores the KV cache in f32. fast
    /// quantizes activations to int8, or rounds them to bf16 or f16
    #[arg(help_heading = "Device", long, value_enum, default_value_t = PrecisionArg::Fast)]
    precision: PrecisionArg,
    /// Weights on the CPU: packed into memory for faster kernels, or memory-mapped from the file. auto
    /// packs all that fit into memory, experts last. Applies to quantized weights, and to BF16 with AMX and --precision
    /// fast
    #[arg(help_heading = "Device", long, value_enum, default_value_t = WeightsArg::Auto)]
    weights: WeightsArg,
    #[command(flatten)]
    cpu_experts: CpuExpertsArgs,
    /// Command buffers on the GPU: recorded once (Vulkan only), or encoded for every submission; auto
    /// records if possible
    #[arg(help_heading = "Device", long, value_enum, default_value_t = ReplayArg::Auto)]
    replay: ReplayArg,
    /// Ignore the results of `tabla tune`
    #[arg(help_heading = "Device", long)]
    no_tuning: bool,
    /// Folder with WGSL files that replace embedded shaders
    #[arg(help_heading = "Device", long, value_name = "FOLDER")]
    shaders: Option<PathBuf>,
    /// Layout of I2_S tensors; auto is 128, other builds of bitnet.cpp write the others
    #[arg(help_heading = "Device", long, value_name = "auto|128|64|1x4", default_value = "auto", hide_default_value = true, value_parser = i2s_layout)]
    i2s_layout: Layout,
    /// Requantize the output projection (lm_head) while loading, to read fewer bytes per token
    #[arg(help_heading = "Device", long, value_name = "q8_0|q6_k", value_parser = |name: &str| one_of(&LM_HEAD_TYPES, name))]
    lm_head_type: Option<DType>,
    /// Merge a LoRA adapter, with the factor of its change, into the weights while loading: a folder of
    /// peft or a GGUF file. Can be repeated [default scale: 1]
    #[arg(help_heading = "Device", long, value_name = "ADAPTER[=SCALE]", value_parser = lora_adapter)]
    lora_merge: Vec<(PathBuf, f32)>,
    /// Type of the KV cache. q8_0 needs a head size that is a multiple of 64 [default: f16, or f32 with
    /// --precision exact]
    #[arg(help_heading = "Device", long, value_name = "f16|f32|q8_0", value_parser = |name: &str| one_of(&CACHE_TYPES, name))]
    cache_type: Option<DType>,
}

/// Experts on the CPU, with the names of llama.cpp.
#[derive(Args, Debug)]
struct CpuExpertsArgs {
    /// Compute the experts of all layers on the CPU while a GPU computes the rest of the model. Their weights
    /// stay in host memory
    #[arg(help_heading = "Device", long)]
    cpu_moe: bool,
    /// Compute the experts of the first N layers on the CPU while a GPU computes the rest of the model
    #[arg(
        help_heading = "Device",
        long,
        value_name = "N",
        conflicts_with = "cpu_moe"
    )]
    n_cpu_moe: Option<u32>,
}

impl CpuExpertsArgs {
    fn layers(&self) -> CpuExperts {
        match (self.cpu_moe, self.n_cpu_moe) {
            (true, _) => CpuExperts::All,
            (false, Some(layers)) => CpuExperts::First(layers),
            (false, None) => CpuExperts::Off,
        }
    }
}

fn i2s_layout(name: &str) -> Result<Layout, String> {
    match name {
        "auto" => Ok(Layout::default()),
        name => {
            Layout::from_name(name).ok_or_else(|| "expected one of auto, 128, 64, 1x4".to_string())
        }
    }
}

/// Size of the context.
#[derive(Args, Debug)]
pub(crate) struct ContextArg {
    /// Size of the context in tokens [default: the model's training context, at most 4096]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx_size: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DeviceArg {
    Auto,
    Cpu,
    Gpu,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FeaturesArg {
    All,
    Baseline,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PrecisionArg {
    Fast,
    Exact,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WeightsArg {
    Auto,
    Mapped,
    Packed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReplayArg {
    Auto,
    Encoded,
    Recorded,
}

impl DeviceArgs {
    /// Returns the load options for a context of this many tokens; 0: the default.
    pub(crate) fn options(&self, context: u32) -> Result<LoadOptions, Failure> {
        if let Some(folder) = self.shaders.as_deref().filter(|folder| !folder.is_dir()) {
            let shown = folder.display();
            return Err(Failure::new(format!("--shaders {shown}: not a folder")));
        }
        Ok(LoadOptions::default()
            .device(match self.device {
                DeviceArg::Auto => DeviceChoice::Auto,
                DeviceArg::Cpu => DeviceChoice::Cpu,
                DeviceArg::Gpu => DeviceChoice::Gpu,
            })
            .threads(self.threads.unwrap_or(0))
            .max_context(context)
            .precision(match self.precision {
                PrecisionArg::Fast => Precision::Fast,
                PrecisionArg::Exact => Precision::Exact,
            })
            .weights(match self.weights {
                WeightsArg::Auto => WeightMemory::Auto,
                WeightsArg::Mapped => WeightMemory::Mapped,
                WeightsArg::Packed => WeightMemory::Packed,
            })
            .cpu_experts(self.cpu_experts.layers())
            .adapter(self.adapter.clone())
            .gpu_features(match self.gpu_features {
                FeaturesArg::All => GpuFeatures::All,
                FeaturesArg::Baseline => GpuFeatures::Baseline,
            })
            .replay(match self.replay {
                ReplayArg::Auto => Replay::Auto,
                ReplayArg::Encoded => Replay::Encoded,
                ReplayArg::Recorded => Replay::Recorded,
            })
            .pipeline_cache_path(cache_folders::kernels())
            // Tunings apply to the embedded shaders only.
            .tuning_path(if self.no_tuning || self.shaders.is_some() {
                None
            } else {
                cache_folders::tunings()
            })
            .shader_path(self.shaders.clone())
            .i2s_layout(self.i2s_layout)
            .lm_head_type(self.lm_head_type)
            .lora(self.lora_merge.clone())
            .cache_type(self.cache_type))
    }
}

impl ContextArg {
    /// Returns the number of tokens; 0: the default.
    pub(crate) fn tokens(&self) -> u32 {
        self.ctx_size.unwrap_or(0)
    }
}
