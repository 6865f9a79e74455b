//! How a model is loaded, and the functions that do it.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{guard_value, prepare_process};
use super::handles;
use super::pointers::{Choice, choose, path_of, read_sized, text_of};
use super::sequence::TablaModel;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tabla::device::{GpuFeatures, Precision};
use tabla::dtype::DType;
use tabla::error::{Result, bail};
use tabla::op::sampler::SamplerKind;
use tabla::quant::i2_s::Layout;
use tabla::{
    CACHE_TYPES, DeviceChoice, HEAD_TYPES, LoadOptions, Progress, STAGES, Source, StepTables,
    WeightMemory,
};

/// Where a model runs: `TablaLoadOptions.device`.
pub const TABLA_DEVICE_AUTO: i32 = 0;
/// On the CPU.
pub const TABLA_DEVICE_CPU: i32 = 1;
/// On a GPU, be it a software one; an error where there is none.
pub const TABLA_DEVICE_GPU: i32 = 2;

/// Activations may go to int8 or bf16, the KV cache is f16: `TablaLoadOptions.precision`.
pub const TABLA_PRECISION_FAST: i32 = 0;
/// Every product in f32 on decoded weights, KV cache in f32.
pub const TABLA_PRECISION_EXACT: i32 = 1;

/// A CPU packs weights where they fit: `TablaLoadOptions.weights`.
pub const TABLA_WEIGHTS_AUTO: i32 = 0;
/// They stay in the file's pages, which every process shares; loading reads none of them.
pub const TABLA_WEIGHTS_MAPPED: i32 = 1;
/// They are rearranged in memory of their own while loading; tokens come faster.
pub const TABLA_WEIGHTS_PACKED: i32 = 2;

/// The head stays as the file has it: `TablaLoadOptions.head_type`.
pub const TABLA_HEAD_AS_STORED: i32 = 0;
/// The head is encoded anew while loading, so that a token reads fewer bytes.
pub const TABLA_HEAD_Q8_0: i32 = 1;
/// Fewer still.
pub const TABLA_HEAD_Q6_K: i32 = 2;

/// The KV cache is what the precision says: f16 or f32. `TablaLoadOptions.cache_type`.
pub const TABLA_CACHE_DEFAULT: i32 = 0;
/// It is f16.
pub const TABLA_CACHE_F16: i32 = 1;
/// It is f32.
pub const TABLA_CACHE_F32: i32 = 2;
/// It is `q8_0`, about half of f16.
pub const TABLA_CACHE_Q8_0: i32 = 3;

/// Nothing that was computed stays behind a session: `TablaLoadOptions.prefix_bytes`.
pub const TABLA_PREFIX_NONE: u64 = u64::MAX;

/// Called at the end of each of the 18 stages of loading, in the order of their numbers: number, name,
/// time that the stage took, and the fraction of the stages that have ended (0 to 1). Return 0
/// to go on; anything else stops the load, which is `TABLA_ERROR_CANCELLED` then.
pub type TablaProgressCallback = Option<
    unsafe extern "C" fn(
        stage: u32,
        name: *const c_char,
        milliseconds: f64,
        done: f32,
        user_data: *mut c_void,
    ) -> i32,
>;

