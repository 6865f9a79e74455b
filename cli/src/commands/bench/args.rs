//! LoadOptions of `tabla bench`.

use crate::args::{DeviceArgs, ModelArg};
use clap::{Args, ValueEnum};
use tabla::SEQUENCES_MAX;

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Lengths of prompts to process; 0: none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_values_t = [512])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_prompt: Vec<u32>,
    /// Numbers of tokens to generate; 0: none
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_values_t = [128])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_gen: Vec<u32>,
    /// Tokens in front of each test, which are not timed
    #[arg(short = 'd', long, value_name = "N", value_delimiter = ',', default_values_t = [0])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_depth: Vec<u32>,
    /// Numbers of sequences that generate together, each behind tokens of its own; in place of the
    /// other tests [short: -npl]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        conflicts_with = "commands"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SEQUENCES_MAX)))]
    pub(crate) n_parallel: Vec<u32>,
    /// Times every command of the tables, and on a CPU holds it against memory and
    /// arithmetic (not in CSV)
    #[arg(long)]
    pub(crate) commands: bool,
    /// How often each test is repeated
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: u32,
    /// Measures the first repetition cold
    #[arg(long)]
    pub(crate) no_warmup: bool,
    /// Form of the results
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Form::Md)]
    pub(crate) output: Form,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Form of a benchmark's results.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Form {
    /// A Markdown table
    Md,
    /// One JSON array
    Json,
    /// A JSON object per line
    Jsonl,
    /// Comma-separated values
    Csv,
}
