//! Functions of a session: a sequence of tokens on a model.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::generate::options_of;
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, resolve};
use super::options::generate::TablaGenerateOptions;
use super::pointers::{FloatBuffer, copy_out, out_of, path_of, slice_of};
use super::sequence::{TablaModel, TablaSession, cancel, free, with_session};
use std::ffi::c_char;
use std::path::PathBuf;
use tabla::error::bail;
use tabla::{Error, ErrorKind, Result, Session};

/// Logits after the last token only: `tabla_session_logits`.
pub const TABLA_LOGITS_LAST: i32 = 0;
/// Logits after every token of the sequence.
pub const TABLA_LOGITS_ALL: i32 = 1;

/// Returns the default session of a model, which `tabla_generate`, `tabla_prefill` and
/// `tabla_embed` use; every call returns the same handle. All functions of sessions accept it,
/// except `tabla_session_free`: the model owns it, and `tabla_free_model` frees it. Returns NULL on
/// failure; `tabla_last_error` has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_model_session(model: *mut TablaModel) -> *mut TablaSession {
    guard_value(|| Ok(resolve(model)?.session())).unwrap_or(std::ptr::null_mut())
}

/// Creates a session with an empty sequence. Returns NULL on failure; `tabla_last_error` has the
/// reason. Sessions of a model are computed at the same time, at most `TablaLoadOptions.sequences`
/// of them, including the default session; calls on further sessions wait. A session keeps its
/// model alive: free them in any order.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_new(model: *const TablaModel) -> *mut TablaSession {
    guard_value(|| insert(Session::new(resolve(model)?.model().clone())))
        .unwrap_or(std::ptr::null_mut())
}

/// Creates a session with a copy of the sequence. Returns NULL on failure; `tabla_last_error` has
/// the reason. Nothing is recomputed: the KV cache is shared (copy-on-write).
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_fork(session: *mut TablaSession) -> *mut TablaSession {
    guard_value(|| insert(with_session(session, |session| session.fork())?))
        .unwrap_or(std::ptr::null_mut())
}

/// Continues a session on another load of its model, after `TABLA_ERROR_DEVICE_LOST`. The sequence
/// is kept, and computed again when it is needed. A further answer without a prompt, with the same
/// seed, goes on as the one that failed would have. The session must not have hooks.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_move(
    session: *mut TablaSession,
    model: *const TablaModel,
) -> TablaStatus {
    guard(|| {
        let model = resolve(model)?;
        with_session(session, |session| session.move_to(model.model()))
    })
}

/// Saves a session to a file, including its KV cache. The file is created only when it is complete.
///
/// # Safety
///
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_save(
    session: *mut TablaSession,
    path: *const c_char,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let path = unsafe { file_of(path) }?;
        with_session(session, |session| session.save(&path))
    })
}

/// Loads a session that `tabla_session_save` saved. Returns NULL on failure; `tabla_last_error` has
/// the reason. The whole file is validated, also against the model, before it is used.
///
/// # Safety
///
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_load(
    model: *const TablaModel,
    path: *const c_char,
) -> *mut TablaSession {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let path = unsafe { file_of(path) }?;
        insert(Session::load(resolve(model)?.model().clone(), &path)?)
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Frees a session and returns at once. A running call is cancelled, and stays valid until it
/// returns: keep the data of its callback until then. The default session of a model cannot be
/// freed: that is `TABLA_ERROR_ARGUMENT`.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_free(session: *mut TablaSession) -> TablaStatus {
    guard(|| free(session))
}

/// Cancels the current call or answer of a session, from any thread. Later calls are not affected.
/// During decoding the call returns `TABLA_OK` with `TABLA_FINISH_CANCELLED`, and its callback
/// receives no further token. During prefill it returns `TABLA_ERROR_CANCELLED` after the current
/// chunk; completed chunks stay in the sequence.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_cancel(session: *const TablaSession) -> TablaStatus {
    guard(|| cancel(session))
}

/// Removes all tokens after the first `keep` ones from the sequence. 0 removes all tokens, which
/// resets the session.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_truncate(session: *mut TablaSession, keep: usize) -> TablaStatus {
    guard(|| {
        with_session(session, |session| {
            session.truncate(keep);
            Ok(())
        })
    })
}

