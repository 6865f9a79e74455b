//! `tabla quantize`: quantization of a model, with a report of the errors.

use crate::args::parsers::{lora_adapter, mix, storage_type, threads};
use crate::args::source_name;
use crate::commands::common::written::{Report, check_absent, with_bar};
use crate::output::{Failure, terminal};
use clap::Args;
use regex::Regex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tabla::Source;
use tabla::dtype::DType;
use tabla::format::Importance;
use tabla::tools::{QuantMix, QuantizeOptions};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct QuantizeArgs {
    /// Model: a GGUF file, a ggml file of whisper.cpp, a safetensors file or a model folder
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// Output GGUF file; of a speech model also a ggml file, if the name ends in .bin
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Quantization, by the names of llama.cpp: for example Q4_K_M or F16
    #[arg(value_name = "TYPE", value_parser = mix)]
    pub(crate) mix: &'static QuantMix,
    /// Importance matrix from llama-imatrix, as GGUF or in the legacy format
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// Type of tensors whose name matches a regular expression. Can be repeated; the first match
    /// applies
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = type_override)]
    pub(crate) tensor_type: Vec<TypeOverride>,
    /// Type of the output projection (lm_head)
    #[arg(long, value_name = "TYPE", value_parser = storage_type)]
    pub(crate) output_tensor_type: Option<DType>,
    /// Type of the token embedding
    #[arg(long, value_name = "TYPE", value_parser = storage_type)]
    pub(crate) token_embedding_type: Option<DType>,
    /// LoRA adapter to merge into the weights, with the factor of its change: a folder of peft or a GGUF
    /// file. Can be repeated [default scale: 1]
    #[arg(long, value_name = "ADAPTER[=SCALE]", value_parser = lora_adapter)]
    pub(crate) lora_merge: Vec<(PathBuf, f32)>,
    /// Number of threads [default: number of cores, also with -1]
    #[arg(short, long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<u32>,
    /// Overwrite an existing output file
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<(), Failure> {
    if !args.force {
        check_absent(&args.output)?;
    }
    let source = Source::Path(args.input.clone());
    warn_of_quantized(&source)?;
    let importance = args.imatrix.as_deref().map(Importance::open).transpose()?;
    let choose = |name: &str| {
        let mut overrides = args.tensor_type.iter();
        let first = overrides.find(|item| item.pattern.is_match(name));
        first.map(|item| item.dtype)
    };
    let options = QuantizeOptions::default()
        .mix(args.mix)
        .output(args.output_tensor_type)
        .embedding(args.token_embedding_type)
        .choose(&choose)
        .importance(importance.as_ref())
        .lora(args.lora_merge.clone())
        .threads(args.threads.unwrap_or(0));
    let written = with_bar("quantizing", &source, |progress| {
        tabla::tools::quantize(&source, &args.output, &options, progress)
    })?;
    let report = Report {
        name: args.mix.name,
        mix: Some(args.mix),
        output: &args.output,
        importance: importance.is_some(),
    };
    if args.json {
        return report.print_json(&written);
    }
    report.print(&written)
}

/// Warns if most of the weights are quantized: the errors of both quantizations add up.
fn warn_of_quantized(source: &Source) -> Result<(), Failure> {
    let directory = tabla::tools::open_directory(source)?;
    let mut bytes = BTreeMap::<String, u64>::new();
    for tensor in &directory.tensors {
        *bytes.entry(tensor.dtype.to_string()).or_default() += tensor.bytes;
    }
    let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
    let is_quantized = |name: &str| storage_type(name).is_ok_and(|dtype| dtype.facts().block > 1);
    if let Some((name, _)) = most.filter(|(name, _)| is_quantized(name)) {
        terminal::note(&format!(
            "warning: {} is already quantized, mostly to {name}, and the errors add up: quantize the model in F16, BF16 or F32 instead",
            terminal::one_line(&source_name(source))
        ));
    }
    Ok(())
}

/// A value of `--tensor-type`.
#[derive(Clone, Debug)]
pub(crate) struct TypeOverride {
    pattern: Regex,
    dtype: DType,
}

/// Parses `PATTERN=TYPE`.
pub(crate) fn type_override(text: &str) -> Result<TypeOverride, String> {
    let (pattern, dtype) = text.rsplit_once('=').ok_or("expected PATTERN=TYPE")?;
    Ok(TypeOverride {
        pattern: Regex::new(pattern).map_err(|e| e.to_string())?,
        dtype: storage_type(dtype)?,
    })
}
