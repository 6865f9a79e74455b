//! The functions of a model: the short ones work on a sequence of its own.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer::{self, Caller, Prompt};
use super::answer_piece::{TablaStats, TablaTokenCallback};
use super::generate::TablaGenerateOptions;
use super::guard::{TablaStatus, guard};
use super::handles;
use super::pointers::{Floats, text_of};
use super::sequence::{TablaModel, cancel};
use super::session;
use std::ffi::{c_char, c_void};

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
    guard(|| cancel(model))
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
        let prompt = Prompt::Text(unsafe { text_of(prompt, "prompt") }?);
        let caller = Caller::new(callback, user_data);
        // SAFETY: the caller's promise.
        unsafe { answer::generate(model, &prompt, options, caller, stats) }
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
