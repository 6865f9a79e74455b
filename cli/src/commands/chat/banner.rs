//! The lines before a chat on a terminal.

use crate::args::source_name;
use crate::output::{terminal, wrap};
use tabla::{Facts, Source};

/// Columns before the second line of the model's facts, in a narrow terminal.
const INDENT: usize = 2;

/// Prints the model, its device and the first commands.
pub(super) fn print(source: &Source, facts: &Facts) {
    let model = terminal::one_line(&model(&source_name(source), facts));
    let columns = terminal::stderr_columns();
    terminal::note(&wrap::indented(&model, columns, INDENT));
    terminal::note(&format!(
        "{}/? for commands, Ctrl-D to leave{}",
        terminal::DIM,
        terminal::PLAIN
    ));
}

/// Returns the name of a model and its facts.
fn model(name: &str, facts: &Facts) -> String {
    let size = terminal::bytes(facts.file_bytes);
    let quantization = facts.dtype.to_uppercase();
    format!(
        "{name}: {quantization}, {size}, context {} tokens, {}",
        facts.context, facts.device
    )
}
