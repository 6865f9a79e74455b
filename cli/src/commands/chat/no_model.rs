//! A chat without a model, because the built-in story model cannot chat: asks for a downloaded model, or
//! explains how to get one.

use crate::commands::common::open;
use crate::hub::{self, StoredModel};
use crate::output::{Failure, terminal};
use std::io::{self, IsTerminal};
use tabla::Source;

/// Small models of supported families, in ascending order of size: name, family and size of the download.
const EXAMPLES: [(&str, &str, &str); 3] = [
    (
        "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:Q8_0",
        "SmolLM2 360M",
        "0.4 GB",
    ),
    ("Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen3 0.6B", "0.6 GB"),
    ("ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", "Gemma 3 1B", "0.8 GB"),
];

/// Maximum number of downloaded models that are opened, to list those that can chat.
const OPENED_MAX: usize = 20;
/// Maximum number of downloaded models that are listed.
const STORED_MAX: usize = 5;

/// Asks on a terminal for one of the downloaded models. Otherwise the error lists them and examples of
/// others.
pub(super) fn choose() -> Result<Source, Failure> {
    // A cache that cannot be read has no models to suggest.
    let mut stored = hub::models().unwrap_or_default();
    stored.sort_by_key(|model| std::cmp::Reverse(model.modified));
    stored.truncate(OPENED_MAX);
    stored.retain(|model| open::has_chat_template(&Source::Path(model.path.clone())));
    stored.truncate(STORED_MAX);
    let asks = io::stdin().is_terminal() && terminal::stderr_is_terminal();
    if asks && !stored.is_empty() {
        return ask(&stored).map(|model| Source::Path(model.path.clone()));
    }
    let names: Vec<String> = stored.into_iter().map(|model| model.name).collect();
    Err(Failure::UsageWithHelp {
        message: "chat needs a model: the built-in story model cannot chat".to_string(),
        help: help(&names),
    })
}

/// Asks for one of the models by its number until the answer is valid. Enter selects the only model.
fn ask(models: &[StoredModel]) -> Result<&StoredModel, Failure> {
    terminal::eprint_line("Downloaded models:");
    for (model, number) in models.iter().zip(1..) {
        let name = terminal::one_line(&model.name);
        let size = terminal::bytes(model.bytes);
        terminal::eprint_line(&format!("{number:3}  {name}, {size}"));
    }
    let range = match models.len() {
        1 => "1".to_string(),
        count => format!("1-{count}"),
    };
    loop {
        terminal::eprint(&format!("Model [{range}]: "));
        let Some(answer) = terminal::answer_or_end()? else {
            terminal::note("");
            return Err(Failure::Usage("no model was selected".to_string()));
        };
        if let Some(model) = selected(models, &answer) {
            return Ok(model);
        }
        terminal::note(&format!("expected a number of the list: {range}"));
    }
}

/// Returns the model with this number. An empty answer is the only model.
fn selected<'a>(models: &'a [StoredModel], answer: &str) -> Option<&'a StoredModel> {
    match (models, answer) {
        ([only], "") => Some(only),
        _ => models.get(answer.parse::<usize>().ok()?.checked_sub(1)?),
    }
}

fn help(stored: &[String]) -> Vec<String> {
    let mut lines = vec!["Chat with a file:".to_string(), chat("model.gguf")];
    if !stored.is_empty() {
        lines.push("Already downloaded (`tabla list` shows all):".to_string());
        lines.extend(stored.iter().map(|name| chat(&format!("-hf {name}"))));
    }
    lines
        .push("Download a small model on first use, or before with `tabla pull NAME`:".to_string());
    for (name, family, size) in EXAMPLES {
        lines.push(format!("  {family}, {size}:"));
        lines.push(format!("  {}", chat(&format!("-hf {name}"))));
    }
    lines
}

fn chat(model: &str) -> String {
    format!("  tabla chat {}", terminal::one_line(model))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::HubModel;

    #[test]
    fn lists_downloaded_models_before_examples() {
        let lines = help(&["org/model-0:Q8_0".to_string()]);
        let position = |text: &str| lines.iter().position(|line| line.ends_with(text));
        assert!(position("tabla chat -hf org/model-0:Q8_0") < position(EXAMPLES[0].0));
        assert!(!help(&[]).iter().any(|line| line.contains("downloaded")));
        for (name, _, _) in EXAMPLES {
            assert!(name.parse::<HubModel>().is_ok() && position(name).is_some());
        }
    }
}
