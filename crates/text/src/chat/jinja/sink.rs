//! Output of text, charged to the budget.

use super::budget::Budget;
use super::failure::Outcome;
use std::fmt;

/// A text to which a rendering appends.
pub(super) struct Sink<'a> {
    budget: &'a Budget,
    out: &'a mut String,
}

impl<'a> Sink<'a> {
    pub(super) fn new(budget: &'a Budget, out: &'a mut String) -> Self {
        Self { budget, out }
    }

    pub(super) fn push(&mut self, text: &str) -> Outcome<()> {
        self.budget.charge(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn push_char(&mut self, c: char) -> Outcome<()> {
        self.push(c.encode_utf8(&mut [0; 4]))
    }

    /// Appends `text` `count` times.
    pub(super) fn repeat(&mut self, text: &str, count: usize) -> Outcome<()> {
        self.budget.charge(text.len().saturating_mul(count))?;
        self.out.extend(std::iter::repeat_n(text, count));
        Ok(())
    }

    /// Appends a short formatted text, such as a number.
    pub(super) fn format(&mut self, arguments: fmt::Arguments<'_>) -> Outcome<()> {
        self.push(&arguments.to_string())
    }
}

/// Returns the text that `write` writes.
pub(super) fn written(
    budget: &Budget,
    write: impl FnOnce(&mut Sink<'_>) -> Outcome<()>,
) -> Outcome<String> {
    let mut out = String::new();
    write(&mut Sink::new(budget, &mut out))?;
    Ok(out)
}
