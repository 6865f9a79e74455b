//! `tabla convert`: writes a model in another format.

use crate::args::ConvertArgs;
use crate::output::Failure;
use crate::quantize::{self, What};
use tabla::dtype::DType;
use tabla::{Export, Quantize, Source};

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let source = Source::Path(args.input.clone());
    let is_gguf = args.output.extension().is_some_and(|e| e == "gguf");
    let threads = args.threads.unwrap_or(0);
    let written = if is_gguf {
        let how = Quantize {
            mix: args.dtype,
            output: None,
            embedding: None,
            choose: &|_| None,
            importance: None,
            threads,
        };
        quantize::with_bar("converting", &source, |progress| {
            tabla::quantize(&source, &args.output, &how, progress)
        })?
    } else {
        let dtype = args.dtype.map(|mix| numbers(mix.name)).transpose()?;
        let how = Export { dtype, threads };
        quantize::with_bar("converting", &source, |progress| {
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
    quantize::storage_type(name).map_err(usage)
}
