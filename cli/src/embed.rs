//! `tabla embed`: texts become embeddings, as JSON lines or as an `.npy` file.

use crate::args::{ContextArg, DeviceArgs, ModelArg};
use crate::failure::Failure;
use crate::terminal::{self, Progress};
use crate::{npy, open, prompt};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tabla::{Embed, Options, Pooling, Session};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct EmbedArgs {
    /// The texts; without any, the lines of a file or of standard input
    #[arg(value_name = "TEXT", conflicts_with_all = ["file", "jsonl"])]
    texts: Vec<String>,
    #[command(flatten)]
    model: ModelArg,
    /// Reads a text from each line of a file, or of standard input for "-"
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Lines are JSON: a text, or an object that has it as "text"
    #[arg(long)]
    jsonl: bool,
    /// Writes float32 [texts, dimensions] into an .npy file instead of a JSON object a line
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How the rows of a text become one: mean, cls, last or max [default: what the model's files say]
    #[arg(long, value_name = "POOLING", value_parser = pooling)]
    pooling: Option<Pooling>,
    /// Only the first N numbers, for models that were trained for it (Matryoshka); 0: all
    #[arg(long, value_name = "N", default_value_t = 0)]
    dimensions: u32,
    /// Leaves embeddings as long as they are [default: what the model's files say, else length 1]
    #[arg(long)]
    no_normalize: bool,
    /// Puts a prompt of the model in front of every text, by its name; "" for none
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Cuts texts that are too long
    #[arg(long)]
    truncate: bool,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

fn pooling(name: &str) -> Result<Pooling, String> {
    let found = Pooling::ALL.iter().find(|pooling| pooling.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = Pooling::ALL.iter().map(|pooling| pooling.name()).collect();
        format!("known are {}", names.join(", "))
    })
}

pub(crate) fn run(args: &EmbedArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let texts = args.texts()?;
    let options = Options {
        embeddings: true,
        ..args.device.options(args.context.positions())?
    };
    let opened = open::model(&source, &options)?;
    opened.notes(&source);
    let how = Embed {
        pooling: args.pooling,
        dimensions: args.dimensions,
        normalize: args.no_normalize.then_some(false),
        prompt: args.prompt_name.as_deref(),
        truncate: args.truncate,
    };

    let mut session = Session::new(opened.model);
    terminal::catch_interrupt(session.canceller())?;
    let dim = session.embedding_dim(&how)?;
    let mut rows = npy::zeros("embeddings", [texts.len(), dim])?;
    let bar = Progress::new("embedding", texts.len() as u64);
    session.embed(&texts, &how, &mut rows, &mut |done, _| bar.at(done as u64))?;
    drop(bar);
    match &args.output {
        Some(path) => npy::write_and_say(path, [texts.len(), dim], &rows),
        None => say(&rows, dim),
    }
}

/// One object a line.
fn say(rows: &[f32], dim: usize) -> Result<(), Failure> {
    for (index, row) in rows.chunks_exact(dim).enumerate() {
        let numbers = serde_json::to_string(row).map_err(Failure::new)?;
        terminal::line(&format!(r#"{{"index":{index},"embedding":{numbers}}}"#))?;
    }
    Ok(())
}

impl EmbedArgs {
    /// The texts, from wherever they come.
    fn texts(&self) -> Result<Vec<String>, Failure> {
        if !self.texts.is_empty() {
            return Ok(self.texts.clone());
        }
        let lines = match self.file.as_deref() {
            Some(path) if path != Path::new("-") => prompt::file(path)?,
            _ => prompt::stdin_to_end()?,
        };
        if lines.is_empty() {
            return Err(Failure::Usage("no text to embed".to_string()));
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
