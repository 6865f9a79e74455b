//! The guard around every exported function: catches panics and records the last error of a thread.
#![expect(unsafe_code, reason = "exported symbols and a libc call")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use tabla::error::bail;
use tabla::{Error, ErrorKind, Result};

/// Status of a call: 0, or one of the `TablaError` codes.
pub type TablaStatus = i32;

/// The call succeeded.
pub const TABLA_OK: i32 = 0;

/// The last call of a thread that failed.
#[derive(Default)]
struct LastError {
    code: TablaStatus,
    text: CString,
}

thread_local! {
    static LAST: RefCell<LastError> = RefCell::default();
    /// Whether a guard on this thread catches panics. The panic hook prints nothing then.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is inside the log callback, which must not call the library.
    pub(super) static IN_LOG_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Set in the child of a process that had loaded a model. The child has none of the parent's
/// threads and devices.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Runs a call. An error becomes its code, a panic becomes `TABLA_ERROR_PANIC`; both set the text
/// of `tabla_last_error`.
pub(super) fn guard(call: impl FnOnce() -> Result<()>) -> TablaStatus {
    match run(call) {
        Ok(()) => TABLA_OK,
        Err(code) => code,
    }
}

/// Like [`guard`], for calls that return another value than a status. Returns `None` on failure.
pub(super) fn guard_value<T>(call: impl FnOnce() -> Result<T>) -> Option<T> {
    run(call).ok()
}

fn run<T>(call: impl FnOnce() -> Result<T>) -> Result<T, TablaStatus> {
    let outer = GUARDED.replace(true);
    let out = catch_unwind(AssertUnwindSafe(|| {
        if FORKED.load(Ordering::Relaxed) {
            bail!(
                Forked,
                "this process was forked from one that had loaded a model: start a new process to load a model"
            );
        }
        if IN_LOG_CALLBACK.get() {
            bail!(Reentrant, "the log callback called the library");
        }
        call()
    }));
    GUARDED.set(outer);
    let error = match out {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(panic) => Error::new(ErrorKind::Panic, panic_text(&*panic)),
    };
    let code = error.kind() as TablaStatus;
    set_last_error(&error);
    Err(code)
}

/// Accesses the last error of this thread. Returns `None` after thread-local storage is destroyed:
/// destructors of other thread-local objects may still free a model.
fn with_last_error<T>(access: impl FnOnce(&mut LastError) -> T) -> Option<T> {
    LAST.try_with(|last| access(&mut last.borrow_mut())).ok()
}

/// Stores an error for `tabla_last_error`: its message and the chain of its causes.
fn set_last_error(error: &Error) {
    let mut text = error.message().to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let message = inner.to_string();
        // Some messages already include their cause.
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = inner.source();
    }
    text.retain(|c| c != '\0');
    let text = CString::new(text).unwrap_or_default();
    with_last_error(|last| {
        *last = LastError {
            code: error.kind() as TablaStatus,
            text,
        }
    });
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic inside the library: {}", text.unwrap_or_default())
}

/// Installs, once per process, a hook that silences guarded panics and a fork handler.
pub(super) fn prepare_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let outer = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // The thread pool catches a worker's panic and returns it from the call as an error.
            let thread = std::thread::current();
            let worker = thread.name().is_some_and(|name| name.starts_with("tabla-"));
            if !GUARDED.get() && !worker {
                outer(info);
            }
        }));
        #[cfg(unix)]
        {
            extern "C" fn in_child() {
                FORKED.store(true, Ordering::Relaxed);
            }
            // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}

/// Returns the message of the last call that failed on this thread, never NULL; empty if no call
/// failed. A successful call does not change it. Valid until the next call that fails on this
/// thread, or the end of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_last_error() -> *const c_char {
    with_last_error(|last| last.text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the code of the last call that failed on this thread, the one that `tabla_last_error`
/// describes; 0 if no call failed. It says why a function returned a NULL handle.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_last_error_code() -> TablaStatus {
    with_last_error(|last| last.code).unwrap_or(TABLA_OK)
}

/// Returns the name of a status, for example `TABLA_ERROR_BUSY`; `unknown` for a number that this
/// library does not define.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_status_name(status: TablaStatus) -> *const c_char {
    let known = NAMES.iter().find(|(code, _)| *code == status);
    known.map_or(c"unknown", |(_, name)| name).as_ptr()
}

/// Every status and its name.
const NAMES: [(TablaStatus, &CStr); 20] = [
    (TABLA_OK, c"TABLA_OK"),
    (ErrorKind::Argument as i32, c"TABLA_ERROR_ARGUMENT"),
    (ErrorKind::Io as i32, c"TABLA_ERROR_IO"),
    (ErrorKind::Format as i32, c"TABLA_ERROR_FORMAT"),
    (ErrorKind::Unsupported as i32, c"TABLA_ERROR_UNSUPPORTED"),
    (ErrorKind::TooLarge as i32, c"TABLA_ERROR_TOO_LARGE"),
    (ErrorKind::Tokenizer as i32, c"TABLA_ERROR_TOKENIZER"),
    (ErrorKind::Grammar as i32, c"TABLA_ERROR_GRAMMAR"),
    (ErrorKind::Memory as i32, c"TABLA_ERROR_MEMORY"),
    (ErrorKind::Device as i32, c"TABLA_ERROR_DEVICE"),
    (ErrorKind::DeviceLost as i32, c"TABLA_ERROR_DEVICE_LOST"),
    (ErrorKind::Cancelled as i32, c"TABLA_ERROR_CANCELLED"),
    (ErrorKind::State as i32, c"TABLA_ERROR_STATE"),
    (ErrorKind::Internal as i32, c"TABLA_ERROR_INTERNAL"),
    (ErrorKind::Panic as i32, c"TABLA_ERROR_PANIC"),
    (ErrorKind::Handle as i32, c"TABLA_ERROR_HANDLE"),
    (ErrorKind::Busy as i32, c"TABLA_ERROR_BUSY"),
    (ErrorKind::Reentrant as i32, c"TABLA_ERROR_REENTRANT"),
    (ErrorKind::Poisoned as i32, c"TABLA_ERROR_POISONED"),
    (ErrorKind::Forked as i32, c"TABLA_ERROR_FORKED"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the pointer is to a C string that is valid until the next call on this thread.
        let text = unsafe { CStr::from_ptr(tabla_last_error()) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn errors_and_panics_become_codes_with_text() {
        prepare_process();
        assert_eq!(
            guard(|| Err(Error::new(ErrorKind::Io, "no\0 file"))),
            ErrorKind::Io as i32
        );
        assert_eq!(last(), "no\\u{0} file");
        assert_eq!(guard(|| panic!("at {}", "once")), ErrorKind::Panic as i32);
        assert_eq!(last(), "panic inside the library: at once");
        assert_eq!(tabla_last_error_code(), ErrorKind::Panic as i32);
        assert_eq!(guard(|| Ok(())), TABLA_OK);
        assert_eq!(last(), "panic inside the library: at once");
        assert_eq!(tabla_last_error_code(), ErrorKind::Panic as i32);
    }
}
