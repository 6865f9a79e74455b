//! Functions of a session: a sequence on a model that several sessions share.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::generate::{TablaGenerateOptions, options_of};
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, resolve};
use super::pointers::{FloatBuffer, copy_out, out_of, path_of, slice_of};
use super::sequence::{HasSequence, TablaModel, TablaSession, cancel, with_session};
use std::ffi::c_char;
use std::path::PathBuf;
use tabla::Session;
use tabla::error::{Error, ErrorKind, Result, bail};

/// Logits after the last token only: `tabla_logits`.
pub const TABLA_LOGITS_LAST: i32 = 0;
/// Logits after every token of the sequence.
pub const TABLA_LOGITS_ALL: i32 = 1;

/// Removes all tokens after the first `keep` ones.
pub(super) fn truncate<H: HasSequence>(handle: *const H, keep: usize) -> Result<()> {
    with_session(handle, |session| {
        session.truncate(keep);
        Ok(())
    })
}

/// Appends tokens and runs the model on them.
///
/// # Safety
///
/// `tokens` points to `count` ids.
pub(super) unsafe fn prefill<H: HasSequence>(
    handle: *const H,
    tokens: *const u32,
    count: usize,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let tokens = unsafe { slice_of(tokens, count, "tokens") }?;
    with_session(handle, |session| session.prefill(tokens, &mut |_, _| {}))
}

/// Samples a token.
///
/// # Safety
///
/// Arguments as for `tabla_step`.
pub(super) unsafe fn step<H: HasSequence>(
    handle: *const H,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options_of(options) }?;
    // SAFETY: guaranteed by the caller.
    let out = unsafe { out_of(token, "token") }?;
    *out = with_session(handle, |session| session.step(&options.sampling()))?;
    Ok(())
}

/// Writes logits.
///
/// # Safety
///
/// Arguments as for `tabla_logits`.
pub(super) unsafe fn logits<H: HasSequence>(
    handle: *const H,
    rows: i32,
    out: FloatBuffer,
) -> Result<()> {
    with_session(handle, |session| {
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
        unsafe { out.write(needed, fill) }
    })
}

/// Creates a session with an empty sequence. Returns NULL on failure; `tabla_last_error` has the
/// reason. Sessions of a model are computed at the same time, at most `TablaLoadOptions.sequences`
/// of them; calls on further sessions wait. The model's own sequence counts as one. A session keeps
/// its model alive: free them in any order.
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
/// returns: keep the data of its callback until then.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_free(session: *mut TablaSession) -> TablaStatus {
    guard(|| handles::remove(session))
}

/// Cancels the current call or answer of a session, from any thread. See `tabla_cancel`.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_cancel(session: *const TablaSession) -> TablaStatus {
    guard(|| cancel(session))
}

/// Removes all tokens after the first `keep` ones from the sequence; 0 removes all.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_truncate(session: *mut TablaSession, keep: usize) -> TablaStatus {
    guard(|| truncate(session, keep))
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

/// Same as `tabla_prefill`, for a session.
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

/// Same as `tabla_step`, for a session.
///
/// # Safety
///
/// Arguments as for `tabla_step`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_step(
    session: *mut TablaSession,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { step(session, options, token) }
    })
}

/// Same as `tabla_logits`, for a session.
///
/// # Safety
///
/// Arguments as for `tabla_logits`.
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
        // SAFETY: guaranteed by the caller.
        unsafe { logits(session, rows, floats) }
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
    use tabla::{DeviceChoice, LoadOptions, Source};

    #[test]
    fn panic_poisons_only_its_session() {
        let options = LoadOptions {
            device: DeviceChoice::Cpu,
            context: 16,
            ..LoadOptions::default()
        };
        let model = tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect("model loads");
        let new_session = || insert(Session::new(model.clone())).expect("handle table is not full");
        let (bad, good) = (new_session(), new_session());
        let call = |handle| guard(|| truncate(handle, 0));
        let panics = || with_session(bad, |_| -> Result<()> { panic!("at once") });
        assert_eq!(guard(panics), ErrorKind::Panic as i32);
        assert_eq!(call(bad), ErrorKind::Poisoned as i32);
        assert_eq!(call(good), 0);
        assert_eq!(tabla_session_free(bad), 0);
        assert_eq!(tabla_session_free(good), 0);
        assert_eq!(call(bad), ErrorKind::Handle as i32);
    }
}
