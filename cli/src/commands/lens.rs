//! `tabla lens`: the tokens that the residual stream after each layer predicts, as a table.

use crate::args::{ContextArg, DeviceArgs, ModelArg, PromptArgs, prompt};
use crate::commands::common::open;
use crate::commands::common::prefill::check_length;
use crate::output::Failure;
use crate::output::npy;
use crate::output::terminal;
use clap::Args;
use std::fmt::Write as _;
use std::path::PathBuf;
use tabla::text::{DecodeOptions, SpecialTokens, Tokenizer};
use tabla::{Captured, HookSpec, Hooks, Model, Session};

/// Width of a column in characters.
const COLUMN: usize = 11;
/// Width of the names of the layers in characters.
const NAMES: usize = 12;
/// Default number of columns of a terminal.
const WIDTH: usize = 100;
/// The 6 levels of blue of the 256-color palette, from the darkest.
const BLUES: [u8; 6] = [16, 17, 18, 19, 20, 21];

#[derive(Args, Debug)]
pub(crate) struct LensArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Number of most likely tokens per cell of the HTML file, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    top_k: u32,
    /// Also write the table to an HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

/// The most likely next tokens after a token, in one layer: ids and probabilities, in descending order.
type Cell = Vec<(u32, f32)>;

/// A row of the table.
struct Layer {
    name: String,
    cells: Vec<Cell>,
}

pub(crate) fn run(args: &LensArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let options = args.device.options(args.context.tokens())?;
    let text = prompt::read(&args.prompt, None)?;
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let model = loaded.model;
    let ids = model.tokenizer().encode(&text, args.prompt.encode())?;
    check_length(&ids, model.facts().context)?;
    let points = vec!["token_embd".to_string(), "blk.*".to_string()];
    let hooks = model.hooks(&HookSpec::default().capture(points))?;
    let mut session = Session::new(model.clone());
    terminal::catch_interrupt(session.canceller())?;
    session.set_hooks(Some(&hooks))?;
    let captured = session.capture(&ids)?;
    let mut layers = Vec::new();
    for point in hooks.points() {
        layers.push(Layer {
            cells: cells(&model, &hooks, captured, &point.name, args.top_k as usize)?,
            name: point.name.clone(),
        });
    }
    let tokenizer = model.tokenizer();
    if let Some(path) = &args.html {
        std::fs::write(path, html(tokenizer, &ids, &layers))
            .map_err(|cause| Failure::file("write", path, cause))?;
    }
    terminal::write(&table(tokenizer, &ids, &layers))?;
    terminal::flush()
}

/// Computes a row of the table.
fn cells(
    model: &Model,
    hooks: &Hooks,
    captured: &Captured,
    point: &str,
    top_k: usize,
) -> Result<Vec<Cell>, Failure> {
    let vocab = model.facts().vocab as usize;
    let mut logits = npy::zeros("logits", [1, vocab])?;
    let mut cells = Vec::new();
    for row in captured.rows(point)? {
        if terminal::interrupted() {
            return Err(Failure::Interrupted);
        }
        model.lens(hooks, row, &mut logits)?;
        cells.push(most_likely(&logits, top_k));
    }
    Ok(cells)
}

