//! Progress and report of commands that write a model.

use crate::args::source_name;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use tabla::dtype::DType;
use tabla::{ConversionReport, QuantMix, Source, TensorReport};

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

/// What was written, and where.
pub(crate) struct What<'a> {
    pub(crate) name: &'a str,
    pub(crate) mix: Option<&'a QuantMix>,
    pub(crate) output: &'a Path,
    /// Whether importance was asked for.
    pub(crate) importance: bool,
}

impl What<'_> {
    /// Says what became of each tensor, and what the model lacks.
    pub(crate) fn say(&self, written: &ConversionReport) -> Result<(), Failure> {
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

    fn line(&self, t: &TensorReport, width: usize) -> String {
        let name = terminal::one_line(&t.name);
        let (from, to) = (t.from.name(), t.to.name());
        let size = terminal::bytes(t.bytes);
        let mut line = format!("{name:width$}  {from:>7} -> {to:7}  {size:>11}");
        if t.from != t.to {
            line += &format!("  error {:.5}", t.error);
        }
        if let Some(wanted) = t.requested {
            line += &format!("  ({wanted} does not fit the rows)");
        }
        if self.importance && t.from != t.to && !t.weighted {
            line += "  (no importance)";
        }
        line
    }

    /// The same as one JSON object.
    pub(crate) fn say_json(&self, written: &ConversionReport) -> Result<(), Failure> {
        note(written);
        let tensors = &written.tensors;
        let tensor = |t: &TensorReport| {
            json!({
                "name": t.name,
                "from": t.from.name(),
                "to": t.to.name(),
                "instead_of": t.requested.map(DType::name),
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
fn note(written: &ConversionReport) {
    for note in &written.notes {
        terminal::note(&terminal::one_line(note));
    }
}

/// Bytes before, bytes now, elements.
fn sums(tensors: &[TensorReport]) -> [u64; 3] {
    tensors.iter().fold([0; 3], |[before, after, elements], t| {
        [
            before.saturating_add(t.bytes_before),
            after.saturating_add(t.bytes),
            elements.saturating_add(t.elements),
        ]
    })
}
