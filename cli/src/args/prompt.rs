//! The prompt: an option, a file, or standard input.
//!
//! As in `llm`, piped text is prepended to the prompt of the command line. Standard input that is
//! open but silent (service managers, CI runners, editors) must not block a run that already has a
//! prompt, so such a run waits at most [`STDIN_TIMEOUT`] for the first byte.

use super::{escapes, text_file};
use crate::output::{Failure, terminal};
use clap::Args;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tabla::text::{EncodeOptions, SpecialTokens};

/// Timeout for the first byte of standard input if there is another prompt.
const STDIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Default prompt of the built-in model.
pub(crate) const STORY: &str = "Once upon a time";

/// The prompt.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct PromptArgs {
    /// Prompt; text on standard input is prepended
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) prompt: Option<String>,
    /// File with the prompt; "-" reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Replace the escape sequences \n, \r, \t, \', \", \\ and \xHH in -p and -f
    #[arg(short, long)]
    escape: bool,
    /// Parse special tokens in the prompt
    #[arg(long)]
    parse_special: bool,
}

impl PromptArgs {
    /// Returns how the prompt is tokenized. A BOS token is added if the model has one.
    pub(crate) fn encode(&self) -> EncodeOptions {
        EncodeOptions::default()
            .add_special(true)
            .specials(if self.parse_special {
                SpecialTokens::Tokens
            } else {
                SpecialTokens::Text
            })
    }
}

/// Reads the prompt; `default` is used if none is given.
pub(crate) fn read(args: &PromptArgs, default: Option<&str>) -> Result<String, Failure> {
    let plain = |text: String| match args.escape {
        true => escapes::replace(&text),
        false => Ok(text),
    };
    if let Some(path) = &args.file {
        return if path == Path::new("-") {
            stdin_to_end()
        } else {
            plain(file(path)?)
        };
    }
    let given = args.prompt.clone().map(plain).transpose()?;
    let fallback = given.as_deref().or(default);
    let piped = if io::stdin().is_terminal() {
        None
    } else {
        let silence = match fallback {
            Some(_) => OnSilence::Continue,
            None => OnSilence::Wait,
        };
        stdin(silence)?.filter(|text| !text.is_empty())
    };
    match (piped, given, default) {
        (Some(piped), Some(given), _) => Ok(format!("{piped} {given}")),
        (Some(text), None, _) => Ok(text),
        (None, Some(given), _) => Ok(given),
        (None, None, Some(default)) => Ok(default.to_string()),
        (None, None, None) => Err(Failure::Usage(
            "no prompt: use -p TEXT, -f FILE, or text on standard input".to_string(),
        )),
    }
}

/// Reads standard input to its end.
pub(crate) fn stdin_to_end() -> Result<String, Failure> {
    Ok(stdin(OnSilence::Wait)?.unwrap_or_default())
}

/// Reads a text file.
pub(crate) fn file(path: &Path) -> Result<String, Failure> {
    Ok(without_line_end(text_file::read(path)?))
}

/// Behaviour if standard input has no data within [`STDIN_TIMEOUT`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnSilence {
    Wait,
    Continue,
}

/// Reads standard input to its end. Returns `None` after a timeout with [`OnSilence::Continue`].
fn stdin(on_silence: OnSilence) -> Result<Option<String>, Failure> {
    let bytes = match first_byte() {
        FirstByte::Timeout(_) if on_silence == OnSilence::Continue => return Ok(None),
        FirstByte::Timeout(receiver) => {
            terminal::note("reading standard input (press Ctrl-D to end)");
            receiver.recv().unwrap_or_else(|_| Ok(Vec::new()))
        }
        FirstByte::Read(first) => first,
    };
    let fail = |cause| Failure::Program {
        message: "cannot read standard input".to_string(),
        cause: Some(cause),
    };
    let mut bytes = bytes.map_err(fail)?;
    if !bytes.is_empty() {
        bytes.extend(text_file::bytes(io::stdin()).map_err(fail)?);
    }
    let text = text_file::decode(bytes, "standard input")?;
    Ok(Some(without_line_end(text)))
}

/// The first byte of standard input.
enum FirstByte {
    /// The first byte, or no bytes at the end of the input.
    Read(io::Result<Vec<u8>>),
    /// No data within [`STDIN_TIMEOUT`]; the receiver gets the first byte later.
    Timeout(Receiver<io::Result<Vec<u8>>>),
}

fn first_byte() -> FirstByte {
    let (send, receive) = channel();
    // The read cannot be cancelled: the thread may run until the process exits.
    let read = move || {
        let mut first = Vec::with_capacity(1);
        let read = io::stdin().take(1).read_to_end(&mut first);
        // The receiver is dropped after a timeout.
        let _ = send.send(read.map(|_| first));
    };
    let thread = tabla::reserve::thread("tabla-stdin").and_then(|thread| thread.spawn(read));
    if let Err(error) = thread {
        return FirstByte::Read(Err(error));
    }
    match receive.recv_timeout(STDIN_TIMEOUT) {
        Ok(first) => FirstByte::Read(first),
        Err(RecvTimeoutError::Timeout) => FirstByte::Timeout(receive),
        Err(RecvTimeoutError::Disconnected) => FirstByte::Read(Ok(Vec::new())),
    }
}

/// Removes one line end, which editors and `echo` append.
fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_one_line_end() {
        for (text, expected) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("", "")] {
            assert_eq!(without_line_end(text.to_string()), expected);
        }
    }
}
