//! Standard output, standard error, progress bars and Ctrl-C.

use super::failure::{EXIT_INTERRUPTED, Failure};
use anstream::{AutoStream, ColorChoice};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tabla::Cancel;

/// Escape sequence: bold red. `anstream` removes escape sequences if colors are not supported.
pub(crate) const RED: &str = "\x1b[1;31m";
/// Escape sequence: dim, for text that the model did not generate.
pub(crate) const DIM: &str = "\x1b[2m";
/// Escape sequence: reset.
pub(crate) const PLAIN: &str = "\x1b[0m";

/// Maximum size of an answer in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 10;

/// Delay before a progress bar is shown.
const BAR_DELAY: Duration = Duration::from_millis(300);

/// Writes to standard output without flushing.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(Failure::output)
}

/// Writes a line to standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    write(text)?;
    write("\n")
}

/// Flushes standard output.
pub(crate) fn flush() -> Result<(), Failure> {
    io::stdout().flush().map_err(Failure::output)
}

/// Writes to standard output, above the progress bar if there is one, and flushes.
pub(crate) fn write_above_bar(text: &str) -> Result<(), Failure> {
    let write = || write(text).and_then(|()| flush());
    match &*BAR.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Whether standard error gets errors only.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Suppresses notes and progress bars.
pub(crate) fn set_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether notes and progress bars are suppressed.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes a line to standard error, unless it gets errors only.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        eprint_line(text);
    }
}

/// Writes a line to standard error, above the progress bar. Errors are ignored: there is no other
/// stream to report them to.
pub(crate) fn eprint_line(text: &str) {
    let write = || {
        let _ = writeln!(anstream::stderr(), "{text}");
    };
    match &*BAR.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Writes to standard error without a line end.
pub(crate) fn eprint(text: &str) {
    let mut stream = anstream::stderr();
    let _ = write!(stream, "{text}");
    let _ = stream.flush();
}

/// Reads the answer to a question from standard input, without spaces around it; empty at its end.
pub(crate) fn answer() -> Result<String, Failure> {
    Ok(answer_or_end()?.unwrap_or_default())
}

/// Reads the answer to a question from standard input, without spaces around it; `None` at its end.
pub(crate) fn answer_or_end() -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let read = io::stdin()
        .lock()
        .take(ANSWER_BYTES_MAX)
        .read_line(&mut line);
    let bytes = read.map_err(|cause| Failure::Program {
        message: "cannot read standard input".to_string(),
        cause: Some(cause),
    })?;
    Ok((bytes > 0).then(|| line.trim().to_string()))
}

/// Whether standard output is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard output is a terminal that supports colors, and `NO_COLOR` is not set.
pub(crate) fn stdout_has_colors() -> bool {
    stdout_is_terminal() && AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Number of columns of the terminal of standard output; `None` if unknown.
pub(crate) fn stdout_columns() -> Option<usize> {
    let (columns, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(columns.0)).filter(|columns| *columns > 0)
}

/// Number of columns of the terminal of standard error; `None` if unknown.
pub(crate) fn stderr_columns() -> Option<usize> {
    let (columns, _) = terminal_size::terminal_size_of(io::stderr())?;
    Some(usize::from(columns.0)).filter(|columns| *columns > 0)
}

/// Whether standard error is a terminal.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Replaces control characters other than line ends and tabs. Names in files and generated text are
/// untrusted: escape sequences must not reach a terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_safe = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    let shown = |c| {
        if is_safe(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Returns the text as one line, with control characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// Formats a number of bytes: `3.14 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{n} B")
    } else {
        format!("{value:.2} {}", units[unit])
    }
}

/// Formats a count: `3.40 M`.
pub(crate) fn count(n: u64) -> String {
    let value = n as f64;
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.2} K", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", value / 1e6),
        _ => format!("{:.2} B", value / 1e9),
    }
}

/// Formats a number of things: `1 thread`, `2 threads`.
pub(crate) fn counted(n: impl TryInto<u64>, thing: &str) -> String {
    match n.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {thing}"),
        n => format!("{n} {thing}s"),
    }
}

