//! `tabla embed`: texts become embeddings, as JSON lines or as an `.npy` file.

use crate::args::{ContextArg, DeviceArgs, ModelArg, TextsArgs};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::npy;
use crate::output::terminal::{self, Progress};
use clap::Args;
use std::path::PathBuf;
use tabla::{EmbedOptions, LoadOptions, Pooling, Session};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    texts: TextsArgs,
    #[command(flatten)]
    model: ModelArg,
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
    let texts = args.texts.read()?;
    let options = LoadOptions {
        embeddings: true,
        ..args.device.options(args.context.positions())?
    };
    let opened = open::model(&source, &options)?;
    opened.notes(&source);
    let how = EmbedOptions {
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
