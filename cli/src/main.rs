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

use clap::FromArgMatches;
use commands::Cli;
use output::report::print_failure;
use output::{terminal, warnings};
use std::process::ExitCode;

/// Allocations that fail become errors of the requests and commands that need too much memory.
#[global_allocator]
static ALLOCATOR: tabla::reserve::Reserve = tabla::reserve::Reserve::new(std::alloc::System);

fn main() -> ExitCode {
    environment::disable_device_select();
    // Elsewhere, a truncated file ends the process.
    let _ = tabla::format::catch_file_faults();
    let mut command = commands::command();
    command.build();
    let rewritten = match args::llama_cpp::rewrite(std::env::args_os(), &command) {
        Ok(rewritten) => rewritten,
        Err(failure) => return print_failure(&failure),
    };
    let matches = command.get_matches_from(rewritten.args);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if commands::is_quiet(&matches) {
        terminal::set_quiet();
    } else {
        warnings::enable();
    }
    rewritten.notes.iter().for_each(|note| terminal::note(note));
    let result = cli.execute();
    // Output that precedes an error is written too.
    let flushed = terminal::flush();
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}
