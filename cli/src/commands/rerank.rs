//! `tabla rerank`: documents sorted by relevance to a query, one JSON object per line.

use crate::args::{ContextArg, DeviceArgs, ModelArg, TextsArgs};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use serde_json::json;
use tabla::Session;
use tabla::embed::RerankOptions;

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct RerankArgs {
    /// Query
    #[arg(short, long, value_name = "TEXT")]
    query: String,
    #[command(flatten)]
    documents: TextsArgs,
    #[command(flatten)]
    model: ModelArg,
    /// Task instruction for a generative reranker [default: the web search instruction of
    /// Qwen3-Reranker]
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Print only the N most relevant documents
    #[arg(long, value_name = "N")]
    top_n: Option<usize>,
    /// Print logits instead of scores
    #[arg(long)]
    logits: bool,
    /// Truncate documents that are too long instead of failing, for cross-encoders
    #[arg(long)]
    truncate: bool,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &RerankArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let documents = args.documents.read()?;
    let options = args.device.options(args.context.tokens())?;
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let rerank_options = RerankOptions::default()
        .query(&args.query)
        .instruction(args.instruction.as_deref())
        .logits(args.logits)
        .truncate(args.truncate);
    let mut session = Session::new(loaded.model);
    terminal::catch_interrupt(session.canceller())?;
    let bar = Progress::new("reranking", documents.len() as u64);
    let scores = session.rerank(&rerank_options, &documents, &mut |done, _| {
        bar.set_position(done as u64);
    })?;
    drop(bar);
    let mut ranked: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    // The sort is stable: equal scores keep the input order.
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (index, score) in ranked.iter().take(args.top_n.unwrap_or(usize::MAX)) {
        let object = json!({ "index": index, "relevance_score": score });
        terminal::line(&object.to_string())?;
    }
    Ok(())
}
