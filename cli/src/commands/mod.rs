//! The commands of the program: one file or folder for each.

mod bench;
mod chat;
mod common;
mod convert;
mod devices;
mod embed;
mod inspect;
mod logits;
mod perplexity;
mod pull;
mod quantize;
mod rerank;
mod run;
mod table;
mod tokenize;
mod trace;
mod tune;

use crate::output::Failure;
use bench::BenchArgs;
use chat::ChatArgs;
use clap::{Parser, Subcommand};
use convert::ConvertArgs;
use devices::DevicesArgs;
use embed::EmbedArgs;
use inspect::InspectArgs;
use logits::LogitsArgs;
use perplexity::PerplexityArgs;
use pull::PullArgs;
use quantize::QuantizeArgs;
use rerank::RerankArgs;
use run::RunArgs;
use table::TableArgs;
use tokenize::{DetokenizeArgs, TokenizeArgs};
use trace::TraceArgs;
use tune::TuneArgs;

/// Runs language models from the files you have.
///
/// Without a command it continues a prompt; without a model it tells a story of its own.
#[derive(Debug, Parser)]
#[command(name = "tabla", version, args_conflicts_with_subcommands = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continues a prompt
    Run(RunArgs),
    /// Answers a message, or holds a conversation
    Chat(ChatArgs),
    /// Shows what a file holds, what it needs and whether it runs here
    Inspect(InspectArgs),
    /// Shows the dispatch tables that a file compiles to
    Table(TableArgs),
    /// Lists the devices and what each can do
    Devices(DevicesArgs),
    /// Writes the logits after a prompt into an .npy file
    Logits(LogitsArgs),
    /// Turns texts into embeddings
    EmbedOptions(EmbedArgs),
    /// Ranks documents by how well they answer a query
    RerankOptions(RerankArgs),
    /// Says how well a model predicts a text
    Perplexity(PerplexityArgs),
    /// Turns text into token ids
    Tokenize(TokenizeArgs),
    /// Turns token ids into text
    Detokenize(DetokenizeArgs),
    /// Measures prompt processing and generation
    Bench(BenchArgs),
    /// Writes a trace of every command, for Perfetto or Chrome, and prints a roofline table
    Trace(TraceArgs),
    /// Times the kernels that could run a model on a GPU, and keeps the choice for every command
    Tune(TuneArgs),
    /// Fetches a model from the Hugging Face Hub and prints where it is
    Pull(PullArgs),
    /// Writes a model in smaller storage types
    Quantize(QuantizeArgs),
    /// Writes a model in another format: safetensors as GGUF, GGUF as safetensors
    Convert(ConvertArgs),
}

impl Cli {
    /// Whether only errors are printed on standard error.
    pub(crate) fn is_quiet(&self) -> bool {
        match &self.command {
            None => self.run.quiet,
            Some(Command::Run(args)) => args.quiet,
            Some(Command::Chat(args)) => args.quiet,
            Some(_) => false,
        }
    }

    /// Runs the command.
    pub(crate) fn execute(&self) -> Result<(), Failure> {
        match &self.command {
            None => run::run(&self.run),
            Some(Command::Run(args)) => run::run(args),
            Some(Command::Chat(args)) => chat::run(args),
            Some(Command::Inspect(args)) => inspect::run(args),
            Some(Command::Table(args)) => table::run(args),
            Some(Command::Devices(args)) => devices::run(args),
            Some(Command::Logits(args)) => logits::run(args),
            Some(Command::EmbedOptions(args)) => embed::run(args),
            Some(Command::RerankOptions(args)) => rerank::run(args),
            Some(Command::Perplexity(args)) => perplexity::run(args),
            Some(Command::Tokenize(args)) => tokenize::encode(args),
            Some(Command::Detokenize(args)) => tokenize::decode(args),
            Some(Command::Bench(args)) => bench::run(args),
            Some(Command::Trace(args)) => trace::run(args),
            Some(Command::Tune(args)) => tune::run(args),
            Some(Command::Pull(args)) => pull::run(args),
            Some(Command::Quantize(args)) => quantize::run(args),
            Some(Command::Convert(args)) => convert::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_what_happens_without_a_command() {
        let cli = Cli::try_parse_from(["tabla", "-p", "hi", "-n", "-1"]).expect("it parses");
        assert!(cli.command.is_none());
        assert_eq!(cli.run.n_predict, -1);
        assert!(Cli::try_parse_from(["tabla", "-n", "-2"]).is_err());
    }
}
