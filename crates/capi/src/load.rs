//! Load options, and the functions that load a model.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard, guard_value, prepare_process};
use super::handles;
use super::pointers::{Choice, choose, path_of, read_sized, text_of};
use super::sequence::TablaModel;
use std::ffi::{CString, c_char, c_void};
use tabla::device::{GpuFeatures, Precision};
use tabla::dtype::DType;
use tabla::error::bail;
use tabla::load::{
    CACHE_TYPES, CpuExperts, DeviceChoice, DraftingHead, GpuSpeculation, LM_HEAD_TYPES,
    LoadOptions, Progress, STAGES, WeightMemory,
};
use tabla::op::sampler::SamplerKind;
use tabla::quant::i2_s::Layout;
use tabla::{Cancel, Model, Result, Source};

/// Uses a hardware GPU if there is one, otherwise the CPU: `TablaLoadOptions.device`.
pub const TABLA_DEVICE_AUTO: i32 = 0;
/// Uses the CPU.
pub const TABLA_DEVICE_CPU: i32 = 1;
/// Uses a GPU, including a software one. Loading fails if there is none.
pub const TABLA_DEVICE_GPU: i32 = 2;

/// Allows int8 or bf16 activations; the KV cache is f16: `TablaLoadOptions.precision`.
pub const TABLA_PRECISION_FAST: i32 = 0;
/// Computes every matrix product in f32 on dequantized weights; the KV cache is f32.
pub const TABLA_PRECISION_EXACT: i32 = 1;

/// Repacks weights on a CPU if they fit in memory: `TablaLoadOptions.weights`.
pub const TABLA_WEIGHTS_AUTO: i32 = 0;
/// Memory-maps the file: processes share its pages, and loading reads no weights.
pub const TABLA_WEIGHTS_MAPPED: i32 = 1;
/// Copies weights to memory in a layout for faster decoding.
pub const TABLA_WEIGHTS_PACKED: i32 = 2;

/// Keeps the type of the output projection (lm_head) in the file: `TablaLoadOptions.lm_head_type`.
pub const TABLA_LM_HEAD_AS_STORED: i32 = 0;
/// Quantizes the output projection to `q8_0` during loading, so that each token reads fewer bytes.
pub const TABLA_LM_HEAD_Q8_0: i32 = 1;
/// Quantizes the output projection to `q6_k`, which is smaller than `q8_0`.
pub const TABLA_LM_HEAD_Q6_K: i32 = 2;

/// KV cache type by precision: f16 for fast, f32 for exact. `TablaLoadOptions.cache_type`.
pub const TABLA_CACHE_DEFAULT: i32 = 0;
/// KV cache type f16.
pub const TABLA_CACHE_F16: i32 = 1;
/// KV cache type f32.
pub const TABLA_CACHE_F32: i32 = 2;
/// KV cache type `q8_0`, about half the size of f16.
pub const TABLA_CACHE_Q8_0: i32 = 3;

/// Disables the prefix cache: `TablaLoadOptions.prefix_bytes`.
pub const TABLA_PREFIX_NONE: u64 = u64::MAX;

/// Experts of all layers: `TablaLoadOptions.cpu_expert_layers`.
pub const TABLA_CPU_EXPERTS_ALL: u32 = u32::MAX;

/// Called at the end of each of the 18 stages of loading, in order. Receives the number and name of
/// the stage, its duration, and the fraction of completed stages (0 to 1). Return 0 to continue;
/// any other value cancels the load with `TABLA_ERROR_CANCELLED`.
pub type TablaProgressCallback = Option<
    unsafe extern "C" fn(
        stage: u32,
        name: *const c_char,
        milliseconds: f64,
        done: f32,
        user_data: *mut c_void,
    ) -> i32,
>;