/// Writes the tokens of the sequence, both prompt and generated ones. If `tokens` is NULL, only
/// `count` is written.
///
/// # Safety
///
/// `tokens` is NULL or points to space for `capacity` ids; `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_tokens(
    session: *const TablaSession,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        *count = with_session(session, |session| {
            // SAFETY: guaranteed by the caller.
            unsafe { copy_out(session.tokens(), tokens, capacity) }?;
            Ok(session.tokens().len())
        })?;
        Ok(())
    })
}

/// Appends tokens to the sequence and runs the model on them.
///
/// # Safety
///
/// `tokens` points to `count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_prefill(
    session: *mut TablaSession,
    tokens: *const u32,
    count: usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { prefill(session, tokens, count) }
    })
}

/// Appends tokens to the sequence of the default session of a model: the short form of
/// `tabla_session_prefill`.
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
        let session = resolve(model)?.session();
        // SAFETY: guaranteed by the caller.
        unsafe { prefill(session, tokens, count) }
    })
}

/// Appends tokens and runs the model on them.
///
/// # Safety
///
/// `tokens` points to `count` ids.
unsafe fn prefill(session: *const TablaSession, tokens: *const u32, count: usize) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let tokens = unsafe { slice_of(tokens, count, "tokens") }?;
    with_session(session, |session| session.prefill(tokens))
}

/// Samples the next token, appends it to the sequence and writes it to `token`. Only the sampling
/// options are used. NULL options are the defaults.
///
/// # Safety
///
/// `options` is NULL or points to a struct with `struct_size` set; `token` points to space for
/// an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_step(
    session: *mut TablaSession,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let options = unsafe { options_of(options) }?;
        // SAFETY: guaranteed by the caller.
        let out = unsafe { out_of(token, "token") }?;
        *out = with_session(session, |session| session.step(&options.sampling()))?;
        Ok(())
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
pub unsafe extern "C" fn tabla_session_logits(
    session: *mut TablaSession,
    rows: i32,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        let floats = FloatBuffer::new(out, capacity, count);
        with_session(session, |session| {
            let vocab = session.facts().vocab as usize;
            let needed = match rows {
                TABLA_LOGITS_LAST => vocab,
                TABLA_LOGITS_ALL => vocab.saturating_mul(session.tokens().len()),
                other => bail!(
                    Argument,
                    "invalid rows {other}: expected one of 0 (last), 1 (all)"
                ),
            };
            let fill = |buffer: &mut [f32]| match rows {
                TABLA_LOGITS_LAST => session.logits(buffer),
                _ => session.logits_all(buffer),
            };
            // SAFETY: guaranteed by the caller.
            unsafe { floats.write(needed, fill) }
        })
    })
}

fn insert(session: Session) -> Result<*mut TablaSession> {
    handles::insert(TablaSession::new(session))
}

/// Converts a C string to a path; NULL is an error.
///
/// # Safety
///
/// `path` is NULL or a C string.
unsafe fn file_of(path: *const c_char) -> Result<PathBuf> {
    // SAFETY: guaranteed by the caller.
    let path = unsafe { path_of(path) };
    path.ok_or_else(|| Error::new(ErrorKind::Argument, "path is NULL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use tabla::load::{DeviceChoice, LoadOptions};
    use tabla::{Model, Source};

    #[test]
    fn panic_poisons_only_its_session() {
        let options = LoadOptions::default()
            .device(DeviceChoice::Cpu)
            .max_context(16);
        let model = Model::builder(Source::BuiltIn)
            .options(options)
            .load()
            .expect("model loads");
        let new_session = || insert(Session::new(model.clone())).expect("handle table is not full");
        let (bad, good) = (new_session(), new_session());
        let call = |handle| tabla_session_truncate(handle, 0);
        let panics = || with_session(bad, |_| -> Result<()> { panic!("at once") });
        assert_eq!(guard(panics), ErrorKind::Panic as i32);
        assert_eq!(call(bad), ErrorKind::Poisoned as i32);
        assert_eq!(call(good), 0);
        assert_eq!(tabla_session_free(bad), 0);
        assert_eq!(tabla_session_free(good), 0);
        assert_eq!(call(bad), ErrorKind::Handle as i32);
    }
}
