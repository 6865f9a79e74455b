//! Prints the error that ended a command and returns its exit code.

use super::failure::{EXIT_INTERRUPTED, Failure};
use super::terminal;
use std::error::Error;
use std::process::ExitCode;
use tabla::error::shorten;

/// Prints an error on standard error and returns the exit code.
pub(crate) fn print_failure(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Library(error) => print(error.message(), error.source()),
        Failure::Program { message, cause } => {
            print(message, cause.as_ref().map(|c| c as &dyn Error));
        }
        Failure::Usage(message) => {
            print(message, None);
            return ExitCode::from(2);
        }
        Failure::UsageWithHelp { message, help } => {
            print(message, None);
            for line in help {
                terminal::note(&terminal::one_line(line));
            }
            return ExitCode::from(2);
        }
        Failure::Interrupted => return ExitCode::from(EXIT_INTERRUPTED),
        Failure::Closed => return ExitCode::SUCCESS,
    }
    ExitCode::FAILURE
}

/// Prints `error: message`, then each cause that the message does not contain.
fn print(message: &str, mut cause: Option<&dyn Error>) {
    let mut printed = terminal::one_line(&shorten(message));
    terminal::eprint_line(&format!(
        "{}error:{} {printed}",
        terminal::RED,
        terminal::PLAIN
    ));
    while let Some(error) = cause {
        let text = shorten(&error.to_string()).into_owned();
        for (at, line) in text.lines().enumerate() {
            let line = terminal::one_line(line);
            if !printed.contains(&line) {
                let prefix = if at == 0 { "caused by:" } else { "          " };
                terminal::eprint_line(&format!("  {prefix} {line}"));
            }
        }
        printed = text;
        cause = error.source();
    }
}