/// Options of loading a model. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaLoadOptions {
    /// `sizeof(TablaLoadOptions)`.
    pub struct_size: u32,
    /// `TABLA_DEVICE_AUTO`, `_CPU` or `_GPU`.
    pub device: i32,
    /// `TABLA_PRECISION_FAST` or `_EXACT`.
    pub precision: i32,
    /// Number of CPU threads; 0: one for each physical core.
    pub threads: u32,
    /// Context length of the KV cache in tokens; 0: the length that the model was trained with, at
    /// most 4096.
    pub max_context: u32,
    /// `TABLA_WEIGHTS_AUTO`, `_MAPPED` or `_PACKED`.
    pub weights: i32,
    /// Directory of shaders that override the embedded ones, or NULL.
    pub shader_path: *const c_char,
    /// Called at the end of every stage, or NULL.
    pub progress: TablaProgressCallback,
    /// Passed to `progress`.
    pub user_data: *mut c_void,
    /// `TABLA_LM_HEAD_AS_STORED`, `_Q8_0` or `_Q6_K`.
    pub lm_head_type: i32,
    /// Not 0: a model that generates text also supports embeddings. Encoder models always do.
    pub embeddings: u32,
    /// Maximum number of sequences that are computed at the same time, each of `max_context`
    /// tokens; 0: 1. There may be more sessions than this: they take turns. For a speech model:
    /// number of recordings that are transcribed at the same time, at most 32.
    pub sequences: u32,
    /// `TABLA_CACHE_DEFAULT`, `_F16`, `_F32` or `_Q8_0`.
    pub cache_type: i32,
    /// Number of prompt tokens in one batch (chunked prefill); 0: chosen for the device.
    pub chunk_tokens: u32,
    /// Not 0: enables speculative decoding on a GPU: `TablaGenerateOptions.speculate`. A CPU always
    /// supports it.
    pub gpu_speculation: u32,
    /// Additional KV cache memory for the prefix cache, in bytes. The prefix cache keeps keys and
    /// values of freed sequences for prompts with the same prefix. 0: no additional memory, only
    /// cache pages that active sequences do not use. `TABLA_PREFIX_NONE`: no prefix cache.
    pub prefix_bytes: u64,
    /// The GPU: its number or a part of its name. NULL: the best one.
    pub adapter: *const c_char,
    /// Directory of tuning files for GPUs, or NULL.
    pub tuning_path: *const c_char,
    /// Directory of the GPU pipeline cache, which keeps compiled kernels for the next load, or
    /// NULL.
    pub pipeline_cache_path: *const c_char,
    /// Names of samplers in the order of their use, separated by `;`; docs/sampling.md lists them.
    /// Samplers that are not listed are off. NULL: the default order.
    pub samplers: *const c_char,
    /// Layout of `I2_S` tensors, which files do not store: `128`, `64` or `1x4`. NULL: the usual
    /// layout.
    pub i2s_layout: *const c_char,
    /// Not 0: uses only GPU features that every WebGPU device supports.
    pub gpu_baseline: u32,
    /// Not 0: loads the head of the model for multi-token prediction (MTP), which drafts tokens:
    /// `TABLA_SPECULATE_HEAD`.
    pub mtp: u32,
    /// EAGLE-3 drafter for the model, which drafts tokens (`TABLA_SPECULATE_HEAD`): a GGUF file or a
    /// directory of Hugging Face. NULL: none.
    pub drafter_path: *const c_char,
    /// Number of layers, from the first one on, whose experts are computed on the CPU while a GPU
    /// computes the rest of the model; their weights stay in host memory. 0: none.
    /// `TABLA_CPU_EXPERTS_ALL`: all. Without effect on a CPU and in a model without experts.
    pub cpu_expert_layers: u32,
    /// Must be 0.
    pub reserved: u32,
}

const DEVICES: [Choice<DeviceChoice>; 3] = [
    (TABLA_DEVICE_AUTO, "auto", DeviceChoice::Auto),
    (TABLA_DEVICE_CPU, "CPU", DeviceChoice::Cpu),
    (TABLA_DEVICE_GPU, "GPU", DeviceChoice::Gpu),
];

const PRECISIONS: [Choice<Precision>; 2] = [
    (TABLA_PRECISION_FAST, "fast", Precision::Fast),
    (TABLA_PRECISION_EXACT, "exact", Precision::Exact),
];

