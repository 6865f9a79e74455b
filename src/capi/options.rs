//! Option structs: each begins with its own size, so that it can grow.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use crate::decode::{Finish, Generate, Overflow, Sampling};
use crate::device::Precision;
use crate::error::{Result, bail};
use crate::load::{DeviceChoice, HEAD_TYPES, Options, WeightMemory};
use std::ffi::{c_char, c_void};
use std::path::PathBuf;

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

/// Hears of each of the 18 stages of loading as it ends: its number, its name, how long it took,
/// and how much of the whole is done (0 to 1).
pub type TablaProgressCallback = Option<
    unsafe extern "C" fn(
        stage: u32,
        name: *const c_char,
        milliseconds: f64,
        done: f32,
        user_data: *mut c_void,
    ),
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
    /// Threads on a CPU; 0 takes every core.
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
}

/// How the next token is picked: penalty, top-k, top-p, min-p, temperature, then a draw.
/// `tabla_generate_options_init` fills in the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaGenerateOptions {
    /// `sizeof(TablaGenerateOptions)`.
    pub struct_size: u32,
    /// Tokens at most; 0 goes on until a stop token or a full context.
    pub max_tokens: u32,
    /// Logits are divided by it; 0 takes the likeliest token. Default 0.8.
    pub temperature: f32,
    /// Only the `top_k` likeliest tokens; 0: off. Default 40.
    pub top_k: u32,
    /// Only the likeliest tokens that hold `top_p` of the probability; 1: off. Default 0.95.
    pub top_p: f32,
    /// Only tokens at least `min_p` times as likely as the likeliest; 0: off. Default 0.05.
    pub min_p: f32,
    /// Weakens tokens among the last `repeat_last`; 1: off. Default 1.
    pub repeat_penalty: f32,
    /// How many tokens back the penalty reaches, 1024 at most. Default 64.
    pub repeat_last: u32,
    /// The same seed draws the same tokens. Default 0.
    pub seed: u64,
    /// Tokens of one submission to the device; 0 adapts. Default 0.
    pub chain: u32,
    /// Not 0: stop tokens are ordinary. Default 0.
    pub ignore_stops: u32,
    /// Not 0: a full context does not end the generation; the older half of the sequence is
    /// forgotten, and the rest computed anew. Default 0.
    pub context_shift: u32,
    /// Tokens at the front that a context shift keeps, half of the context at most. Default 0.
    pub keep: u32,
}

/// Why a generation ended: `TablaStats.finish`.
pub const TABLA_FINISH_STOP: i32 = 0;
/// `max_tokens` were picked.
pub const TABLA_FINISH_LENGTH: i32 = 1;
/// The context is full.
pub const TABLA_FINISH_CONTEXT: i32 = 2;
/// The callback said so.
pub const TABLA_FINISH_CALLBACK: i32 = 3;
/// Someone called `tabla_cancel`.
pub const TABLA_FINISH_CANCELLED: i32 = 4;

/// What a generation did.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TablaStats {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens that were picked.
    pub tokens: u32,
    /// Milliseconds of the prompt.
    pub prompt_ms: f64,
    /// Milliseconds of the tokens behind it.
    pub tokens_ms: f64,
    /// `TABLA_FINISH_STOP`, ...
    pub finish: i32,
}

pub(super) fn finish_code(finish: Finish) -> i32 {
    match finish {
        Finish::Stop => TABLA_FINISH_STOP,
        Finish::Length => TABLA_FINISH_LENGTH,
        Finish::Context => TABLA_FINISH_CONTEXT,
        Finish::Callback => TABLA_FINISH_CALLBACK,
        Finish::Cancelled => TABLA_FINISH_CANCELLED,
    }
}

/// Bytes of a struct with a size at most: what is over it was never set.
pub(super) const STRUCT_BYTES_MAX: usize = 4096;

/// Reads a struct that may be older (shorter: the rest keeps `defaults`) or newer (longer: the
/// rest must be 0) than this build's.
///
/// # Safety
///
/// `from` is NULL or points to a struct whose first field is its size in bytes.
pub(super) unsafe fn read_sized<T: Copy>(from: *const T, defaults: T) -> Result<T> {
    if from.is_null() {
        return Ok(defaults);
    }
    // SAFETY: the caller's struct begins with its size.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    if size < size_of::<u32>() || size > STRUCT_BYTES_MAX {
        bail!(
            Argument,
            "struct_size is {size}: set it to sizeof the struct"
        );
    }
    // SAFETY: the struct says that it has this many bytes.
    let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if given[known..].iter().any(|b| *b != 0) {
        bail!(
            Argument,
            "the options are newer than this library and use what it does not know"
        );
    }
    let mut out = defaults;
    // SAFETY: both spans hold `known` bytes and `out` is a plain C struct of ours.
    unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), (&raw mut out).cast(), known) };
    Ok(out)
}