/// How a model is loaded. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaLoadOptions {
    /// `sizeof(TablaLoadOptions)`.
    pub struct_size: u32,
    /// `TABLA_DEVICE_AUTO`, `_CPU` or `_GPU`.
    pub device: i32,
    /// `TABLA_PRECISION_FAST` or `_EXACT`.
    pub precision: i32,
    /// Threads on a CPU; 0 takes one for every physical core.
    pub threads: u32,
    /// Positions of the KV cache; 0 takes what the model was trained for, 4096 at most.
    pub max_context: u32,
    /// `TABLA_WEIGHTS_AUTO`, `_MAPPED` or `_PACKED`.
    pub weights: i32,
    /// A folder whose shaders stand in front of the embedded ones, or NULL.
    pub shader_path: *const c_char,
    /// Called at the end of every stage, or NULL.
    pub progress: TablaProgressCallback,
    /// Handed to `progress`.
    pub user_data: *mut c_void,
    /// `TABLA_HEAD_AS_STORED`, `_Q8_0` or `_Q6_K`.
    pub head_type: i32,
    /// Not 0: a model that generates text yields embeddings too. Encoders always do.
    pub embeddings: u32,
    /// Sequences that go on together, each of `max_context` positions; 0 is 1. There may be more
    /// sessions than these: they wait for each other.
    pub sequences: u32,
    /// `TABLA_CACHE_DEFAULT`, `_F16`, `_F32` or `_Q8_0`.
    pub cache_type: i32,
    /// Tokens of a prompt that go through the model at once; 0 takes what suits the device.
    pub chunk_tokens: u32,
    /// Not 0: a GPU's steps of one sequence go through the tables of several, by which guesses can
    /// be checked: `TablaGenerateOptions.speculate`. A CPU can always.
    pub wide_steps: u32,
    /// Bytes for what was computed for sequences that have gone, and serves whoever comes with the same
    /// beginning; 0 takes what the sequences leave, `TABLA_PREFIX_NONE` nothing.
    pub prefix_bytes: u64,
    /// The GPU, by a part of its name or its number; NULL takes the best one.
    pub adapter: *const c_char,
    /// A folder of tunings for GPUs, or NULL.
    pub tuning_path: *const c_char,
    /// A folder that keeps compiled kernels of GPUs for the next load, or NULL.
    pub kernel_path: *const c_char,
    /// Names of samplers in their order, `;` between them, as of docs/sampling.md: what is not among them
    /// stays off. NULL takes the usual ones.
    pub samplers: *const c_char,
    /// How tensors of type `I2_S` are laid out, which no file says: `128`, `64` or `1x4`; NULL takes what
    /// is usual.
    pub i2s_layout: *const c_char,
    /// Not 0: a GPU is asked for no more than every device of WebGPU has.
    pub gpu_baseline: u32,
    /// Keep 0.
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

const HEADS: [Choice<Option<DType>>; 3] = [
    (TABLA_HEAD_AS_STORED, "as stored", None),
    (TABLA_HEAD_Q8_0, "q8_0", Some(HEAD_TYPES[0])),
    (TABLA_HEAD_Q6_K, "q6_k", Some(HEAD_TYPES[1])),
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
        head_type: TABLA_HEAD_AS_STORED,
        embeddings: 0,
        sequences: 0,
        cache_type: TABLA_CACHE_DEFAULT,
        chunk_tokens: 0,
        wide_steps: 0,
        prefix_bytes: 0,
        adapter: std::ptr::null(),
        tuning_path: std::ptr::null(),
        kernel_path: std::ptr::null(),
        samplers: std::ptr::null(),
        i2s_layout: std::ptr::null(),
        gpu_baseline: 0,
        reserved: 0,
    };

    /// # Safety
    ///
    /// Its pointers are NULL or C strings.
    unsafe fn options(&self) -> Result<LoadOptions> {
        if self.reserved != 0 {
            bail!(Argument, "reserved is {}, not 0", self.reserved);
        }
        // SAFETY: the caller's promise.
        let adapter = unsafe { text_of(self.adapter, "adapter") }?;
        // SAFETY: the caller's promise.
        let samplers = unsafe { text_of(self.samplers, "samplers") }?;
        // SAFETY: the caller's promise.
        let layout = unsafe { text_of(self.i2s_layout, "i2s_layout") }?;
        Ok(LoadOptions {
            device: choose("device", self.device, &DEVICES)?,
            threads: self.threads,
            context: self.max_context,
            sequences: self.sequences,
            precision: choose("precision", self.precision, &PRECISIONS)?,
            weights: choose("weights", self.weights, &WEIGHTS)?,
            adapter: Some(adapter.to_string()).filter(|name| !name.is_empty()),
            gpu_features: match self.gpu_baseline {
                0 => GpuFeatures::default(),
                _ => GpuFeatures::Baseline,
            },
            samplers: match self.samplers.is_null() {
                true => None,
                false => Some(SamplerKind::chain(samplers)?),
            },
            i2s_layout: layout_of(layout)?,
            // SAFETY: the caller's promise.
            shader_folder: unsafe { path_of(self.shader_path) },
            // SAFETY: the caller's promise.
            tuning_folder: unsafe { path_of(self.tuning_path) },
            // SAFETY: the caller's promise.
            kernel_folder: unsafe { path_of(self.kernel_path) },
            chunk_tokens: self.chunk_tokens,
            embeddings: self.embeddings != 0,
            head_type: choose("head_type", self.head_type, &HEADS)?,
            cache_type: choose("cache_type", self.cache_type, &CACHES)?,
            steps: match self.wide_steps {
                0 => StepTables::SingleRow,
                _ => StepTables::MultiRow,
            },
            prefix_bytes: match self.prefix_bytes {
                0 => None,
                TABLA_PREFIX_NONE => Some(0),
                bytes => Some(bytes),
            },
            ..LoadOptions::default()
        })
    }
}