const WEIGHTS: [Choice<WeightMemory>; 3] = [
    (TABLA_WEIGHTS_AUTO, "auto", WeightMemory::Auto),
    (TABLA_WEIGHTS_MAPPED, "mapped", WeightMemory::Mapped),
    (TABLA_WEIGHTS_PACKED, "packed", WeightMemory::Packed),
];

const LM_HEADS: [Choice<Option<DType>>; 3] = [
    (TABLA_LM_HEAD_AS_STORED, "as stored", None),
    (TABLA_LM_HEAD_Q8_0, "q8_0", Some(LM_HEAD_TYPES[0])),
    (TABLA_LM_HEAD_Q6_K, "q6_k", Some(LM_HEAD_TYPES[1])),
];

const CACHES: [Choice<Option<DType>>; 4] = [
    (TABLA_CACHE_DEFAULT, "default", None),
    (TABLA_CACHE_F16, "f16", Some(CACHE_TYPES[0])),
    (TABLA_CACHE_F32, "f32", Some(CACHE_TYPES[1])),
    (TABLA_CACHE_Q8_0, "q8_0", Some(CACHE_TYPES[2])),
];

impl TablaLoadOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const SIZE: u32 = size_of::<Self>() as u32;

    const DEFAULT: Self = Self {
        struct_size: Self::SIZE,
        device: TABLA_DEVICE_AUTO,
        precision: TABLA_PRECISION_FAST,
        threads: 0,
        max_context: 0,
        weights: TABLA_WEIGHTS_AUTO,
        shader_path: std::ptr::null(),
        progress: None,
        user_data: std::ptr::null_mut(),
        lm_head_type: TABLA_LM_HEAD_AS_STORED,
        embeddings: 0,
        sequences: 0,
        cache_type: TABLA_CACHE_DEFAULT,
        chunk_tokens: 0,
        gpu_speculation: 0,
        prefix_bytes: 0,
        adapter: std::ptr::null(),
        tuning_path: std::ptr::null(),
        pipeline_cache_path: std::ptr::null(),
        samplers: std::ptr::null(),
        i2s_layout: std::ptr::null(),
        gpu_baseline: 0,
        mtp: 0,
        drafter_path: std::ptr::null(),
        cpu_expert_layers: 0,
        reserved: 0,
    };

    /// Converts the options.
    ///
    /// # Safety
    ///
    /// Its pointers are NULL or C strings.
    unsafe fn options(&self) -> Result<LoadOptions> {
        if self.reserved != 0 {
            bail!(Argument, "expected reserved to be 0, got {}", self.reserved);
        }
        // SAFETY: guaranteed by the caller.
        let adapter = unsafe { text_of(self.adapter, "adapter") }?;
        // SAFETY: guaranteed by the caller.
        let samplers = unsafe { text_of(self.samplers, "samplers") }?;
        // SAFETY: guaranteed by the caller.
        let layout = unsafe { text_of(self.i2s_layout, "i2s_layout") }?;
        let paths = [
            self.shader_path,
            self.tuning_path,
            self.pipeline_cache_path,
            self.drafter_path,
        ];
        // SAFETY: guaranteed by the caller.
        let [shaders, tunings, kernels, drafter] = paths.map(|path| unsafe { path_of(path) });
        let head = match (self.mtp, drafter) {
            (0, None) => DraftingHead::None,
            (0, Some(path)) => DraftingHead::Eagle3(path),
            (_, None) => DraftingHead::Mtp,
            (_, Some(_)) => bail!(Argument, "only one of mtp and drafter_path can be set"),
        };
        Ok(LoadOptions::default()
            .device(choose("device", self.device, &DEVICES)?)
            .threads(self.threads)
            .max_context(self.max_context)
            .sequences(self.sequences)
            .precision(choose("precision", self.precision, &PRECISIONS)?)
            .weights(choose("weights", self.weights, &WEIGHTS)?)
            .adapter(Some(adapter.to_string()).filter(|name| !name.is_empty()))
            .gpu_features(match self.gpu_baseline {
                0 => GpuFeatures::default(),
                _ => GpuFeatures::Baseline,
            })
            .samplers(match self.samplers.is_null() {
                true => None,
                false => Some(SamplerKind::chain(samplers)?),
            })
            .i2s_layout(layout_of(layout)?)
            .shader_path(shaders)
            .tuning_path(tunings)
            .pipeline_cache_path(kernels)
            .chunk_tokens(self.chunk_tokens)
            .embeddings(self.embeddings != 0)
            .lm_head_type(choose("lm_head_type", self.lm_head_type, &LM_HEADS)?)
            .cache_type(choose("cache_type", self.cache_type, &CACHES)?)
            .cpu_experts(match self.cpu_expert_layers {
                0 => CpuExperts::Off,
                TABLA_CPU_EXPERTS_ALL => CpuExperts::All,
                layers => CpuExperts::First(layers),
            })
            .gpu_speculation(match self.gpu_speculation {
                0 => GpuSpeculation::Off,
                _ => GpuSpeculation::On,
            })
            .drafting_head(head)
            .prefix_bytes(match self.prefix_bytes {
                0 => None,
                TABLA_PREFIX_NONE => Some(0),
                bytes => Some(bytes),
            }))
    }
}

