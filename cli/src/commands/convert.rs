//! `tabla convert`: conversion between safetensors, GGUF and ggml.

use crate::args::parsers::{lora_adapter, mix, storage_type, threads};
use crate::commands::common::written::{Report, check_absent, with_bar};
use crate::output::{Failure, terminal};
use clap::Args;
use std::path::{Path, PathBuf};
use tabla::Source;
use tabla::dtype::DType;
use tabla::tools::{ExportOptions, QuantMix, QuantizeOptions};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ConvertArgs {
    /// Model: a GGUF file, a ggml file of whisper.cpp or a folder with safetensors
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// Output: a GGUF file if the name ends in .gguf, a ggml file of a speech model if it ends in .bin,
    /// otherwise a new folder with safetensors
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Tensor type: F16, BF16 or F32, and for GGUF any type of `tabla quantize` [default: unchanged;
    /// types that the output format does not support become F16 in safetensors, and in GGUF the smallest type with
    /// the same values]
    #[arg(long, value_name = "TYPE", value_parser = mix)]
    pub(crate) dtype: Option<&'static QuantMix>,
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

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let source = Source::Path(args.input.clone());
    let is_file = is_file(&args.output)?;
    if args.force && !is_file {
        return Err(Failure::Usage(
            "--force overwrites a file: a folder must be new".to_string(),
        ));
    }
    let threads = args.threads.unwrap_or(0);
    let written = if is_file {
        if !args.force {
            check_absent(&args.output)?;
        }
        let options = QuantizeOptions::default()
            .mix(args.dtype)
            .lora(args.lora_merge.clone())
            .threads(threads);
        with_bar("converting", &source, |progress| {
            tabla::tools::quantize(&source, &args.output, &options, progress)
        })?
    } else {
        let dtype = args.dtype.map(|mix| dtype_of(mix.name)).transpose()?;
        let options = ExportOptions::default()
            .dtype(dtype)
            .lora(args.lora_merge.clone())
            .threads(threads);
        with_bar("converting", &source, |progress| {
            tabla::tools::export(&source, &args.output, &options, progress)
        })?
    };
    let name = args.output.file_name().unwrap_or_default();
    let report = Report {
        name: &name.to_string_lossy(),
        mix: args.dtype,
        output: &args.output,
        importance: false,
    };
    if args.json {
        return report.print_json(&written);
    }
    report.print(&written)
}

/// Whether the output is a file rather than a folder. Refuses names that look like files of other formats.
fn is_file(output: &Path) -> Result<bool, Failure> {
    let name = output.to_string_lossy();
    if name == "-" {
        return Err(Failure::Usage(
            "OUT is a file or a folder: standard output is not supported".to_string(),
        ));
    }
    let extension = output.extension().unwrap_or_default();
    if extension == "gguf" || extension.eq_ignore_ascii_case("bin") {
        return Ok(true);
    }
    let extension = extension.to_string_lossy();
    // Names of models have dots before numbers.
    let is_word = !extension.is_empty() && extension.chars().all(char::is_alphabetic);
    if is_word && !name.ends_with(std::path::is_separator) {
        let shown = terminal::one_line(&name);
        return Err(Failure::Usage(format!(
            "{shown}: unknown extension: use .gguf or .bin, or {shown}/ for a folder with safetensors"
        )));
    }
    Ok(false)
}

/// Returns the storage type that a quantization is named after.
fn dtype_of(name: &str) -> Result<DType, Failure> {
    let usage = |_| {
        Failure::Usage(format!(
            "--dtype {name}: safetensors output supports F32, F16 and BF16"
        ))
    };
    storage_type(name).map_err(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_with_unknown_extensions_are_refused() {
        for name in ["a.gguf", "a.bin", "a.BIN"] {
            assert!(is_file(Path::new(name)).expect(name), "{name}");
        }
        for name in ["folder", "Qwen3-0.6B", "a.foo/", "v1.5"] {
            assert!(!is_file(Path::new(name)).expect(name), "{name}");
        }
        for name in ["-", "a.foo", "a.ggfu"] {
            assert!(is_file(Path::new(name)).is_err(), "{name}");
        }
    }
}
