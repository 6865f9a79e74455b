//! Where the prompt comes from: an option, a file, standard input.
//!
//! As in `llm`, text that is piped in and a prompt on the command line are joined. Standard input
//! that is open but silent (a service, a runner, an editor) must not hang a run that has a prompt
//! already, so that such a run waits [`PATIENCE`] for the first byte and no longer.

use crate::output::{Failure, terminal};
use clap::Args;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tabla::text::{EncodeOptions, SpecialTokens};

/// How long standard input may stay silent where there is something to do without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of a prompt at most.
const PROMPT_BYTES_MAX: u64 = 64 << 20;

/// Prompt of the built-in model where the user gives none.
pub(crate) const STORY: &str = "Once upon a time";

/// The text to go on from.
#[derive(Args, Debug)]
pub(crate) struct PromptArgs {
    /// The prompt; text on standard input is joined in front of it
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) prompt: Option<String>,
    /// Reads the prompt from a file, or from standard input for "-"
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Takes special tokens that are spelt out in the prompt for what they are
    #[arg(long)]
    special: bool,
}

impl PromptArgs {
    /// How the prompt becomes tokens: it begins a text.
    pub(crate) fn encode(&self) -> EncodeOptions {
        EncodeOptions {
            add_special: true,
            specials: if self.special {
                SpecialTokens::Tokens
            } else {
                SpecialTokens::Text
            },
        }
    }
}

/// The prompt; `default` takes the place of one that nobody gave.
pub(crate) fn read(args: &PromptArgs, default: Option<&str>) -> Result<String, Failure> {
    if let Some(path) = &args.file {
        return if path == Path::new("-") {
            stdin_to_end()
        } else {
            file(path)
        };
    }
    let fallback = args.prompt.as_deref().or(default);
    let piped = if io::stdin().is_terminal() {
        None
    } else {
        let silence = match fallback {
            Some(_) => OnSilence::GoOn,
            None => OnSilence::Wait,
        };
        stdin(silence)?.filter(|text| !text.is_empty())
    };
    match (piped, args.prompt.as_deref(), default) {
        (Some(piped), Some(given), _) => Ok(format!("{piped} {given}")),
        (Some(text), None, _) => Ok(text),
        (None, Some(given), _) => Ok(given.to_string()),
        (None, None, Some(default)) => Ok(default.to_string()),
        (None, None, None) => Err(Failure::Usage(
            "no prompt: give -p TEXT, -f FILE, or text on standard input".to_string(),
        )),
    }
}

/// Standard input to its end.
pub(crate) fn stdin_to_end() -> Result<String, Failure> {
    Ok(stdin(OnSilence::Wait)?.unwrap_or_default())
}

/// A file of text.
pub(crate) fn file(path: &Path) -> Result<String, Failure> {
    let fail = |cause| Failure::file("read", path, cause);
    let opened = std::fs::File::open(path).map_err(fail)?;
    let bytes = read_limited(opened).map_err(fail)?;
    text(bytes, &path.display().to_string())
}

/// What to do about a standard input that stays silent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnSilence {
    Wait,
    GoOn,
}

/// Standard input to its end; `None` where it stayed silent and that will do.
fn stdin(on_silence: OnSilence) -> Result<Option<String>, Failure> {
    let bytes = match first_byte() {
        Heard::Silence(_) if on_silence == OnSilence::GoOn => return Ok(None),
        Heard::Silence(wait) => {
            terminal::note("waiting for text on standard input (Ctrl-D ends it)");
            wait.recv().unwrap_or_else(|_| Ok(Vec::new()))
        }
        Heard::First(first) => first,
    };
    let fail = |cause| Failure::Program {
        message: "cannot read standard input".to_string(),
        cause: Some(cause),
    };
    let mut bytes = bytes.map_err(fail)?;
    if !bytes.is_empty() {
        bytes.extend(read_limited(io::stdin()).map_err(fail)?);
    }
    text(bytes, "standard input").map(Some)
}

/// What standard input had to say within [`PATIENCE`].
enum Heard {
    /// Its first byte, or none at its end.
    First(io::Result<Vec<u8>>),
    /// Nothing so far; the first byte will come here.
    Silence(Receiver<io::Result<Vec<u8>>>),
}

fn first_byte() -> Heard {
    let (send, receive) = channel();
    // The thread outlives a silent standard input; the end of the program ends it.
    std::thread::spawn(move || {
        let mut first = Vec::with_capacity(1);
        let read = io::stdin().take(1).read_to_end(&mut first);
        // Nobody listens any more where the wait was given up.
        let _ = send.send(read.map(|_| first));
    });
    match receive.recv_timeout(PATIENCE) {
        Ok(first) => Heard::First(first),
        Err(RecvTimeoutError::Timeout) => Heard::Silence(receive),
        Err(RecvTimeoutError::Disconnected) => Heard::First(Ok(Vec::new())),
    }
}

fn read_limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(PROMPT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PROMPT_BYTES_MAX {
        let message = format!("it is over {} MiB", PROMPT_BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The bytes as text, without the line end that an editor or `echo` put behind it.
fn text(bytes: Vec<u8>, whence: &str) -> Result<String, Failure> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{whence} is no UTF-8 text: byte {at}"))
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_goes() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(text(bytes.to_vec(), "x").expect("it is text"), expected);
        };
        check(b"a\n", "a");
        check(b"a\r\n", "a");
        check(b"a\n\n", "a\n");
        check(b"", "");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_place() {
        let failure = text(b"ab\xff".to_vec(), "x").expect_err("0xff is no UTF-8");
        assert!(format!("{failure:?}").contains("byte 2"), "{failure:?}");
    }
}
