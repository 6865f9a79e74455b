//! What the library has to say beside its results, for who asks for it.
#![expect(unsafe_code, reason = "a callback of C")]

use super::guard::{CALLING, TablaStatus, guard};
use parking_lot::RwLock;
use std::ffi::{CString, c_char, c_void};
use std::sync::Once;
use tabla::error::{Result, bail};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Nothing: `tabla_set_log_callback`.
pub const TABLA_LOG_OFF: i32 = 0;
/// What went wrong and is told in no other way.
pub const TABLA_LOG_ERROR: i32 = 1;
/// What a user should know: something was left out, or guessed.
pub const TABLA_LOG_WARN: i32 = 2;
/// What was done.
pub const TABLA_LOG_INFO: i32 = 3;
/// How, for developers.
pub const TABLA_LOG_DEBUG: i32 = 4;

/// Hears of what the library says: `TABLA_LOG_ERROR`, ... and a line, which is valid during the call.
/// It may be called from any thread, from several at once, and from inside any call: what it calls of the
/// library is `TABLA_ERROR_REENTRANT`, but for `tabla_last_error` and the like.
pub type TablaLogCallback =
    Option<unsafe extern "C" fn(level: i32, message: *const c_char, user_data: *mut c_void)>;

/// Who hears.
#[derive(Clone, Copy)]
struct Listener {
    level: LevelFilter,
    callback: unsafe extern "C" fn(i32, *const c_char, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the pointer is the caller's, who promised that any thread may hand it to the callback.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

/// Has a function hear of everything up to a level, of all models, in the place of the one before it.
/// NULL or `TABLA_LOG_OFF`: nobody does, as at first. When this returns, the one before it is not called
/// any more: it waits for calls that are under way.
///
/// # Safety
///
/// `callback` is NULL or a function that any thread may call with `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_set_log_callback(
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
            // Where a program in Rust listens for itself, it goes on to.
            let _ = tracing::subscriber::set_global_default(Lines);
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
            "level {other} is none of 0 (off), 1 (error), 2 (warn), 3 (info), 4 (debug)"
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

/// Makes a line of every event.
struct Lines;

impl Subscriber for Lines {
    /// Who listens changes: nothing is settled for good.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let listener = LISTENER.read_recursive();
        metadata.is_event()
            && !CALLING.get()
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
        // Held during the call, so that nobody is called once somebody else listens.
        let listener = LISTENER.read_recursive();
        let level = event.metadata().level();
        if let Some(to) = listener.filter(|to| *level <= to.level) {
            let outer = CALLING.replace(true);
            // SAFETY: the caller's function, with text that lives through the call.
            unsafe { (to.callback)(code(*level), text.as_ptr(), to.user_data) };
            CALLING.set(outer);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message first, and every other field as `name=value`.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}
