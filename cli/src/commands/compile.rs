//! `tabla compile`: a model as a file that opens in milliseconds.

use crate::args::{ContextArg, DeviceArgs, FileArg};
use crate::commands::common::written::{check_absent, with_bar};
use crate::output::{Failure, terminal};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use tabla::load::{DeviceChoice, DraftingHead};
use tabla::tools::compiled_target;

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct CompileArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Output file, usually with a name that ends in .tabla
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Devices that the file is for. Can be repeated; avx2, avx512 and neon are the same as cpu, because all
    /// CPUs with vectors read the same layout [default: native]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) target: Vec<Target>,
    /// Number of sequences that the tables compute at the same time [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) sequences: Option<u32>,
    /// With the head of the model for multi-token prediction (MTP), which drafts tokens
    #[arg(long)]
    pub(crate) mtp: bool,
    /// Overwrite an existing output file
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// A device that a model is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// The device that would run the model on this machine
    Native,
    /// All CPUs with AVX2, AVX-512 or NEON
    #[value(aliases = ["avx2", "avx512", "neon"])]
    Cpu,
    /// The GPU of this machine
    Gpu,
}

impl Target {
    fn device(self) -> DeviceChoice {
        match self {
            Self::Native => DeviceChoice::Auto,
            Self::Cpu => DeviceChoice::Cpu,
            Self::Gpu => DeviceChoice::Gpu,
        }
    }
}

pub(crate) fn run(args: &CompileArgs) -> Result<(), Failure> {
    if !args.force {
        check_absent(&args.output)?;
    }
    let source = args.file.source()?;
    let options = args
        .device
        .options(args.context.tokens())?
        .sequences(args.sequences.unwrap_or(0));
    let options = match args.mtp {
        true => options.drafting_head(DraftingHead::Mtp),
        false => options,
    };
    let mut devices: Vec<_> = args.target.iter().map(|target| target.device()).collect();
    if devices.is_empty() {
        devices.push(options.device);
    }
    let report = with_bar("compiling", &source, |progress| {
        tabla::tools::compile_model(&source, &args.output, &devices, &options, progress)
    })?;
    let ratio = report.bytes as f64 / report.source_bytes.max(1) as f64;
    let layouts: Vec<_> = report.layouts.iter().map(|layout| layout.name()).collect();
    if args.json {
        let report = json!({
            "file": args.output,
            "layouts": layouts,
            "source_bytes": report.source_bytes,
            "bytes": report.bytes,
        });
        return terminal::line(&report.to_string());
    }
    let targets = report.layouts.iter().map(|l| compiled_target(*l));
    let targets: Vec<_> = targets.collect();
    terminal::line(&format!(
        "{}: {} -> {} ({ratio:.2} x), for {}s",
        terminal::one_line(&args.output.to_string_lossy()),
        terminal::bytes(report.source_bytes),
        terminal::bytes(report.bytes),
        targets.join("s and ")
    ))
}
