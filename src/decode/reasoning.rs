//! Markers of reasoning at the start of an output.

use super::text_limits::check_texts;
use crate::error::{Result, bail};
use crate::text::ChatFormat;

tabla_core::options! {
    /// Markers around reasoning at the start of an output, for example `<think>` and `</think>`.
    /// Control tokens count with their text. The search ignores white space around the markers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReasoningMarkers {
        /// Marker that opens reasoning.
        pub open: String,
        /// Marker that closes reasoning. If the reasoning is closed instead of the model, it is appended
        /// with the white space around it.
        pub close: String,
        /// Whether the prompt ends within reasoning. Default false: the output has reasoning if it
        /// begins with the opening marker.
        pub is_open: bool,
    }
}

impl ReasoningMarkers {
    /// Creates the markers of reasoning that the prompt does not open.
    pub fn new(open: impl Into<String>, close: impl Into<String>) -> Self {
        Self {
            open: open.into(),
            close: close.into(),
            is_open: false,
        }
    }

    /// Returns the markers of an answer in the format of a chat template to a prompt with this end.
    /// `None` if the template has no known reasoning format.
    pub fn of_format(format: &ChatFormat, prompt: &str) -> Option<Self> {
        let (open, close) = format.reasoning_markers()?;
        Some(match format.starts_in_reasoning(prompt) {
            true => Self::new(open, format.content_prefix(prompt)).is_open(true),
            false => Self::new(open, close),
        })
    }

    /// Checks the markers.
    ///
    /// # Errors
    ///
    /// `Argument`.
    pub(super) fn check(&self) -> Result<()> {
        let markers = [&self.open, &self.close].map(|marker| marker.trim().to_string());
        check_texts("reasoning marker", &markers)?;
        let [open, close] = markers;
        if open.contains(&close) {
            bail!(
                Argument,
                "the opening marker of reasoning {open:?} contains the closing marker {close:?}"
            );
        }
        Ok(())
    }
}
