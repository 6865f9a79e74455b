//! `tabla classify`: labels and scores of texts, one JSON object per line.

use crate::args::{ContextArg, DeviceArgs, ModelArg, TextsArgs};
use crate::commands::common::open;
use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use clap::Args;
use serde_json::{Value, json};
use tabla::Session;
use tabla::embed::{ClassifyInput, ClassifyOptions};

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ClassifyArgs {
    #[command(flatten)]
    texts: TextsArgs,
    #[command(flatten)]
    model: ModelArg,
    /// Second text of every pair, for models that classify pairs, such as premise and hypothesis
    #[arg(long, value_name = "TEXT")]
    pair: Option<String>,
    /// Print logits instead of scores
    #[arg(long)]
    logits: bool,
    /// Truncate texts that are too long instead of failing; of a pair only the second text
    #[arg(long)]
    truncate: bool,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &ClassifyArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let texts = args.texts.read()?;
    let options = args.device.options(args.context.tokens())?;
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let inputs = texts.iter().map(|text| match &args.pair {
        Some(second) => ClassifyInput::Pair(text, second),
        None => ClassifyInput::Text(text),
    });
    let inputs: Vec<_> = inputs.collect();
    let classify_options = ClassifyOptions::default()
        .logits(args.logits)
        .truncate(args.truncate);
    let mut session = Session::new(loaded.model);
    terminal::catch_interrupt(session.canceller())?;
    let bar = Progress::new("classifying", inputs.len() as u64);
    let scores = session.classify(&inputs, &classify_options, &mut |done, _| {
        bar.set_position(done as u64);
    })?;
    drop(bar);
    let labels = &session.classifier()?.labels;
    for (index, row) in scores.chunks_exact(labels.len()).enumerate() {
        let mut order: Vec<usize> = (0..row.len()).collect();
        // The sort is stable: equal scores keep the order of the labels.
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        let scores = order
            .iter()
            .map(|at| json!({ "label": labels[*at], "score": row[*at] }));
        let object = json!({ "index": index, "scores": scores.collect::<Value>() });
        terminal::line(&object.to_string())?;
    }
    Ok(())
}