/// Writes a struct into a caller's, which may be older (shorter) or newer (longer: the rest
/// becomes 0).
///
/// # Safety
///
/// `to` points to `size` bytes.
pub(super) unsafe fn write_sized<T: Copy>(from: &T, to: *mut T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe { to.cast::<u8>().write_bytes(0, size) };
    // SAFETY: both spans hold `known` bytes, and no `T` of ours overlaps the caller's.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *from).cast(), to.cast::<u8>(), known) };
}

impl TablaLoadOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const SIZE: u32 = size_of::<Self>() as u32;

    pub(super) const DEFAULT: Self = Self {
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
    };

    pub(super) fn options(&self, shader_folder: Option<PathBuf>) -> Result<Options> {
        let device = match self.device {
            TABLA_DEVICE_AUTO => DeviceChoice::Auto,
            TABLA_DEVICE_CPU => DeviceChoice::Cpu,
            TABLA_DEVICE_GPU => DeviceChoice::Gpu,
            other => bail!(
                Argument,
                "device {other} is none of 0 (auto), 1 (CPU), 2 (GPU)"
            ),
        };
        let precision = match self.precision {
            TABLA_PRECISION_FAST => Precision::Fast,
            TABLA_PRECISION_EXACT => Precision::Exact,
            other => bail!(Argument, "precision {other} is none of 0 (fast), 1 (exact)"),
        };
        let weights = match self.weights {
            TABLA_WEIGHTS_AUTO => WeightMemory::Auto,
            TABLA_WEIGHTS_MAPPED => WeightMemory::Mapped,
            TABLA_WEIGHTS_PACKED => WeightMemory::Packed,
            other => bail!(
                Argument,
                "weights {other} is none of 0 (auto), 1 (mapped), 2 (packed)"
            ),
        };
        let [q8_0, q6_k] = HEAD_TYPES;
        let head_type = match self.head_type {
            TABLA_HEAD_AS_STORED => None,
            TABLA_HEAD_Q8_0 => Some(q8_0),
            TABLA_HEAD_Q6_K => Some(q6_k),
            other => bail!(
                Argument,
                "head_type {other} is none of 0 (as stored), 1 (q8_0), 2 (q6_k)"
            ),
        };
        let (threads, context) = (self.threads, self.max_context);
        Ok(Options {
            device,
            threads,
            context,
            precision,
            weights,
            shader_folder,
            head_type,
            embeddings: self.embeddings != 0,
            ..Options::default()
        })
    }
}

impl TablaGenerateOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const SIZE: u32 = size_of::<Self>() as u32;

    pub(super) fn defaults() -> Self {
        let Generate {
            sampling,
            max_tokens,
            chain,
            ignore_stops,
            ..
        } = Generate::default();
        Self {
            struct_size: Self::SIZE,
            max_tokens,
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            repeat_penalty: sampling.repeat_penalty,
            repeat_last: sampling.repeat_last,
            seed: sampling.seed,
            chain,
            ignore_stops: u32::from(ignore_stops),
            context_shift: 0,
            keep: 0,
        }
    }

    pub(super) fn generate(&self) -> Generate {
        let sampling = Sampling {
            repeat_penalty: self.repeat_penalty,
            repeat_last: self.repeat_last,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
            ..Sampling::GREEDY
        };
        Generate {
            sampling,
            max_tokens: self.max_tokens,
            chain: self.chain,
            ignore_stops: self.ignore_stops != 0,
            overflow: match self.context_shift {
                0 => Overflow::Stop,
                _ => Overflow::Shift { keep: self.keep },
            },
            ..Generate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn read(bytes: &[u32]) -> Result<[u32; 3]> {
        // SAFETY: the first word is the size in bytes of the slice, or refused before use.
        unsafe { read_sized(bytes.as_ptr().cast::<[u32; 3]>(), [12, 7, 8]) }
    }

    #[test]
    fn older_structs_keep_defaults_and_newer_ones_must_be_zero() {
        assert_eq!(read(&[12, 1, 2]).expect("same"), [12, 1, 2]);
        assert_eq!(read(&[8, 1]).expect("older"), [8, 1, 8]);
        assert_eq!(read(&[16, 1, 2, 0]).expect("newer, unused"), [16, 1, 2]);
        for bad in [&[16, 1, 2, 5][..], &[0], &[1 << 30]] {
            assert_eq!(read(bad).expect_err("refused").kind(), ErrorKind::Argument);
        }
    }
}