/// Loads a model with the default options: the short form of `tabla_model_load`. Returns NULL on
/// failure; `tabla_last_error` has the reason. `path` NULL: the small built-in story model.
/// `max_context`: context length in tokens; 0: the length that the model was trained with, at most
/// 4096.
///
/// # Safety
///
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_load_model(
    path: *const c_char,
    max_context: u32,
) -> *mut TablaModel {
    let options = TablaLoadOptions {
        max_context,
        ..TablaLoadOptions::DEFAULT
    };
    // SAFETY: guaranteed by the caller; the options are valid.
    unsafe { tabla_model_load(path, &raw const options) }
}

/// Loads a model with options. Returns NULL on failure; `tabla_last_error` has the reason. `path`
/// NULL: the small built-in story model. NULL options are the defaults.
///
/// # Safety
///
/// `path` is NULL or a C string; `options` is NULL or points to a struct with `struct_size` set,
/// whose pointers are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_load(
    path: *const c_char,
    options: *const TablaLoadOptions,
) -> *mut TablaModel {
    guard_value(|| {
        prepare_process();
        // SAFETY: guaranteed by the caller.
        let c_options = unsafe { read_sized(options, TablaLoadOptions::DEFAULT) }?;
        // SAFETY: guaranteed by the caller.
        let source = unsafe { path_of(path) }.map_or(Source::BuiltIn, Source::Path);
        // SAFETY: guaranteed by the caller.
        let options = unsafe { c_options.options() }?;
        let cancel = Cancel::new();
        let model = Model::builder(source)
            .options(options)
            .cancel(cancel.clone())
            .on_progress(|progress| {
                if !report_progress(&c_options, progress) {
                    cancel.cancel();
                }
            })
            .load()?;
        if cancel.is_pending() {
            bail!(Cancelled, "the load was stopped by the progress callback");
        }
        TablaModel::insert(model)
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Frees a model and its default session, and returns at once. A running call is cancelled, and
/// stays valid until it returns. The memory is released when the last session or batch of the model
/// is freed. NULL is an error.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_free_model(model: *mut TablaModel) -> TablaStatus {
    guard(|| handles::remove(model))
}

fn layout_of(name: &str) -> Result<Layout> {
    match Layout::from_name(name) {
        Some(layout) => Ok(layout),
        None if name.is_empty() => Ok(Layout::default()),
        None => bail!(
            Argument,
            "invalid i2s_layout {name:?}: expected one of 128, 64, 1x4"
        ),
    }
}

/// Calls the progress callback. Returns whether loading continues.
fn report_progress(options: &TablaLoadOptions, progress: &Progress) -> bool {
    let Some(callback) = options.progress else {
        return true;
    };
    let name = CString::new(progress.stage.name()).unwrap_or_default();
    let milliseconds = progress.took.as_secs_f64() * 1e3;
    let done = progress.ended as f32 / STAGES as f32;
    // SAFETY: the caller's function; the name is valid during the call.
    let result = unsafe {
        callback(
            progress.stage as u32,
            name.as_ptr(),
            milliseconds,
            done,
            options.user_data,
        )
    };
    result == 0
}
