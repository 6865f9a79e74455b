//! The functions of a session: a sequence of its own on a model that many share.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::generate::{TablaGenerateOptions, options_of};
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, resolve};
use super::pointers::{Floats, copy_out, out_of, path_of, slice_of};
use super::sequence::{Sequenced, TablaModel, TablaSession, cancel, with};
use std::ffi::c_char;
use std::path::PathBuf;
use tabla::Session;
use tabla::error::{Error, ErrorKind, Result, bail};

/// Only the logits after the last token: `tabla_logits`.
pub const TABLA_LOGITS_LAST: i32 = 0;
/// The logits after every token of the sequence.
pub const TABLA_LOGITS_ALL: i32 = 1;

/// Forgets what stands behind the first `keep` tokens.
pub(super) fn truncate<H: Sequenced>(handle: *const H, keep: usize) -> Result<()> {
    with(handle, |session| {
        session.truncate(keep);
        Ok(())
    })
}

/// Appends tokens and runs them through the model.
///
/// # Safety
///
/// `tokens` points to `count` ids.
pub(super) unsafe fn prefill<H: Sequenced>(
    handle: *const H,
    tokens: *const u32,
    count: usize,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let tokens = unsafe { slice_of(tokens, count, "tokens") }?;
    with(handle, |session| session.prefill(tokens, &mut |_, _| {}))
}

/// Picks a token.
///
/// # Safety
///
/// As of `tabla_step`.
pub(super) unsafe fn step<H: Sequenced>(
    handle: *const H,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let options = unsafe { options_of(options) }?;
    // SAFETY: the caller's promise.
    let out = unsafe { out_of(token, "token") }?;
    *out = with(handle, |session| session.step(&options.sampling()))?;
    Ok(())
}

/// Writes logits.
///
/// # Safety
///
/// As of `tabla_logits`.
pub(super) unsafe fn logits<H: Sequenced>(handle: *const H, rows: i32, out: Floats) -> Result<()> {
    with(handle, |session| {
        let vocab = session.facts().vocab as usize;
        let needed = match rows {
            TABLA_LOGITS_LAST => vocab,
            TABLA_LOGITS_ALL => vocab.saturating_mul(session.tokens().len()),
            other => bail!(Argument, "rows {other} is none of 0 (last), 1 (all)"),
        };
        let fill = |room: &mut [f32]| match rows {
            TABLA_LOGITS_LAST => session.logits(room),
            _ => session.logits_all(room),
        };
        // SAFETY: the caller's promise.
        unsafe { out.write(needed, fill) }
    })
}

/// A session with an empty sequence, or NULL with the reason in `tabla_last_error`. Sessions of a model
/// go on together, as many as it has sequences; calls that compute wait where there are more. A model's own
/// sequence is one like them. A session keeps its model: free them in any order.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_new(model: *const TablaModel) -> *mut TablaSession {
    guard_value(|| insert(Session::new(resolve(model)?.model().clone())))
        .unwrap_or(std::ptr::null_mut())
}

/// A session with the same sequence, or NULL with the reason in `tabla_last_error`. Nothing is
/// computed again for it.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_fork(session: *mut TablaSession) -> *mut TablaSession {
    guard_value(|| insert(with(session, |session| session.fork())?)).unwrap_or(std::ptr::null_mut())
}

/// Writes a session to a file, with what was computed for it. The file is there when it is whole.
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
        // SAFETY: the caller's promise.
        let path = unsafe { file_of(path) }?;
        with(session, |session| session.save(&path))
    })
}

/// A session that goes on as the one did that `tabla_session_save` wrote, or NULL with the reason in
/// `tabla_last_error`. The file is held to the model and checked whole before anything is taken from it.
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
        // SAFETY: the caller's promise.
        let path = unsafe { file_of(path) }?;
        insert(Session::load(resolve(model)?.model().clone(), &path)?)
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Frees a session, and returns at once. A call that is inside it is cancelled, and is safe until it
/// returns: keep what its callback needs until then.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_free(session: *mut TablaSession) -> TablaStatus {
    guard(|| handles::remove(session))
}

/// Stops what a session does, from any thread, as `tabla_cancel` does.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_cancel(session: *const TablaSession) -> TablaStatus {
    guard(|| cancel(session))
}

/// Forgets what stands behind the first `keep` tokens of the sequence; 0 forgets all.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_truncate(session: *mut TablaSession, keep: usize) -> TablaStatus {
    guard(|| truncate(session, keep))
}

/// Writes the tokens of the sequence, given and picked. With `tokens` NULL only `count` is written.
///
/// # Safety
///
/// `tokens` is NULL or points to room for `capacity` ids; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_tokens(
    session: *const TablaSession,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        *count = with(session, |session| {
            // SAFETY: the caller's promise.
            unsafe { copy_out(session.tokens(), tokens, capacity) }?;
            Ok(session.tokens().len())
        })?;
        Ok(())
    })
}

/// `tabla_prefill` of a session.
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
        // SAFETY: the caller's promise.
        unsafe { prefill(session, tokens, count) }
    })
}

/// `tabla_step` of a session.
///
/// # Safety
///
/// As of `tabla_step`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_step(
    session: *mut TablaSession,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { step(session, options, token) }
    })
}

/// `tabla_logits` of a session.
///
/// # Safety
///
/// As of `tabla_logits`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_logits(
    session: *mut TablaSession,
    rows: i32,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        let floats = Floats::new(out, capacity, count);
        // SAFETY: the caller's promise.
        unsafe { logits(session, rows, floats) }
    })
}

fn insert(session: Session) -> Result<*mut TablaSession> {
    handles::insert(TablaSession::new(session))
}

/// A file's path.
///
/// # Safety
///
/// `path` is NULL or a C string.
unsafe fn file_of(path: *const c_char) -> Result<PathBuf> {
    // SAFETY: the caller's promise.
    let path = unsafe { path_of(path) };
    path.ok_or_else(|| Error::new(ErrorKind::Argument, "path is NULL"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla::{DeviceChoice, LoadOptions, Source};

    #[test]
    fn a_panic_poisons_its_session_and_no_other() {
        let options = LoadOptions {
            device: DeviceChoice::Cpu,
            context: 16,
            ..LoadOptions::default()
        };
        let model = tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
        let make = || insert(Session::new(model.clone())).expect("there is room");
        let (bad, good) = (make(), make());
        let call = |handle| guard(|| truncate(handle, 0));
        let panics = || with(bad, |_| -> Result<()> { panic!("at once") });
        assert_eq!(guard(panics), ErrorKind::Panic as i32);
        assert_eq!(call(bad), ErrorKind::Poisoned as i32);
        assert_eq!(call(good), 0);
        assert_eq!(tabla_session_free(bad), 0);
        assert_eq!(tabla_session_free(good), 0);
        assert_eq!(call(bad), ErrorKind::Handle as i32);
    }
}
