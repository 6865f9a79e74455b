//! `tabla logits`: the logits of a prompt, as an `.npy` file.

use crate::args::{ContextArg, DeviceArgs, ModelArg, PromptArgs, prompt};
use crate::commands::common::open;
use crate::commands::common::prefill::{check_length, prefill};
use crate::output::Failure;
use crate::output::npy;
use crate::output::terminal;
use clap::Args;
use std::path::PathBuf;
use tabla::Session;

#[derive(Args, Debug)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Comma-separated token ids instead of text
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["prompt", "file"])]
    pub(crate) tokens: Vec<u32>,
    /// Output .npy file: float32 [1, vocabulary]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Write the logits of every token: [tokens, vocabulary]
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) context: ContextArg,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

pub(crate) fn run(args: &LogitsArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let options = args.device.options(args.context.tokens())?;
    let text = if args.tokens.is_empty() {
        Some(prompt::read(&args.prompt, None)?)
    } else {
        None
    };
    let loaded = open::model(&source, &options)?;
    loaded.print_notes(&source);
    let tokens = match text {
        Some(text) => loaded
            .model
            .tokenizer()
            .encode(&text, args.prompt.encode())?,
        None => args.tokens.clone(),
    };
    check_length(&tokens, loaded.model.facts().context)?;

    let mut session = Session::new(loaded.model);
    terminal::catch_interrupt(session.canceller())?;
    prefill(&mut session, &tokens)?;
    let cols = session.facts().vocab as usize;
    let rows = if args.all { tokens.len() } else { 1 };
    let mut logits = npy::zeros("logits", [rows, cols])?;
    if args.all {
        session.logits_all(&mut logits)?;
    } else {
        session.logits(&mut logits)?;
    }
    npy::write_and_report(&args.output, [rows, cols], &logits)
}
