//! Prints the error that ended a command and returns its exit code.

use super::failure::{EXIT_INTERRUPTED, Failure};
use super::terminal;
use std::error::Error;
use std::process::ExitCode;

/// Prints an error on standard error and returns the exit code.
pub(crate) fn print_failure(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Library(error) => say(error.message(), error.source()),
        Failure::Program { message, cause } => {
            say(message, cause.as_ref().map(|c| c as &dyn Error));
        }
        Failure::Usage(message) => {
            say(message, None);
            return ExitCode::from(2);
        }
        Failure::Interrupted => return ExitCode::from(EXIT_INTERRUPTED),
        Failure::Closed => return ExitCode::SUCCESS,
    }
    ExitCode::FAILURE
}

/// `error: message`, and a line for each cause that the message does not already quote.
fn say(message: &str, mut cause: Option<&dyn Error>) {
    let mut said = terminal::one_line(message);
    terminal::note(&format!(
        "{}error:{} {said}",
        terminal::RED,
        terminal::PLAIN
    ));
    while let Some(error) = cause {
        let text = error.to_string();
        for (at, line) in text.lines().enumerate() {
            let line = terminal::one_line(line);
            if !said.contains(&line) {
                let lead = if at == 0 { "because" } else { "       " };
                terminal::note(&format!("  {lead} {line}"));
            }
        }
        said = text;
        cause = error.source();
    }
}
