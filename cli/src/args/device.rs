//! LoadOptions of the device that runs a model, and of its KV cache.

use super::parsers::one_of;
use crate::output::{Failure, cache_folders};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use tabla::dtype::DType;
use tabla::quant::i2_s::Layout;
use tabla::{
    CACHE_TYPES, DeviceChoice, GpuFeatures, HEAD_TYPES, LoadOptions, Precision, Replay,
    WeightMemory,
};

/// Which device replays the tables, and how.
#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    /// Device; auto takes a GPU where there is one, else the CPU
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    device: Device,
    /// GPU, by a part of its name or its index in `tabla devices`
    #[arg(long, value_name = "NAME|INDEX")]
    adapter: Option<String>,
    /// What is asked of a GPU; baseline: no more than every device of WebGPU has
    #[arg(long, value_enum, default_value_t = Features::All)]
    gpu_features: Features,
    /// Threads on the CPU [default: every core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// exact computes every product in f32 and keeps the KV cache in f32
    #[arg(long, value_enum, default_value_t = Exactness::Fast)]
    precision: Exactness,
    /// Where the CPU has quantized weights, and with AMX and fast BF16 ones: packed in memory of
    /// their own, which is faster, or mapped from the file; auto packs where they fit
    #[arg(long, value_enum, default_value_t = Weights::Auto)]
    weights: Weights,
    /// How the GPU replays tables: recorded once, which is for Vulkan, or encoded for every
    /// submission; auto records where it can
    #[arg(long, value_enum, default_value_t = Replays::Auto)]
    replay: Replays,
    /// Leaves what `tabla tune` measured of the model on the GPU
    #[arg(long)]
    no_tuning: bool,
    /// Folder whose WGSL files stand in front of the embedded shaders
    #[arg(long, value_name = "FOLDER")]
    shaders: Option<PathBuf>,
    #[arg(
        help = "Layout of I2_S tensors; auto is 128, the others come from other builds of bitnet.cpp"
    )]
    #[arg(long, value_name = "auto|128|64|1x4", default_value = "auto", hide_default_value = true, value_parser = i2s_layout)]
    i2s_layout: Layout,
    /// Encodes the head (output.weight, or the embedding where that is the head) anew while loading:
    /// fewer bytes for every token
    #[arg(long, value_name = "q8_0|q6_k", value_parser = |name: &str| one_of(&HEAD_TYPES, name))]
    head_type: Option<DType>,
    /// Storage type of the KV cache [default: f16; with exact precision f32]
    #[arg(long, value_name = "f16|f32|q8_0", value_parser = |name: &str| one_of(&CACHE_TYPES, name))]
    cache_type: Option<DType>,
}

fn i2s_layout(name: &str) -> Result<Layout, String> {
    match name {
        "auto" => Ok(Layout::default()),
        name => Layout::from_name(name).ok_or_else(|| "known are auto, 128, 64, 1x4".to_string()),
    }
}

/// How many positions the KV cache has.
#[derive(Args, Debug)]
pub(crate) struct ContextArg {
    /// Positions of the KV cache [default: what the model was trained for, 4096 at most]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx_size: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Device {
    Auto,
    Cpu,
    Gpu,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Features {
    All,
    Baseline,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Exactness {
    Fast,
    Exact,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Weights {
    Auto,
    Mapped,
    Packed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Replays {
    Auto,
    Encoded,
    Recorded,
}

impl DeviceArgs {
    /// The library's options.
    pub(crate) fn options(&self, context: u32) -> Result<LoadOptions, Failure> {
        if let Some(folder) = self.shaders.as_deref().filter(|folder| !folder.is_dir()) {
            let shown = folder.display();
            return Err(Failure::new(format!("--shaders {shown} is no folder")));
        }
        Ok(LoadOptions {
            device: match self.device {
                Device::Auto => DeviceChoice::Auto,
                Device::Cpu => DeviceChoice::Cpu,
                Device::Gpu => DeviceChoice::Gpu,
            },
            threads: self.threads.unwrap_or(0),
            context,
            precision: match self.precision {
                Exactness::Fast => Precision::Fast,
                Exactness::Exact => Precision::Exact,
            },
            weights: match self.weights {
                Weights::Auto => WeightMemory::Auto,
                Weights::Mapped => WeightMemory::Mapped,
                Weights::Packed => WeightMemory::Packed,
            },
            adapter: self.adapter.clone(),
            gpu_features: match self.gpu_features {
                Features::All => GpuFeatures::All,
                Features::Baseline => GpuFeatures::Baseline,
            },
            replay: match self.replay {
                Replays::Auto => Replay::Auto,
                Replays::Encoded => Replay::Encoded,
                Replays::Recorded => Replay::Recorded,
            },
            kernel_folder: cache_folders::kernels(),
            // What was measured is of the embedded shaders.
            tuning_folder: if self.no_tuning || self.shaders.is_some() {
                None
            } else {
                cache_folders::tunings()
            },
            shader_folder: self.shaders.clone(),
            i2s_layout: self.i2s_layout,
            head_type: self.head_type,
            cache_type: self.cache_type,
            ..LoadOptions::default()
        })
    }
}

impl ContextArg {
    /// The library's number: 0 leaves it to the model.
    pub(crate) fn positions(&self) -> u32 {
        self.ctx_size.unwrap_or(0)
    }
}
