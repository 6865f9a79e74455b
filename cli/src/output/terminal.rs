//! The two streams of the program, its progress bars, and Ctrl-C.

use super::failure::{EXIT_INTERRUPTED, Failure};
use anstream::{AutoStream, ColorChoice};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tabla::Cancel;

/// Escape sequences; `anstream` drops them where nobody would see colours.
pub(crate) const RED: &str = "\x1b[1;31m";
/// Dim text: what is not the model's.
pub(crate) const DIM: &str = "\x1b[2m";
/// Back to normal.
pub(crate) const PLAIN: &str = "\x1b[0m";

/// A bar appears only when there is this much to wait for.
const PATIENCE: Duration = Duration::from_millis(300);

/// Writes to standard output; nothing is flushed.
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

/// Sends what was written on its way.
pub(crate) fn flush() -> Result<(), Failure> {
    io::stdout().flush().map_err(Failure::output)
}

/// Says a line on standard error, above a bar that stands there. Where even that fails, nobody is
/// there to be told.
pub(crate) fn note(text: &str) {
    let say = || {
        let _ = writeln!(anstream::stderr(), "{text}");
    };
    match &*BAR.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(say),
        None => say(),
    }
}

/// Says something on standard error without ending the line.
pub(crate) fn aside(text: &str) {
    let mut stream = anstream::stderr();
    let _ = write!(stream, "{text}");
    let _ = stream.flush();
}

/// Whether standard output is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard output is a terminal that shows colours to someone who wants them.
pub(crate) fn stdout_has_colours() -> bool {
    stdout_is_terminal() && AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Whether standard error is a terminal.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// The text without control characters other than line ends and tabs: names in files and text
/// of models come from strangers, and a terminal obeys escape sequences.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let shown = |c| {
        if harmless(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// The text as one line: control characters escaped.
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

/// `3.1 MiB`.
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

/// `3.4 M`: a count in the short form of models' names.
pub(crate) fn count(n: u64) -> String {
    let value = n as f64;
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.2} K", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", value / 1e6),
        _ => format!("{:.2} B", value / 1e9),
    }
}

/// The bar that began last.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A bar on standard error that appears after [`PATIENCE`], and never where no terminal is.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Dropping it ends the thread that waits to show the bar.
    ended: Option<Sender<()>>,
    waiting: Option<JoinHandle<()>>,
}

impl Progress {
    /// A bar of so many steps.
    pub(crate) fn new(what: &str, steps: u64) -> Self {
        Self::styled(what, steps, "{msg} {wide_bar} {pos}/{len}")
    }

    /// A bar of so many bytes, some of which are there already.
    pub(crate) fn of_bytes(what: &str, there: u64, bytes: u64) -> Self {
        let style =
            "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        let progress = Self::styled(what, bytes, style);
        progress.at(there);
        progress.bar.reset_eta();
        progress
    }

    fn styled(what: &str, steps: u64, style: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(one_line(what));
        *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        let (ended, wait) = channel::<()>();
        let shown = bar.clone();
        let waiting = stderr_is_terminal().then(|| {
            std::thread::spawn(move || {
                if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    shown.set_draw_target(ProgressDrawTarget::stderr());
                    shown.enable_steady_tick(PATIENCE);
                }
            })
        });
        Self {
            bar,
            ended: Some(ended),
            waiting,
        }
    }

    /// Says something else in front of the bar.
    pub(crate) fn says(&self, what: &str) {
        self.bar.set_message(one_line(what));
    }

    /// How many steps are done.
    pub(crate) fn position(&self) -> u64 {
        self.bar.position()
    }

    /// There are so many steps in all.
    pub(crate) fn of(&self, steps: u64) {
        self.bar.set_length(steps);
    }

    /// So many steps are done.
    pub(crate) fn at(&self, steps: u64) {
        self.bar.set_position(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.waiting.take() {
            // A bar that could not be drawn is nobody's problem.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
        *BAR.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether the user pressed Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// What Ctrl-C stops: some work, and the session that does it where one does.
static RUNNING: Mutex<Option<Option<Cancel>>> = Mutex::new(None);
/// Whether anybody listens to Ctrl-C.
static CAUGHT: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C stops this session, or sets [`interrupted`] where there is none, and only a
/// second one ends the program. Before, the first one does.
pub(crate) fn catch_interrupt(cancel: impl Into<Option<Cancel>>) -> Result<(), Failure> {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel.into());
    if CAUGHT.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Some(session) if !INTERRUPTED.swap(true, Ordering::Relaxed) => {
                session.iter().for_each(Cancel::cancel);
            }
            _ => end_at_once(),
        }
    })
    .map_err(|error| Failure::new(format!("cannot catch Ctrl-C: {error}")))
}

/// From here on the first Ctrl-C ends the program again.
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
fn end_at_once() {
    std::process::exit(i32::from(EXIT_INTERRUPTED));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3_287_552), "3.14 MiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
        assert_eq!(count(999), "999");
        assert_eq!(count(6_740_000_000), "6.74 B");
    }

    #[test]
    fn escape_sequences_do_not_reach_a_terminal() {
        assert_eq!(printable("a\tb\n"), "a\tb\n");
        assert_eq!(printable("\x1b[2Jx\u{9b}"), "\u{fffd}[2Jx\u{fffd}");
        assert_eq!(one_line("a\nb\x1b"), "a\\nb\\u{1b}");
    }
}
