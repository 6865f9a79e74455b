//! `tabla convert`: writes a model in another format.

use crate::args::parsers::{mix, storage_type};
use crate::commands::common::written::{What, with_bar};
use crate::output::Failure;
use clap::Args;
use std::path::PathBuf;
use tabla::dtype::DType;
use tabla::{ExportOptions, QuantMix, QuantizeOptions, Source};

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// The model: a GGUF file, or a folder of safetensors
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// What to write: a file whose name ends in .gguf, or else a new folder of safetensors
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The type of the numbers: F16, BF16, F32, or for GGUF any that `quantize` knows [default:
    /// as they are, and F16 for those that the new format does not know]
    #[arg(long, value_name = "TYPE", value_parser = mix)]
    pub(crate) dtype: Option<&'static QuantMix>,
    /// Threads [default: every core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Option<u32>,
    /// Writes one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let source = Source::Path(args.input.clone());
    let is_gguf = args.output.extension().is_some_and(|e| e == "gguf");
    let threads = args.threads.unwrap_or(0);
    let written = if is_gguf {
        let how = QuantizeOptions {
            mix: args.dtype,
            output: None,
            embedding: None,
            choose: &|_| None,
            importance: None,
            threads,
        };
        with_bar("converting", &source, |progress| {
            tabla::quantize(&source, &args.output, &how, progress)
        })?
    } else {
        let dtype = args.dtype.map(|mix| numbers(mix.name)).transpose()?;
        let how = ExportOptions { dtype, threads };
        with_bar("converting", &source, |progress| {
            tabla::export(&source, &args.output, &how, progress)
        })?
    };
    let name = args.output.file_name().unwrap_or_default();
    let what = What {
        name: &name.to_string_lossy(),
        mix: args.dtype,
        output: &args.output,
        importance: false,
    };
    if args.json {
        return what.say_json(&written);
    }
    what.say(&written)
}

/// The storage type that a mix is named after.
fn numbers(name: &str) -> Result<DType, Failure> {
    let usage = |_| Failure::Usage(format!("--dtype {name}: safetensors are F32, F16 or BF16"));
    storage_type(name).map_err(usage)
}
