//! The commands of the program and how one is picked.

use crate::bench::BenchArgs;
use crate::chat::ChatArgs;
use crate::convert::ConvertArgs;
use crate::devices::DevicesArgs;
use crate::embed::EmbedArgs;
use crate::inspect::InspectArgs;
use crate::logits::LogitsArgs;
use crate::perplexity::PerplexityArgs;
use crate::pull::PullArgs;
use crate::quantize::QuantizeArgs;
use crate::rerank::RerankArgs;
use crate::run::RunArgs;
use crate::table::TableArgs;
use crate::tokenize::{DetokenizeArgs, TokenizeArgs};
use crate::trace::TraceArgs;
use crate::tune::TuneArgs;
use clap::{Parser, Subcommand};

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
    Embed(EmbedArgs),
    /// Ranks documents by how well they answer a query
    Rerank(RerankArgs),
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
