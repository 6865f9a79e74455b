//! Progress and report of `tabla quantize` and `tabla convert`.

use crate::args::source_name;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use tabla::Source;
use tabla::dtype::DType;
use tabla::tools::{ConversionReport, QuantMix, TensorReport};

/// Runs `work` with a progress bar, until Ctrl-C.
pub(crate) fn with_bar<T>(
    action: &str,
    source: &Source,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> tabla::Result<T>,
) -> Result<T, Failure> {
    terminal::catch_interrupt(None)?;
    let bar = Progress::new(&format!("{action} {}", source_name(source)), 100);
    let result = work(&mut |done, total| {
        bar.set_position(done.saturating_mul(100) / total.max(1));
        if terminal::interrupted() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    Ok(result?)
}

/// Checks that the output does not exist.
pub(crate) fn check_absent(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::new(format!(
            "{} exists: use --force to overwrite it",
            terminal::one_line(&path.to_string_lossy())
        )));
    }
    Ok(())
}

/// Report of a written model.
pub(crate) struct Report<'a> {
    pub(crate) name: &'a str,
    pub(crate) mix: Option<&'a QuantMix>,
    pub(crate) output: &'a Path,
    /// Whether an importance matrix was given.
    pub(crate) importance: bool,
}

impl Report<'_> {
    /// Prints notes, a line per tensor and the totals.
    pub(crate) fn print(&self, written: &ConversionReport) -> Result<(), Failure> {
        print_notes(written);
        let tensors = &written.tensors;
        let width = tensors.iter().map(|t| t.name.len()).max().unwrap_or(0);
        for tensor in tensors {
            terminal::line(&self.line(tensor, width))?;
        }
        let [before, after, elements] = sums(tensors);
        terminal::line(&format!(
            "{}: {} -> {}, {:.2} bits per weight, {} parameters",
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
        if let Some(requested) = t.requested {
            line += &format!("  ({requested} is not supported for this row size)");
        }
        if self.importance && t.from != t.to && !t.weighted {
            line += "  (not in the importance matrix)";
        }
        line
    }

    /// Prints notes and one JSON object.
    pub(crate) fn print_json(&self, written: &ConversionReport) -> Result<(), Failure> {
        print_notes(written);
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

/// Prints notes about parts of the model that were not written.
fn print_notes(written: &ConversionReport) {
    for note in &written.notes {
        terminal::note(&terminal::one_line(note));
    }
}

/// Returns bytes before, bytes after and elements.
fn sums(tensors: &[TensorReport]) -> [u64; 3] {
    tensors.iter().fold([0; 3], |[before, after, elements], t| {
        [
            before.saturating_add(t.bytes_before),
            after.saturating_add(t.bytes),
            elements.saturating_add(t.elements),
        ]
    })
}
