//! `tabla`: the command-line program.
//!
//! Results go to standard output, everything else to standard error.

mod args;
mod commands;
mod environment;
mod hub;
mod output;
#[cfg(test)]
mod reference;

use clap::Parser;
use commands::Cli;
use output::report::print_failure;
use output::{terminal, warnings};
use std::process::ExitCode;

fn main() -> ExitCode {
    environment::disable_device_select();
    let cli = Cli::parse_from(args::expand_short_options(std::env::args_os()));
    if !cli.is_quiet() {
        warnings::enable();
    }
    let result = cli.execute();
    // Output that precedes an error is written too.
    let flushed = terminal::flush();
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}
