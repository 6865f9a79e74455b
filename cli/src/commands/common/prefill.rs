//! Prefill of a session with a prompt.

use crate::output::Failure;
use crate::output::terminal::{self, Progress};
use tabla::Session;

/// Checks that a prompt is not empty and fits the context. The library checks it too; this error names
/// the option.
pub(crate) fn check_length(tokens: &[u32], context: u32) -> Result<(), Failure> {
    check_length_or(tokens, context, "increase it with -c")
}

/// Checks the same; `way_out` ends the error of a prompt that is too long.
pub(crate) fn check_length_or(tokens: &[u32], context: u32, way_out: &str) -> Result<(), Failure> {
    if tokens.is_empty() {
        return Err(Failure::Usage("the prompt is empty".to_string()));
    }
    if tokens.len() > context as usize {
        return Err(Failure::new(format!(
            "prompt has {}, context size is {context}: {way_out}",
            terminal::counted(tokens.len(), "token")
        )));
    }
    Ok(())
}

/// Prefills with a progress bar.
pub(crate) fn prefill(session: &mut Session, tokens: &[u32]) -> Result<(), Failure> {
    let bar = Progress::new("processing the prompt", tokens.len() as u64);
    session.prefill_with(tokens, |done, _| bar.set_position(done as u64))?;
    if terminal::interrupted() {
        return Err(Failure::Interrupted);
    }
    Ok(())
}
