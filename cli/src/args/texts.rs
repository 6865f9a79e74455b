//! Texts for commands that take several: from the command line, or a line each.

use super::prompt;
use crate::output::Failure;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct TextsArgs {
    /// The texts; without any, the lines of a file or of standard input
    #[arg(value_name = "TEXT", conflicts_with_all = ["file", "jsonl"])]
    texts: Vec<String>,
    /// Reads a text from each line of a file, or of standard input for "-"
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Lines are JSON: a text, or an object that has it as "text"
    #[arg(long)]
    jsonl: bool,
}

impl TextsArgs {
    /// The texts, from wherever they come.
    pub(crate) fn read(&self) -> Result<Vec<String>, Failure> {
        if !self.texts.is_empty() {
            return Ok(self.texts.clone());
        }
        let lines = match self.file.as_deref() {
            Some(path) if path != Path::new("-") => prompt::file(path)?,
            _ => prompt::stdin_to_end()?,
        };
        if lines.is_empty() {
            return Err(Failure::Usage("there is no text".to_string()));
        }
        if !self.jsonl {
            return Ok(lines.lines().map(str::to_string).collect());
        }
        let numbered = (1..).zip(lines.lines());
        numbered
            .map(|(number, line)| text_of(line, number))
            .collect()
    }
}

/// The text of a line of JSON.
fn text_of(line: &str, number: usize) -> Result<String, Failure> {
    let value: Value = serde_json::from_str(line)
        .map_err(|error| Failure::Usage(format!("line {number} is no JSON: {error}")))?;
    let text = value.as_str().or_else(|| value.get("text")?.as_str());
    text.map(str::to_string).ok_or_else(|| {
        Failure::Usage(format!(
            "line {number}: no text, and no object with a \"text\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_json_are_texts() {
        for line in [r#""a\nb""#, r#"{"id": 3, "text": "a\nb"}"#] {
            assert_eq!(text_of(line, 1).expect("a text"), "a\nb");
        }
        for line in ["", "a", "3", r#"{"texts": []}"#, r#"{"text": 1}"#] {
            assert!(matches!(text_of(line, 7), Err(Failure::Usage(why)) if why.contains("line 7")));
        }
    }
}
