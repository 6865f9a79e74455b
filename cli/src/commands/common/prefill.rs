//! Checks the length of a prompt and prefills a session with it.

use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use tabla::Session;

/// Holds a prompt against the context before the library does, to name the option that helps.
pub(crate) fn check_length(tokens: &[u32], context: u32) -> Result<(), Failure> {
    if tokens.is_empty() {
        return Err(Failure::Usage("the prompt is empty".to_string()));
    }
    if tokens.len() > context as usize {
        return Err(Failure::new(format!(
            "the prompt has {} tokens, the context {context} positions; -c takes more",
            tokens.len()
        )));
    }
    Ok(())
}

/// Prefills with a bar, to the end: a GPU is still at work when [`Session::prefill`] returns, and
/// reading something back waits for it.
pub(crate) fn prefill(session: &mut Session, tokens: &[u32]) -> Result<(), Failure> {
    let bar = Progress::new("reading the prompt", tokens.len() as u64);
    session.prefill(tokens, &mut |done, _| bar.at(done as u64))?;
    let mut logits = vec![0.0; session.facts().vocab as usize];
    session.logits(&mut logits)?;
    if terminal::interrupted() {
        return Err(Failure::Interrupted);
    }
    Ok(())
}
