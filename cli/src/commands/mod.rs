//! The commands, each with a file or folder.

mod bench;
pub(crate) mod chat;
mod classify;
mod common;
mod compile;
mod completions;
mod convert;
mod devices;
mod embed;
mod inspect;
mod lens;
mod list;
mod logits;
mod man;
mod perplexity;
mod probe;
mod pull;
mod quantize;
mod rerank;
mod rm;
mod run;
mod serve;
mod show;
mod table;
mod tokenize;
mod trace;
mod transcribe;
mod tune;

use crate::output::Failure;
use bench::BenchArgs;
use chat::ChatArgs;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, Parser, Subcommand};
use classify::ClassifyArgs;
use compile::CompileArgs;
use completions::CompletionsArgs;
use convert::ConvertArgs;
use devices::DevicesArgs;
use embed::EmbedArgs;
use inspect::InspectArgs;
use lens::LensArgs;
use list::ListArgs;
use logits::LogitsArgs;
use man::ManArgs;
use perplexity::PerplexityArgs;
use probe::ProbeArgs;
use pull::PullArgs;
use quantize::QuantizeArgs;
use rerank::RerankArgs;
use rm::RmArgs;
use run::RunArgs;
use serve::ServeArgs;
use show::ShowArgs;
use table::TableArgs;
use tokenize::{DetokenizeArgs, TokenizeArgs};
use trace::TraceArgs;
use transcribe::TranscribeArgs;
use tune::TuneArgs;

/// Run language models from GGUF and safetensors files
///
/// Without a command, tabla generates text from a prompt, as `tabla run` does. Without a model, it uses the built-in story model.
#[derive(Debug, Parser)]
#[command(name = "tabla", version, args_conflicts_with_subcommands = true)]
#[command(after_help = "Exit codes: 0 success, 1 error, 2 invalid arguments, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate text from a prompt
    Run(RunArgs),
    /// Chat with a model
    Chat(ChatArgs),
    /// Serve models over HTTP: the APIs of OpenAI and Anthropic, and a chat page
    Serve(ServeArgs),
    /// Show the metadata, tensors, tokenizer and memory requirements of a model
    Inspect(InspectArgs),
    /// Show the dispatch tables that a model compiles to, or compare their results
    Table(TableArgs),
    /// Compile a model to a file that opens in milliseconds
    Compile(CompileArgs),
    /// List the devices and their features
    Devices(DevicesArgs),
    /// Write the logits of a prompt to an .npy file
    Logits(LogitsArgs),
    /// Write values of the forward pass for a list of texts to .npy files
    Probe(ProbeArgs),
    /// Show the tokens that each layer of a model predicts (logit lens)
    Lens(LensArgs),
    /// Compute embeddings of texts
    Embed(EmbedArgs),
    /// Rank documents by their relevance to a query
    Rerank(RerankArgs),
    /// Classify texts, or pairs of texts
    Classify(ClassifyArgs),
    /// Transcribe speech to text or subtitles
    Transcribe(TranscribeArgs),
    /// Compute the perplexity of a text
    Perplexity(PerplexityArgs),
    /// Convert text to token ids
    Tokenize(TokenizeArgs),
    /// Convert token ids to text
    Detokenize(DetokenizeArgs),
    /// Benchmark prompt processing and text generation
    Bench(BenchArgs),
    /// Write a trace for Perfetto or Chrome, and print a roofline table
    Trace(TraceArgs),
    /// Select the fastest GPU kernels for a model by measurement
    Tune(TuneArgs),
    /// Download a model from the Hugging Face Hub and print its path
    Pull(PullArgs),
    /// List the downloaded models
    List(ListArgs),
    /// Show a summary of a model
    Show(ShowArgs),
    /// Delete downloaded models
    Rm(RmArgs),
    /// Quantize a model
    Quantize(QuantizeArgs),
    /// Convert between safetensors, GGUF and ggml
    Convert(ConvertArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(hide = true)]
    Man(ManArgs),
}

/// Names of values that are text. These values can begin with a hyphen, as in llama.cpp.
const TEXT_VALUES: [&str; 5] = ["TEXT", "NAME|FILE|TEXT", "GBNF", "JSON", "ID+BIAS"];

/// Whether the value of an option, or a positional argument, is text.
pub(crate) fn has_text(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    names
        .iter()
        .any(|name| TEXT_VALUES.contains(&name.as_str()))
}

/// Returns the command line: every command has `--quiet`, and every option can have a negative number.
/// The last of several values of an option applies, unless the option has a list.
pub(crate) fn command() -> clap::Command {
    complete(Cli::command())
        .max_term_width(100)
        .mut_subcommands(complete)
}

fn complete(command: clap::Command) -> clap::Command {
    let has = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    let has_short = command
        .get_arguments()
        .any(|arg| arg.get_short() == Some('q'));
    let quiet = Arg::new("quiet")
        .long("quiet")
        .action(ArgAction::SetTrue)
        .help_heading(None)
        .help("Print errors only to standard error");
    let command = match (has("quiet"), has_short) {
        (true, _) => command,
        (false, true) => command.arg(quiet),
        (false, false) => command.arg(quiet.short('q')),
    };
    command.args_override_self(true).mut_args(|arg| {
        let is_option = arg.get_short().is_some() || arg.get_long().is_some();
        match is_option && arg.get_action().takes_values() {
            true if has_text(&arg) => arg.allow_hyphen_values(true),
            true => arg.allow_negative_numbers(true),
            false => arg,
        }
    })
}

