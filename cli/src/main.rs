//! `tabla`: tells a story, runs the user's model, and shows what the library makes of a file.
//!
//! One file per command. Standard output carries results and nothing else; whatever is said about
//! them goes to standard error.

mod args;
mod bench;
mod chat;
mod commands;
mod convert;
mod devices;
mod embed;
mod hub;
mod inspect;
mod logits;
mod open;
mod output;
mod perplexity;
mod probe;
mod pull;
mod quantize;
mod rerank;
mod roofline;
mod run;
mod table;
mod tokenize;
mod trace;
mod tune;

use clap::Parser;
use commands::{Cli, Command};
use output::report::print_failure;
use output::{terminal, warnings};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse_from(args::spelt_out(std::env::args_os()));
    let quiet = match &cli.command {
        None => cli.run.quiet,
        Some(Command::Run(args)) => args.quiet,
        Some(Command::Chat(args)) => args.quiet,
        Some(_) => false,
    };
    if !quiet {
        warnings::show();
    }
    let done = match &cli.command {
        None => run::run(&cli.run),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Chat(args)) => chat::run(args),
        Some(Command::Inspect(args)) => inspect::run(args),
        Some(Command::Table(args)) => table::run(args),
        Some(Command::Devices(args)) => devices::run(args),
        Some(Command::Logits(args)) => logits::run(args),
        Some(Command::Embed(args)) => embed::run(args),
        Some(Command::Rerank(args)) => rerank::run(args),
        Some(Command::Perplexity(args)) => perplexity::run(args),
        Some(Command::Tokenize(args)) => tokenize::encode(args),
        Some(Command::Detokenize(args)) => tokenize::decode(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Trace(args)) => trace::run(args),
        Some(Command::Tune(args)) => tune::run(args),
        Some(Command::Pull(args)) => pull::run(args),
        Some(Command::Quantize(args)) => quantize::run(args),
        Some(Command::Convert(args)) => convert::run(args),
    };
    // What was written goes out even where something failed behind it.
    let flushed = terminal::flush();
    match done.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}
