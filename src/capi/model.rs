//! The functions of a model: its facts, and the short ones that work on a sequence of its own.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer::{self, Caller, TablaStats, TablaTokenCallback};
use super::generate::TablaGenerateOptions;
use super::guard::{TablaStatus, guard};
use super::handles::{self, Handled, Object, resolve};
use super::pointers::{Floats, size_of_struct, write_sized};
use super::session::{self, Sequenced, TablaSession};
use crate::decode::{Model, Session};
use crate::model::Facts;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// Version of this ABI: it changes when a program must be compiled again.
pub const TABLA_ABI_VERSION: u32 = 1;

/// A loaded model, with a session of its own. Opaque: its address is a number that only the library
/// understands.
pub struct TablaModel {
    model: Model,
    own: TablaSession,
}

impl TablaModel {
    pub(super) fn new(model: Model) -> Self {
        Self {
            own: TablaSession::new(Session::new(model.clone())),
            model,
        }
    }

    /// What can be asked whatever its session does.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }
}

impl Handled for TablaModel {
    const NAME: &'static str = "model";

    fn object(this: Arc<Self>) -> Object {
        Object::Model(this)
    }

    fn of(object: &Object) -> Option<&Arc<Self>> {
        match object {
            Object::Model(this) => Some(this),
            _ => None,
        }
    }

    fn close(&self) {
        self.own.close();
    }
}

impl Sequenced for TablaModel {
    fn sequence(&self) -> &TablaSession {
        &self.own
    }
}

/// Facts about a model. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaModelInfo {
    /// `sizeof(TablaModelInfo)`.
    pub struct_size: u32,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub dim: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Tokens of the vocabulary: the length of a row of logits.
    pub vocab: u32,
    /// Positions that fit the KV cache.
    pub context: u32,
    /// Positions that the model was trained for.
    pub context_trained: u32,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Bytes of the file or files.
    pub file_bytes: u64,
    /// Bytes of the KV cache.
    pub cache_bytes: u64,
    /// Bytes of working memory.
    pub scratch_bytes: u64,
    /// Architecture as the file names it, cut to fit, NUL at the end.
    pub architecture: [c_char; 32],
    /// The device, in words, cut to fit, NUL at the end.
    pub device: [c_char; 96],
}

/// Frees a model, and returns at once. A call that is inside it is cancelled, and is safe until it
/// returns; memory goes with the last session or batch. NULL is an error.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_free_model(model: *mut TablaModel) -> TablaStatus {
    guard(|| handles::remove(model))
}

/// Stops what a model does with its own sequence, from any thread: the call or the answer that is under
/// way, and nothing that begins later. While tokens are picked the call returns `TABLA_OK`, with
/// `TABLA_FINISH_CANCELLED`, and its callback hears of no other token; within a prompt it is
/// `TABLA_ERROR_CANCELLED` once the chunk is done, and what was done stays in the sequence.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_cancel(model: *const TablaModel) -> TablaStatus {
    guard(|| session::cancel(model))
}

/// Forgets the sequence of a model.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_reset(model: *mut TablaModel) -> TablaStatus {
    guard(|| session::truncate(model, 0))
}

/// Appends tokens to the sequence and runs them through the model.
///
/// # Safety
///
/// `tokens` points to `count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_prefill(
    model: *mut TablaModel,
    tokens: *const u32,
    count: usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { session::prefill(model, tokens, count) }
    })
}

/// Picks the next token, appends it to the sequence and writes it to `token`. Of the options it takes
/// those of sampling.
///
/// # Safety
///
/// `options` is NULL or points to a struct that begins with its size; `token` points to room for
/// an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_step(
    model: *mut TablaModel,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { session::step(model, options, token) }
    })
}

/// Encodes a prompt behind the sequence, runs it, and generates. NULL options are the defaults.
/// With an empty or NULL prompt it goes on from the sequence as it is. `stats` may be NULL.
///
/// # Safety
///
/// `prompt` is NULL or a C string; `options` is NULL or points to a struct that begins with its
/// size; `stats` is NULL or points to one that does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_generate(
    model: *mut TablaModel,
    prompt: *const c_char,
    options: *const TablaGenerateOptions,
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            answer::generate(
                model,
                prompt,
                options,
                Caller::new(callback, user_data),
                stats,
            )
        }
    })
}

/// Writes logits: `TABLA_LOGITS_LAST` `[vocab]`, `TABLA_LOGITS_ALL` `[tokens, vocab]`, for all
/// tokens of the sequence. `capacity` and `count` are numbers of floats. With `out` NULL only
/// `count` is written.
///
/// # Safety
///
/// `out` is NULL or points to room for `capacity` floats; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_logits(
    model: *mut TablaModel,
    rows: i32,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        let floats = Floats::new(out, capacity, count);
        // SAFETY: the caller's promise.
        unsafe { session::logits(model, rows, floats) }
    })
}

/// Writes facts about a model: as many bytes as `struct_size` says. What this library does not
/// know yet becomes 0.
///
/// # Safety
///
/// `info` points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_info(
    model: *const TablaModel,
    info: *mut TablaModelInfo,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_struct(info, "info") }?;
        let facts = TablaModelInfo::of(resolve(model)?.model().facts());
        // SAFETY: the caller's struct holds `size` bytes.
        unsafe { write_sized(&facts, info, size) };
        Ok(())
    })
}

/// The version of the library, for example `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// The version of this ABI: compare it with `TABLA_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_abi_version() -> u32 {
    TABLA_ABI_VERSION
}

impl TablaModelInfo {
    fn of(facts: &Facts) -> Self {
        Self {
            struct_size: 0,
            layers: facts.layers,
            dim: facts.dim,
            heads: facts.heads,
            kv_heads: facts.kv_heads,
            head_dim: facts.head_dim,
            ffn: facts.ffn,
            vocab: facts.vocab,
            context: facts.context,
            context_trained: facts.context_trained,
            parameters: facts.parameters,
            file_bytes: facts.file_bytes,
            cache_bytes: facts.cache_bytes,
            scratch_bytes: facts.scratch_bytes,
            architecture: fixed(&facts.architecture),
            device: fixed(&facts.device),
        }
    }
}

/// A text in an array, cut to fit with room for a NUL.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in out.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = from.cast_signed() as c_char;
    }
    out
}
