//! `tabla rerank`: documents in the order in which they answer a query, a JSON object a line.

use crate::args::{ContextArg, DeviceArgs, ModelArg, TextsArgs};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use serde_json::json;
use tabla::{RerankOptions, Session};

#[derive(Args, Debug)]
pub(crate) struct RerankArgs {
    /// What the documents are to answer
    #[arg(short, long, value_name = "TEXT")]
    query: String,
    #[command(flatten)]
    documents: TextsArgs,
    #[command(flatten)]
    model: ModelArg,
    /// What answers a query, in a sentence [default: that of Qwen3-Reranker, for searches of the web]
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Only the best N documents
    #[arg(long, value_name = "N")]
    top_n: Option<usize>,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &RerankArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let documents = args.documents.read()?;
    let options = args.device.options(args.context.positions())?;
    let opened = open::model(&source, &options)?;
    opened.notes(&source);
    let by = RerankOptions {
        query: &args.query,
        instruction: args.instruction.as_deref(),
    };
    let mut session = Session::new(opened.model);
    terminal::catch_interrupt(session.canceller())?;
    let bar = Progress::new("reading documents", documents.len() as u64);
    let scores = session.rerank(&by, &documents, &mut |done, _| bar.at(done as u64))?;
    drop(bar);
    let mut ranked: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    // Of equals the first one stays in front.
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (index, score) in ranked.iter().take(args.top_n.unwrap_or(usize::MAX)) {
        let object = json!({ "index": index, "relevance_score": score });
        terminal::line(&object.to_string())?;
    }
    Ok(())
}
