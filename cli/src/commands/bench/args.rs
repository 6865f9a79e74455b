//! Options of `tabla bench`.

use crate::args::{DeviceArgs, ModelArg};
use clap::{Args, ValueEnum};
use tabla::load::SEQUENCES_MAX;

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Prompt lengths; 0: no prompt test
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_values_t = [512])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_prompt: Vec<u32>,
    /// Numbers of tokens to generate; 0: no generation test [short: -ntg]
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_values_t = [128])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_gen: Vec<u32>,
    /// Numbers of tokens in the context before each test, which are not timed
    #[arg(short = 'd', long, value_name = "N", value_delimiter = ',', default_values_t = [0])]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(crate) n_depth: Vec<u32>,
    /// Numbers of parallel sequences; replaces the tests of one sequence [short: -npl]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        conflicts_with = "commands"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SEQUENCES_MAX)))]
    pub(crate) n_parallel: Vec<u32>,
    /// Time each command of the tables and print a roofline table (not in CSV)
    #[arg(long)]
    pub(crate) commands: bool,
    /// Repetitions of each test
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: u32,
    /// Skip the warm-up run
    #[arg(long)]
    pub(crate) no_warmup: bool,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Md)]
    pub(crate) format: OutputFormat,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Output format of the results.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Markdown table
    Md,
    /// JSON array
    Json,
    /// One JSON object per line
    Jsonl,
    /// Comma-separated values
    Csv,
}
