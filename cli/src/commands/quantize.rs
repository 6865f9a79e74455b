//! `tabla quantize`: writes a model in other storage types, and says what that cost.

use crate::args::parsers::{mix, storage_type};
use crate::commands::common::written::{What, with_bar};
use crate::output::Failure;
use clap::Args;
use regex::Regex;
use std::path::PathBuf;
use tabla::dtype::DType;
use tabla::format::Importance;
use tabla::{QuantMix, QuantizeOptions, Source};

#[derive(Args, Debug)]
pub(crate) struct QuantizeArgs {
    /// The model
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The GGUF file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// What to make of it, by llama.cpp's names, like `Q4_K_M` or `F16`
    #[arg(value_name = "TYPE", value_parser = mix)]
    pub(crate) mix: &'static QuantMix,
    /// Importance matrix of llama.cpp's llama-imatrix, GGUF or the older form
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// The type of every matrix whose name matches a regular expression; may be repeated, and the
    /// first that matches decides
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = choice)]
    pub(crate) tensor_type: Vec<Choice>,
    /// The type of the output matrix
    #[arg(long, value_name = "TYPE", value_parser = storage_type)]
    pub(crate) output_tensor_type: Option<DType>,
    /// The type of the token embedding
    #[arg(long, value_name = "TYPE", value_parser = storage_type)]
    pub(crate) token_embedding_type: Option<DType>,
    /// Threads [default: every core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Option<u32>,
    /// Writes one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &QuantizeArgs) -> Result<(), Failure> {
    let source = Source::Path(args.input.clone());
    let importance = args.imatrix.as_deref().map(Importance::open).transpose()?;
    let how = QuantizeOptions {
        mix: Some(args.mix),
        output: args.output_tensor_type,
        embedding: args.token_embedding_type,
        choose: &|name| {
            let mut choices = args.tensor_type.iter();
            choices.find(|c| c.names.is_match(name)).map(|c| c.dtype)
        },
        importance: importance.as_ref(),
        threads: args.threads.unwrap_or(0),
    };
    let written = with_bar("quantizing", &source, |progress| {
        tabla::quantize(&source, &args.output, &how, progress)
    })?;
    let what = What {
        name: args.mix.name,
        mix: Some(args.mix),
        output: &args.output,
        importance: importance.is_some(),
    };
    if args.json {
        return what.say_json(&written);
    }
    what.say(&written)
}

/// A choice of `--tensor-type`.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    names: Regex,
    dtype: DType,
}

/// `PATTERN=TYPE`.
pub(crate) fn choice(text: &str) -> Result<Choice, String> {
    let (pattern, dtype) = text.rsplit_once('=').ok_or("wanted PATTERN=TYPE")?;
    Ok(Choice {
        names: Regex::new(pattern).map_err(|e| e.to_string())?,
        dtype: storage_type(dtype)?,
    })
}
