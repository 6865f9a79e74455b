//! `tabla`: tells a story, runs the user's model, and shows what the library makes of a file.
//!
//! Standard output carries results and nothing else; whatever is said about them goes to standard
//! error.

mod args;
mod commands;
mod hub;
mod output;

use clap::Parser;
use commands::Cli;
use output::report::print_failure;
use output::{terminal, warnings};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse_from(args::spelt_out(std::env::args_os()));
    if !cli.is_quiet() {
        warnings::show();
    }
    let done = cli.execute();
    // What was written goes out even where something failed behind it.
    let flushed = terminal::flush();
    match done.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}