/// Returns the ids with the largest logits and their probabilities; ties by lowest id.
fn most_likely(logits: &[f32], count: usize) -> Cell {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |x: f32| f64::from(x - max).exp();
    let sum: f64 = logits.iter().map(|x| weight(*x)).sum();
    let mut ids: Vec<u32> = (0..).take(logits.len()).collect();
    let order = |a: &u32, b: &u32| {
        let [x, y] = [a, b].map(|id| logits[*id as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    let count = count.min(ids.len());
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    #[expect(clippy::cast_possible_truncation, reason = "a probability")]
    let cell = |id| (id, (weight(logits[id as usize]) / sum) as f32);
    ids.into_iter().map(cell).collect()
}

/// Returns the text of a token in one line.
fn shown(tokenizer: &Tokenizer, id: u32) -> String {
    let options = DecodeOptions::default().specials(SpecialTokens::Tokens);
    let text = tokenizer.decode_lossy(&[id], options).unwrap_or_default();
    terminal::one_line(&text.replace(' ', "\u{2423}"))
}

/// Cuts a text to a number of characters, or pads it.
fn fit(text: &str, width: usize) -> String {
    let mut fitted: String = text.chars().take(width).collect();
    let missing = width - fitted.chars().count();
    fitted.extend(std::iter::repeat_n(' ', missing));
    fitted
}

/// Formats the table for a terminal: the input tokens, then a line per layer with the most likely next
/// token, darker if it is less likely.
fn table(tokenizer: &Tokenizer, ids: &[u32], layers: &[Layer]) -> String {
    let colors = terminal::stdout_has_colors();
    let per_block = ((WIDTH - NAMES) / (COLUMN + 1)).max(1);
    let mut text = String::new();
    for (block, tokens) in ids.chunks(per_block).enumerate() {
        if block > 0 {
            text.push('\n');
        }
        text += &fit("", NAMES);
        for id in tokens {
            text += &(fit(&shown(tokenizer, *id), COLUMN) + " ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        for layer in layers {
            let mut line = fit(&layer.name, NAMES);
            for cell in layer
                .cells
                .iter()
                .skip(block * per_block)
                .take(tokens.len())
            {
                let Some((id, probability)) = cell.first() else {
                    continue;
                };
                let token = fit(&shown(tokenizer, *id), COLUMN);
                if colors {
                    let level = BLUES[level(*probability)];
                    let _ = write!(line, "\x1b[48;5;{level};38;5;255m{token}\x1b[0m ");
                } else {
                    line += &(token + " ");
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
    }
    text
}

/// Returns the index of the color of a probability.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 5"
)]
fn level(probability: f32) -> usize {
    (probability * BLUES.len() as f32).clamp(0.0, BLUES.len() as f32 - 1.0) as usize
}

/// Formats the table as an HTML page. The most likely tokens of a cell are its tooltip.
fn html(tokenizer: &Tokenizer, ids: &[u32], layers: &[Layer]) -> String {
    let mut page = String::from(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Logit lens</title>\n<style>\n\
         table { border-collapse: collapse; font: 13px monospace; }\n\
         td, th { border: 1px solid #ddd; padding: 2px 6px; white-space: pre; text-align: left; }\n\
         </style>\n<table>\n<tr><th></th>",
    );
    for id in ids {
        let _ = write!(page, "<th>{}</th>", escape(&shown(tokenizer, *id)));
    }
    page += "</tr>\n";
    for layer in layers {
        let _ = write!(page, "<tr><th>{}</th>", escape(&layer.name));
        for cell in &layer.cells {
            let lines = cell.iter().map(|(id, probability)| {
                format!("{} {:.1}%", shown(tokenizer, *id), probability * 100.0)
            });
            let lines: Vec<_> = lines.collect();
            let (id, probability) = cell.first().copied().unwrap_or_default();
            let color = if probability > 0.6 { "#fff" } else { "#000" };
            let _ = write!(
                page,
                "<td title=\"{}\" style=\"background:rgba(30,80,200,{probability:.2});color:{color}\">{}</td>",
                escape(&lines.join("\n")),
                escape(&shown(tokenizer, id))
            );
        }
        page += "</tr>\n";
    }
    page + "</table>\n"
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_likely_tokens_are_sorted() {
        let cell = most_likely(&[0.0, 2.0f32.ln(), 0.0, f32::NEG_INFINITY], 3);
        let ids: Vec<u32> = cell.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [1, 0, 2]);
        assert!((cell[0].1 - 0.5).abs() < 1e-6 && (cell[1].1 - 0.25).abs() < 1e-6);
        assert_eq!(most_likely(&[1.0, 1.0], 100).len(), 2);
    }

    #[test]
    fn html_is_escaped() {
        assert_eq!(
            escape("<a href=\"x\">&"),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
    }

    #[test]
    fn texts_fit_columns() {
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("ébcdef", 3), "ébc");
    }
}
