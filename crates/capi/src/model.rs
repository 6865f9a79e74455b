//! Functions of a model. The generation functions work on the model's own sequence.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer::{self, Caller, Prompt};
use super::answer_piece::{TablaStats, TablaTokenCallback};
use super::generate::TablaGenerateOptions;
use super::guard::{TablaStatus, guard};
use super::handles;
use super::pointers::{FloatBuffer, text_of};
use super::sequence::{TablaModel, cancel};
use super::session;
use std::ffi::{c_char, c_void};

/// Frees a model and returns at once. A running call is cancelled, and stays valid until it
/// returns. The memory is released when the last session or batch of the model is freed. NULL is an
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_free_model(model: *mut TablaModel) -> TablaStatus {
    guard(|| handles::remove(model))
}

/// Cancels the current call or answer on the model's own sequence, from any thread. Later calls are
/// not affected. During decoding the call returns `TABLA_OK` with `TABLA_FINISH_CANCELLED`, and its
/// callback receives no further token. During prefill it returns `TABLA_ERROR_CANCELLED` after the
/// current chunk; completed chunks stay in the sequence.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_cancel(model: *const TablaModel) -> TablaStatus {
    guard(|| cancel(model))
}

/// Clears the model's own sequence.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_reset(model: *mut TablaModel) -> TablaStatus {
    guard(|| session::truncate(model, 0))
}

/// Appends tokens to the sequence and runs the model on them.
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
        // SAFETY: guaranteed by the caller.
        unsafe { session::prefill(model, tokens, count) }
    })
}

/// Samples the next token, appends it to the sequence and writes it to `token`. Only the sampling
/// options are used.
///
/// # Safety
///
/// `options` is NULL or points to a struct whose first field is its size; `token` points to space for
/// an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_step(
    model: *mut TablaModel,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { session::step(model, options, token) }
    })
}

/// Appends a prompt to the sequence, runs the model on it, and generates an answer. An empty or
/// NULL prompt continues from the sequence as it is. NULL options are the defaults. `stats` may be
/// NULL.
///
/// # Safety
///
/// `prompt` is NULL or a C string; `options` is NULL or points to a struct whose first field is its
/// size; `stats` likewise.
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
        // SAFETY: guaranteed by the caller.
        let prompt = Prompt::Text(unsafe { text_of(prompt, "prompt") }?);
        let caller = Caller::new(callback, user_data);
        // SAFETY: guaranteed by the caller.
        unsafe { answer::generate(model, &prompt, options, caller, stats) }
    })
}

/// Writes logits. `TABLA_LOGITS_LAST`: `[vocab]`, after the last token. `TABLA_LOGITS_ALL`:
/// `[tokens, vocab]`, after every token of the sequence. `capacity` and `count` are numbers of
/// floats. If `out` is NULL, only `count` is written.
///
/// # Safety
///
/// `out` is NULL or points to space for `capacity` floats; `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_logits(
    model: *mut TablaModel,
    rows: i32,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        let floats = FloatBuffer::new(out, capacity, count);
        // SAFETY: guaranteed by the caller.
        unsafe { session::logits(model, rows, floats) }
    })
}
