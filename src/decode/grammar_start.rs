//! Where the grammar of a generation begins to apply.

use super::text_limits::check_texts;
use crate::error::{Result, bail};

tabla_core::options! {
    /// Where [`GenerateOptions::grammar`](crate::GenerateOptions::grammar) begins to apply. The
    /// default is the first token. Tokens before it are free: they are sampled as without a
    /// grammar, with speculation.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct GrammarStart {
        /// Markers of reasoning, which the output may begin with. Reasoning is free, and triggers
        /// within it do not count. White space after the closing marker is free, too.
        pub reasoning: Option<ReasoningMarkers>,
        /// Triggers: the grammar applies to the text after the first of these strings that the
        /// output contains ("lazy grammar" in llama.cpp). The output is free until then, so it may
        /// end without the grammar. Without triggers, the grammar applies from the first token
        /// after reasoning. The limits are those of stop strings.
        ///
        /// If a token contains a trigger and text after it that the grammar does not allow, the
        /// output remains free until the next trigger.
        pub triggers: Vec<String>,
    }
}

tabla_core::options! {
    /// Markers around reasoning at the start of an output, for example `<think>` and `</think>`.
    /// Control tokens count with their text.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReasoningMarkers {
        /// Marker that opens reasoning. White space around it is ignored.
        pub open: String,
        /// Marker that closes reasoning. White space around it is ignored.
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
}

impl GrammarStart {
    /// Checks the triggers and markers.
    ///
    /// # Errors
    ///
    /// `Argument`.
    pub(super) fn check(&self) -> Result<()> {
        check_texts("trigger", &self.triggers)?;
        let Some(ReasoningMarkers { open, close, .. }) = &self.reasoning else {
            return Ok(());
        };
        let markers = [open, close].map(|marker| marker.trim().to_string());
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

    /// Returns whether the grammar applies from the first token.
    pub(super) fn is_immediate(&self) -> bool {
        self.reasoning.is_none() && self.triggers.is_empty()
    }
}
