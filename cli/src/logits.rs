//! `tabla logits`: the logits after a prompt, as an `.npy` file.

use crate::args::LogitsArgs;
use crate::failure::Failure;
use crate::terminal;
use crate::{npy, open, prompt, run};
use tabla::Session;

pub(crate) fn run(args: &LogitsArgs) -> Result<(), Failure> {
    let source = args.model.source(terminal::note)?;
    let options = args.device.options(args.context.positions())?;
    let text = if args.tokens.is_empty() {
        Some(prompt::read(&args.prompt, None)?)
    } else {
        None
    };
    let opened = open::model(&source, &options)?;
    opened.notes(&source);
    let tokens = match text {
        Some(text) => opened
            .model
            .tokenizer()
            .encode(&text, args.prompt.encode())?,
        None => args.tokens.clone(),
    };
    run::check_length(&tokens, opened.model.facts().context)?;

    let mut session = Session::new(opened.model);
    terminal::catch_interrupt(session.canceller())?;
    run::prefill(&mut session, &tokens)?;
    let cols = session.facts().vocab as usize;
    let rows = if args.all { tokens.len() } else { 1 };
    let mut logits = npy::zeros("logits", [rows, cols])?;
    if args.all {
        session.logits_all(&mut logits)?;
    } else {
        session.logits(&mut logits)?;
    }
    npy::write_and_say(&args.out, [rows, cols], &logits)
}
