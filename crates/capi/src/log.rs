//! Log messages of the library, passed to a callback.
#![expect(unsafe_code, reason = "a callback of C")]

use super::guard::{IN_LOG_CALLBACK, TablaStatus, guard};
use parking_lot::RwLock;
use std::ffi::{CString, c_char, c_void};
use std::sync::Once;
use tabla::Result;
use tabla::error::bail;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Log level: no messages. For `tabla_log_set_callback`.
pub const TABLA_LOG_OFF: i32 = 0;
/// Log level: errors that no return value reports.
pub const TABLA_LOG_ERROR: i32 = 1;
/// Log level: warnings for users, such as a fallback or a guessed setting.
pub const TABLA_LOG_WARN: i32 = 2;
/// Log level: progress of operations.
pub const TABLA_LOG_INFO: i32 = 3;
/// Log level: details for developers.
pub const TABLA_LOG_DEBUG: i32 = 4;

/// Receives a log message: its level (`TABLA_LOG_ERROR`, ...) and one line of text, which is valid
/// during the call. It may be called from any thread, from several threads at once, and from inside
/// any call. It must not call the library: such a call fails with `TABLA_ERROR_REENTRANT`, except
/// `tabla_last_error` and similar functions that return neither a handle nor a status.
pub type TablaLogCallback =
    Option<unsafe extern "C" fn(level: i32, message: *const c_char, user_data: *mut c_void)>;

/// The registered callback.
#[derive(Clone, Copy)]
struct Listener {
    level: LevelFilter,
    callback: unsafe extern "C" fn(i32, *const c_char, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the caller guarantees that any thread may pass the pointer to the callback.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

/// Sets the callback that receives log messages of all models up to a level. It replaces the
/// previous callback. NULL or `TABLA_LOG_OFF` disables logging, which is the default. Waits for
/// running calls of the previous callback, which is not called after this function returns.
///
/// # Safety
///
/// `callback` is NULL or a function that any thread may call with `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_log_set_callback(
    level: i32,
    callback: TablaLogCallback,
    user_data: *mut c_void,
) -> TablaStatus {
    guard(|| {
        let level = level_of(level)?;
        let listener = callback.map(|callback| Listener {
            level,
            callback,
            user_data,
        });
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // Fails if a Rust program has set its own subscriber, which stays in use.
            let _ = tracing::subscriber::set_global_default(LogSubscriber);
        });
        *LISTENER.write() = listener.filter(|listener| listener.level != LevelFilter::OFF);
        Ok(())
    })
}

fn level_of(level: i32) -> Result<LevelFilter> {
    Ok(match level {
        TABLA_LOG_OFF => LevelFilter::OFF,
        TABLA_LOG_ERROR => LevelFilter::ERROR,
        TABLA_LOG_WARN => LevelFilter::WARN,
        TABLA_LOG_INFO => LevelFilter::INFO,
        TABLA_LOG_DEBUG => LevelFilter::DEBUG,
        other => bail!(
            Argument,
            "invalid level {other}: expected one of 0 (off), 1 (error), 2 (warn), 3 (info), 4 (debug)"
        ),
    })
}

fn code(level: Level) -> i32 {
    match level {
        Level::ERROR => TABLA_LOG_ERROR,
        Level::WARN => TABLA_LOG_WARN,
        Level::INFO => TABLA_LOG_INFO,
        _ => TABLA_LOG_DEBUG,
    }
}

/// Formats every event as one line and passes it to the callback.
struct LogSubscriber;

impl Subscriber for LogSubscriber {
    /// The level can change at any time, so the result must not be cached.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let listener = LISTENER.read_recursive();
        metadata.is_event()
            && !IN_LOG_CALLBACK.get()
            && listener.is_some_and(|to| *metadata.level() <= to.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut text = line.0;
        text.retain(|c| c != '\0');
        let text = CString::new(text).unwrap_or_default();
        // Locked during the call, so that a replaced callback is not called any more.
        let listener = LISTENER.read_recursive();
        let level = event.metadata().level();
        if let Some(to) = listener.filter(|to| *level <= to.level) {
            let outer = IN_LOG_CALLBACK.replace(true);
            // SAFETY: the caller's function; the text is valid during the call.
            unsafe { (to.callback)(code(*level), text.as_ptr(), to.user_data) };
            IN_LOG_CALLBACK.set(outer);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// One line: the message, then every other field as `name=value`.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}