/// The current progress bar.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A progress bar on standard error. It is shown after [`BAR_DELAY`], and only on a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Dropping it ends the thread that shows the bar after the delay.
    ended: Option<Sender<()>>,
    delay_thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Creates a bar with a number of steps.
    pub(crate) fn new(message: &str, steps: u64) -> Self {
        Self::styled(message, steps, "{msg} {wide_bar} {pos}/{len}")
    }

    /// Creates a bar of a download that resumes at byte `start`.
    pub(crate) fn of_bytes(message: &str, start: u64, bytes: u64) -> Self {
        let style =
            "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        let progress = Self::styled(message, bytes, style);
        progress.set_position(start);
        progress.bar.reset_eta();
        progress
    }

    fn styled(message: &str, steps: u64, style: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(one_line(message));
        *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        let (ended, receiver) = channel::<()>();
        let shown = bar.clone();
        let is_shown = stderr_is_terminal() && !is_quiet();
        let show = move || {
            if receiver.recv_timeout(BAR_DELAY) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(BAR_DELAY);
            }
        };
        // If the thread cannot be started, the bar is not shown.
        let thread = is_shown.then(|| tabla::reserve::thread("tabla-progress"));
        let delay_thread = thread.and_then(|thread| thread.ok()?.spawn(show).ok());
        Self {
            bar,
            ended: Some(ended),
            delay_thread,
        }
    }

    /// Replaces the message.
    pub(crate) fn set_message(&self, message: &str) {
        self.bar.set_message(one_line(message));
    }

    /// Number of finished steps.
    pub(crate) fn position(&self) -> u64 {
        self.bar.position()
    }

    /// Sets the total number of steps.
    pub(crate) fn set_length(&self, steps: u64) {
        self.bar.set_length(steps);
    }

    /// Adds to the total number of steps and to the number of finished ones.
    pub(crate) fn advance(&self, total: u64, finished: u64) {
        self.bar.inc_length(total);
        self.bar.inc(finished);
    }

    /// Sets the number of finished steps.
    pub(crate) fn set_position(&self, steps: u64) {
        self.bar.set_position(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.delay_thread.take() {
            // A failure to draw the bar is ignored.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
        *BAR.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether the user pressed Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// What the first Ctrl-C stops. Outer `None`: nothing, it exits. Inner `None`: work without a session,
/// which polls [`interrupted`].
static RUNNING: Mutex<Option<Option<Cancel>>> = Mutex::new(None);
/// Whether the Ctrl-C handler is installed.
static HANDLER_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether the first Ctrl-C makes the program ignore others for [`REPEAT_DELAY`].
static IGNORES_REPEATS: AtomicBool = AtomicBool::new(false);
/// Until when Ctrl-C is ignored.
static IGNORED_UNTIL: Mutex<Option<Instant>> = Mutex::new(None);

/// Time after a Ctrl-C in which others may repeat it.
const REPEAT_DELAY: Duration = Duration::from_secs(1);

/// Ignores Ctrl-C for a second after one that stopped something: a key that is pressed twice must not
/// end a conversation.
pub(crate) fn ignore_repeated_interrupts() {
    IGNORES_REPEATS.store(true, Ordering::Relaxed);
}

/// Makes the first Ctrl-C cancel this session, or set [`interrupted`] without a session. A second
/// Ctrl-C exits.
pub(crate) fn catch_interrupt(cancel: impl Into<Option<Cancel>>) -> Result<(), Failure> {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel.into());
    if HANDLER_INSTALLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    ctrlc::set_handler(handle_interrupt)
        .map_err(|error| Failure::new(format!("cannot install the Ctrl-C handler: {error}")))
}

fn handle_interrupt() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ignored_until = IGNORED_UNTIL.lock().unwrap_or_else(PoisonError::into_inner);
    if ignored_until.is_some_and(|until| Instant::now() < until) {
        return;
    }
    match &*running {
        Some(session) if !INTERRUPTED.swap(true, Ordering::Relaxed) => {
            if IGNORES_REPEATS.load(Ordering::Relaxed) {
                *ignored_until = Some(Instant::now() + REPEAT_DELAY);
            }
            session.iter().for_each(Cancel::cancel);
        }
        _ => exit_interrupted(),
    }
}

/// Makes the first Ctrl-C exit again.
pub(crate) fn release_interrupt() {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = None;
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// Whether the user pressed Ctrl-C since [`catch_interrupt`].
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

#[expect(
    clippy::exit,
    reason = "the second Ctrl-C must not wait for a device that hangs"
)]
fn exit_interrupted() {
    std::process::exit(i32::from(EXIT_INTERRUPTED));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_bytes_and_counts() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3_287_552), "3.14 MiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
        assert_eq!(count(999), "999");
        assert_eq!(count(6_740_000_000), "6.74 B");
    }

    #[test]
    fn counts_things() {
        assert_eq!(counted(1_u32, "thread"), "1 thread");
        assert_eq!(counted(0_usize, "thread"), "0 threads");
        assert_eq!(counted(u64::MAX, "token"), "18446744073709551615 tokens");
    }

    #[test]
    fn escape_sequences_do_not_reach_a_terminal() {
        assert_eq!(printable("a\tb\n"), "a\tb\n");
        assert_eq!(printable("\x1b[2Jx\u{9b}"), "\u{fffd}[2Jx\u{fffd}");
        assert_eq!(one_line("a\nb\x1b"), "a\\nb\\u{1b}");
    }
}
