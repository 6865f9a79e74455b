//! `tabla convert`: writes a model in another format.

use crate::args::ConvertArgs;
use crate::failure::Failure;
use crate::{quantize, terminal};
use tabla::dtype::DType;
use tabla::{Export, Quantize, Source};

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let source = Source::Path(args.input.clone());
    let is_gguf = args.output.extension().is_some_and(|e| e == "gguf");
    let (tensors, notes) = if is_gguf {
        let how = Quantize {
            mix: args.dtype,
            output: None,
            embedding: None,
            choose: &|_| None,
            importance: None,
            threads: args.threads.unwrap_or(0),
        };
        let tensors = quantize::with_bar("converting", &source, |progress| {
            tabla::quantize(&source, &args.output, &how, progress)
        })?;
        (tensors, Vec::new())
    } else {
        let how = Export {
            dtype: args.dtype.map(|mix| numbers(mix.name)).transpose()?,
            threads: args.threads.unwrap_or(0),
        };
        let exported = quantize::with_bar("converting", &source, |progress| {
            tabla::export(&source, &args.output, &how, progress)
        })?;
        (exported.tensors, exported.notes)
    };
    for note in notes {
        terminal::note(&terminal::one_line(&note));
    }
    if args.json {
        let report = quantize::report(&args.output, args.dtype, &tensors);
        return terminal::line(&report.to_string());
    }
    let what = args.output.file_name().unwrap_or_default();
    quantize::say(&what.to_string_lossy(), false, &tensors)
}

/// The storage type that a mix is named after.
fn numbers(name: &str) -> Result<DType, Failure> {
    let usage = |_| Failure::Usage(format!("--dtype {name}: safetensors are F32, F16 or BF16"));
    quantize::storage_type(name).map_err(usage)
}