/// Whether standard error gets errors only.
pub(crate) fn is_quiet(matches: &ArgMatches) -> bool {
    let command = matches.subcommand().map_or(matches, |(_, matches)| matches);
    matches!(command.try_get_one("quiet"), Ok(Some(true)))
}

impl Cli {
    /// Runs the command.
    pub(crate) fn execute(&self) -> Result<(), Failure> {
        match &self.command {
            None => run::run(&self.run),
            Some(Command::Run(args)) => run::run(args),
            Some(Command::Chat(args)) => chat::run(args),
            Some(Command::Serve(args)) => serve::run(args),
            Some(Command::Inspect(args)) => inspect::run(args),
            Some(Command::Table(args)) => table::run(args),
            Some(Command::Compile(args)) => compile::run(args),
            Some(Command::Devices(args)) => devices::run(args),
            Some(Command::Logits(args)) => logits::run(args),
            Some(Command::Probe(args)) => probe::run(args),
            Some(Command::Lens(args)) => lens::run(args),
            Some(Command::Embed(args)) => embed::run(args),
            Some(Command::Rerank(args)) => rerank::run(args),
            Some(Command::Classify(args)) => classify::run(args),
            Some(Command::Transcribe(args)) => transcribe::run(args),
            Some(Command::Perplexity(args)) => perplexity::run(args),
            Some(Command::Tokenize(args)) => tokenize::encode(args),
            Some(Command::Detokenize(args)) => tokenize::decode(args),
            Some(Command::Bench(args)) => bench::run(args),
            Some(Command::Trace(args)) => trace::run(args),
            Some(Command::Tune(args)) => tune::run(args),
            Some(Command::Pull(args)) => pull::run(args),
            Some(Command::List(args)) => list::run(args),
            Some(Command::Show(args)) => show::run(args),
            Some(Command::Rm(args)) => rm::run(args),
            Some(Command::Quantize(args)) => quantize::run(args),
            Some(Command::Convert(args)) => convert::run(args),
            Some(Command::Completions(args)) => completions::run(args, command()),
            Some(Command::Man(args)) => man::run(args, command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    #[test]
    fn arguments_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn run_is_the_default_command() {
        let parse = |args: &[&str]| {
            let matches = command().try_get_matches_from(args)?;
            Cli::from_arg_matches(&matches)
        };
        let cli = parse(&["tabla", "-p", "hi", "-n", "-1"]).expect("valid arguments");
        assert!(cli.command.is_none());
        assert_eq!(cli.run.n_predict, -1);
        assert!(parse(&["tabla", "-n", "-3"]).is_err());
    }

    #[test]
    fn texts_can_begin_with_a_hyphen() {
        let texts = ["- a list", "-5 degrees", "-hello", "--help me", "---", "--"];
        let options = [
            &["tabla", "-p"][..],
            &["tabla", "run", "--stop"],
            &["tabla", "chat", "-p"],
            &["tabla", "chat", "--system-prompt"],
            &["tabla", "rerank", "-q"],
        ];
        for option in options {
            for text in texts {
                let args = [option, &[text]].concat();
                let matches = command().try_get_matches_from(&args);
                assert!(matches.is_ok(), "{args:?}");
            }
        }
        let empty = command().try_get_matches_from(["tabla", "--stop", ""]);
        let message = empty.expect_err("an empty stop string").to_string();
        assert!(message.contains("--stop"), "{message}");
        let positional = ["tabla", "tokenize", "--", "- hi"];
        assert!(command().try_get_matches_from(positional).is_ok());
        // The value of -p is -n.
        let forgotten = command().try_get_matches_from(["tabla", "-p", "-n", "5"]);
        assert!(
            forgotten
                .expect_err("5 is no option")
                .to_string()
                .contains("'5'")
        );
    }

    #[test]
    fn the_last_value_of_an_option_applies() {
        let args = [
            "tabla",
            "-q",
            "-q",
            "-n",
            "4",
            "-n",
            "5",
            "--stop",
            "a",
            "--stop",
            "b",
            "--temp",
            "0.5",
            "--temp=0.6",
            "--device",
            "gpu",
            "--device",
            "cpu",
            "-p",
            "x",
            "-p",
            "y",
        ];
        let matches = command()
            .try_get_matches_from(args)
            .expect("valid arguments");
        let cli = Cli::from_arg_matches(&matches).expect("valid arguments");
        assert_eq!(cli.run.n_predict, 5);
        assert_eq!(cli.run.prompt.prompt.as_deref(), Some("y"));
        let temp: Option<&f32> = matches.get_one("temp");
        assert_eq!(temp, Some(&0.6));
        let stops: Vec<&String> = matches.get_many("stop").expect("a list").collect();
        assert_eq!(stops, ["a", "b"]);
    }
}
