//! Where the grammar of a generation begins to apply.

use super::text_limits::check_texts;
use crate::error::{Result, bail};
use crate::text::ChatFormat;

tabla_core::options! {
    /// Where [`GenerateOptions::grammar`](crate::GenerateOptions::grammar) begins to apply. The
    /// default is the first token, or the first one after
    /// [`GenerateOptions::reasoning`](crate::GenerateOptions::reasoning). Tokens before it are free:
    /// they are sampled as without a grammar, with speculation.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct GrammarStart {
        /// Triggers: the grammar applies to the text after the first of these strings that the
        /// output contains outside reasoning ("lazy grammar" in llama.cpp). The output is free until
        /// then. The limits are those of stop strings.
        ///
        /// If a token contains a trigger and text after it that the grammar does not allow, the
        /// output remains free until the next trigger.
        pub triggers: Vec<String>,
        /// Text that replaces a stop token before a trigger; the grammar applies after it. `None`: the
        /// output may end without the grammar.
        pub opening: Option<String>,
    }
}

impl GrammarStart {
    /// Returns where a grammar of content applies in an answer in the format of a chat template: after
    /// the marker before content, or immediately if the format has none.
    pub fn of_content(format: &ChatFormat) -> Self {
        let markers = format.content_markers().iter();
        Self {
            triggers: markers.map(ToString::to_string).collect(),
            opening: format.content_opening(),
        }
    }

    /// Checks the triggers and the opening.
    ///
    /// # Errors
    ///
    /// `Argument`.
    pub(super) fn check(&self) -> Result<()> {
        check_texts("trigger", &self.triggers)?;
        if self.opening.is_some() && self.triggers.is_empty() {
            bail!(
                Argument,
                "an opening requires triggers: the grammar applies immediately"
            );
        }
        check_texts("opening", self.opening.as_slice())
    }

    /// Returns whether the grammar applies from the first token, apart from reasoning.
    pub(super) fn is_immediate(&self) -> bool {
        self.triggers.is_empty()
    }
}
