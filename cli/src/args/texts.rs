//! Texts for commands that take several: arguments, or lines of a file.

use super::prompt;
use crate::output::Failure;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tabla::utf8;

/// Several texts.
#[derive(Args, Debug)]
pub(crate) struct TextsArgs {
    /// Texts [default: the lines of --file, or of standard input]
    #[arg(value_name = "TEXT", conflicts_with_all = ["file", "jsonl"])]
    texts: Vec<String>,
    /// File with one text per line; "-" reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Parse each line as JSON: a string, or an object with a string "text"
    #[arg(long)]
    jsonl: bool,
}

impl TextsArgs {
    /// Reads the texts.
    pub(crate) fn read(&self) -> Result<Vec<String>, Failure> {
        if !self.texts.is_empty() {
            return Ok(self.texts.clone());
        }
        let lines = match self.file.as_deref() {
            Some(path) if path != Path::new("-") => prompt::file(path)?,
            _ => prompt::stdin_to_end()?,
        };
        if lines.is_empty() {
            return Err(Failure::Usage(
                "no text: use TEXT, -f FILE, or lines on standard input".to_string(),
            ));
        }
        // Files with byte order marks that were joined have one before each part.
        let lines = lines.lines().map(utf8::without_bom);
        if !self.jsonl {
            return Ok(lines.map(str::to_string).collect());
        }
        let numbered = (1..).zip(lines);
        numbered
            .map(|(number, line)| text_of(line, number))
            .collect()
    }
}

/// Parses a line of JSON.
fn text_of(line: &str, number: usize) -> Result<String, Failure> {
    let value: Value = serde_json::from_str(line)
        .map_err(|error| Failure::Usage(format!("line {number}: invalid JSON: {error}")))?;
    let text = value.as_str().or_else(|| value.get("text")?.as_str());
    text.map(str::to_string).ok_or_else(|| {
        Failure::Usage(format!(
            "line {number}: expected a string, or an object with a string \"text\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_json_lines() {
        for line in [r#""a\nb""#, r#"{"id": 3, "text": "a\nb"}"#] {
            assert_eq!(text_of(line, 1).expect("valid line"), "a\nb");
        }
        for line in ["", "a", "3", r#"{"texts": []}"#, r#"{"text": 1}"#] {
            assert!(matches!(text_of(line, 7), Err(Failure::Usage(why)) if why.contains("line 7")));
        }
    }
}
