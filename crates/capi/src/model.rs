//! A model, and the short functions that work on a sequence of its own.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer::{self, Caller, Prompt, TablaStats, TablaTokenCallback};
use super::generate::TablaGenerateOptions;
use super::guard::{TablaStatus, guard};
use super::handles::{self, Handled, Object};
use super::pointers::{Floats, text_of};
use super::session::{self, Sequenced, TablaSession};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use tabla::{Model, Session};

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