/// Loads a model, or returns NULL and leaves the reason in `tabla_last_error`.
///
/// `path` NULL takes the small built-in story model. `shader_path` NULL takes the embedded
/// shaders. `max_context` 0 or less takes what the model was trained for, 4096 at most.
///
/// # Safety
///
/// `path` and `shader_path` are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_load_model(
    path: *const c_char,
    shader_path: *const c_char,
    max_context: i32,
) -> *mut TablaModel {
    let max_context = u32::try_from(max_context).unwrap_or(0);
    let options = TablaLoadOptions {
        shader_path,
        max_context,
        ..TablaLoadOptions::DEFAULT
    };
    // SAFETY: the strings are the caller's, the options ours.
    unsafe { tabla_load_model_with(path, &raw const options) }
}

/// Loads a model with options, or returns NULL and leaves the reason in `tabla_last_error`.
/// NULL options are the defaults.
///
/// # Safety
///
/// `path` is NULL or a C string; `options` is NULL or points to a struct that begins with its size, and
/// whose pointers are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_load_model_with(
    path: *const c_char,
    options: *const TablaLoadOptions,
) -> *mut TablaModel {
    guard_value(|| {
        prepare_process();
        // SAFETY: the caller's promise.
        let given = unsafe { read_sized(options, TablaLoadOptions::DEFAULT) }?;
        // SAFETY: the caller's promise.
        let source = unsafe { path_of(path) }.map_or(Source::BuiltIn, Source::Path);
        // SAFETY: the caller's promise.
        let mut options = unsafe { given.options() }?;
        let stop = Arc::new(AtomicBool::new(false));
        options.stop = Some(Arc::clone(&stop));
        let model = tabla::load(&source, &options, &mut |progress| {
            if !report(&given, progress) {
                stop.store(true, Ordering::Relaxed);
            }
        })?;
        if stop.load(Ordering::Relaxed) {
            bail!(Cancelled, "the load was stopped at its end");
        }
        handles::insert(TablaModel::new(model))
    })
    .unwrap_or(std::ptr::null_mut())
}

fn layout_of(name: &str) -> Result<Layout> {
    match Layout::from_name(name) {
        Some(layout) => Ok(layout),
        None if name.is_empty() => Ok(Layout::default()),
        None => bail!(Argument, "i2s_layout {name:?} is none of 128, 64, 1x4"),
    }
}

/// Hands a stage to the caller's progress function; whether the load is to go on.
fn report(options: &TablaLoadOptions, progress: &Progress) -> bool {
    let Some(callback) = options.progress else {
        return true;
    };
    let name = CString::new(progress.stage.name()).unwrap_or_default();
    let milliseconds = progress.took.as_secs_f64() * 1e3;
    let done = progress.ended as f32 / STAGES as f32;
    // SAFETY: the caller's function, with a name that lives through the call.
    let answer = unsafe {
        callback(
            progress.stage as u32,
            name.as_ptr(),
            milliseconds,
            done,
            options.user_data,
        )
    };
    answer == 0
}
