//! `tabla embed`: embeddings of texts, as JSON lines or as an `.npy` file.

use crate::args::{ContextArg, DeviceArgs, ModelArg, TextsArgs};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::npy;
use crate::output::terminal::{self, Progress};
use clap::Args;
use std::path::PathBuf;
use tabla::Session;
use tabla::embed::{EmbedOptions, Pooling};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    texts: TextsArgs,
    #[command(flatten)]
    model: ModelArg,
    /// Output .npy file with float32 [texts, dimensions] [default: one JSON object per line]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Pooling: mean, cls, last or max [default: from the model]
    #[arg(long, value_name = "POOLING", value_parser = pooling)]
    pooling: Option<Pooling>,
    /// Truncate embeddings to the first N dimensions (Matryoshka models); 0: all
    #[arg(long, value_name = "N", default_value_t = 0)]
    dimensions: u32,
    /// Do not normalize embeddings to length 1 [default: from the model, otherwise normalize]
    #[arg(long)]
    no_normalize: bool,
    /// Prepend the model's prompt of this name to each text; "": no prompt
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Truncate texts that are too long instead of failing
    #[arg(long)]
    truncate: bool,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Parses the name of a pooling.
pub(super) fn pooling(name: &str) -> Result<Pooling, String> {
    let pooling = Pooling::ALL.iter().find(|pooling| pooling.name() == name);
    pooling.copied().ok_or_else(|| {
        let names: Vec<_> = Pooling::ALL.iter().map(|pooling| pooling.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

pub(crate) fn run(args: &EmbedArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let texts = args.texts.read()?;
    let options = args.device.options(args.context.tokens())?.embeddings(true);
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let embed_options = EmbedOptions::default()
        .pooling(args.pooling)
        .dimensions(args.dimensions)
        .normalize(args.no_normalize.then_some(false))
        .prompt_name(args.prompt_name.as_deref())
        .truncate(args.truncate);

    let mut session = Session::new(loaded.model);
    terminal::catch_interrupt(session.canceller())?;
    let dim = session.embedding_dim(&embed_options)?;
    let mut rows = npy::zeros("embeddings", [texts.len(), dim])?;
    let bar = Progress::new("embedding", texts.len() as u64);
    session.embed(&texts, &embed_options, &mut rows, &mut |done, _| {
        bar.set_position(done as u64);
    })?;
    drop(bar);
    match &args.output {
        Some(path) => npy::write_and_report(path, [texts.len(), dim], &rows),
        None => print(&rows, dim),
    }
}

/// Prints one JSON object per line.
fn print(rows: &[f32], dim: usize) -> Result<(), Failure> {
    for (index, row) in rows.chunks_exact(dim).enumerate() {
        let numbers = serde_json::to_string(row).map_err(Failure::new)?;
        terminal::line(&format!(r#"{{"index":{index},"embedding":{numbers}}}"#))?;
    }
    Ok(())
}
