//! `tabla quantize`: writes a model in other storage types, and says what that cost.

use crate::args::parsers::{mix, storage_type};
use crate::args::source_name;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use regex::Regex;
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::format::Importance;
use tabla::{Mix, Quantize, Quantized, Source, Written};

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
    pub(crate) mix: &'static Mix,
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
    let how = Quantize {
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
    let written = with_bar("quantising", &source, |progress| {
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

/// Does something for a while: with a bar, and until the user presses Ctrl-C.
pub(crate) fn with_bar<T>(
    doing: &str,
    source: &Source,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> tabla::Result<T>,
) -> Result<T, Failure> {
    terminal::catch_interrupt(None)?;
    let bar = Progress::new(&format!("{doing} {}", source_name(source)), 100);
    let done = work(&mut |done, all| {
        // No file has so many elements that a hundred times as many wrap.
        bar.at(done.saturating_mul(100) / all.max(1));
        if terminal::interrupted() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    Ok(done?)
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

/// What was written, and where.
pub(crate) struct What<'a> {
    pub(crate) name: &'a str,
    pub(crate) mix: Option<&'a Mix>,
    pub(crate) output: &'a Path,
    /// Whether importance was asked for.
    pub(crate) importance: bool,
}

impl What<'_> {
    /// Says what became of each tensor, and what the model lacks.
    pub(crate) fn say(&self, written: &Written) -> Result<(), Failure> {
        note(written);
        let tensors = &written.tensors;
        let width = tensors.iter().map(|t| t.name.len()).max().unwrap_or(0);
        for tensor in tensors {
            terminal::line(&self.line(tensor, width))?;
        }
        let [before, after, elements] = sums(tensors);
        terminal::line(&format!(
            "{}: {} -> {}, {:.2} bits for each of {} parameters",
            self.name,
            terminal::bytes(before),
            terminal::bytes(after),
            after as f64 * 8.0 / elements.max(1) as f64,
            terminal::count(elements)
        ))
    }

    fn line(&self, t: &Quantized, width: usize) -> String {
        let name = terminal::one_line(&t.name);
        let (from, to) = (t.from.name(), t.to.name());
        let size = terminal::bytes(t.bytes);
        let mut line = format!("{name:width$}  {from:>7} -> {to:7}  {size:>11}");
        if t.from != t.to {
            line += &format!("  error {:.5}", t.error);
        }
        if let Some(wanted) = t.instead_of {
            line += &format!("  ({wanted} does not fit the rows)");
        }
        if self.importance && t.from != t.to && !t.weighted {
            line += "  (no importance)";
        }
        line
    }

    /// The same as one JSON object.
    pub(crate) fn say_json(&self, written: &Written) -> Result<(), Failure> {
        note(written);
        let tensors = &written.tensors;
        let tensor = |t: &Quantized| {
            json!({
                "name": t.name,
                "from": t.from.name(),
                "to": t.to.name(),
                "instead_of": t.instead_of.map(DType::name),
                "elements": t.elements,
                "bytes": t.bytes,
                "error": t.error,
                "weighted": t.weighted,
            })
        };
        let [before, after, elements] = sums(tensors);
        let report = json!({
            "file": self.output,
            "mix": self.mix.map(|mix| mix.name),
            "bytes_before": before,
            "bytes": after,
            "elements": elements,
            "tensors": tensors.iter().map(tensor).collect::<Vec<_>>(),
        });
        terminal::line(&report.to_string())
    }
}

/// What the model lacks.
fn note(written: &Written) {
    for note in &written.notes {
        terminal::note(&terminal::one_line(note));
    }
}

/// Bytes before, bytes now, elements.
fn sums(tensors: &[Quantized]) -> [u64; 3] {
    tensors.iter().fold([0; 3], |[before, after, elements], t| {
        [
            before.saturating_add(t.bytes_before),
            after.saturating_add(t.bytes),
            elements.saturating_add(t.elements),
        ]
    })
}
