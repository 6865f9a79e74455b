//! Tokens and times of a choice while it runs.

use super::events::Usage;
use super::output::ChoiceOutput;
use std::time::{Duration, Instant};
use tabla::Stats;

/// Whether the prompt is processed with the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptWork {
    Done,
    Included,
}

/// Tokens and times of a choice.
pub(super) struct Clock {
    usage: Usage,
    prompt: PromptWork,
    /// Start of the generation; before the first token, of the prompt if it is included.
    begun: Instant,
}

impl Clock {
    /// Starts. `usage` has what is known of the prompt.
    pub(super) fn new(usage: Usage, prompt: PromptWork) -> Self {
        Self {
            usage,
            prompt,
            begun: Instant::now(),
        }
    }

    /// Adds the statistics of an included prompt, which are known with the first token. Returns its tokens and time.
    pub(super) fn prompt_ended(&mut self, stats: Stats) -> Option<Usage> {
        if self.prompt == PromptWork::Done {
            return None;
        }
        self.usage.prompt.cached = stats.prompt_cached.into();
        self.usage.prompt_time = stats.prompt_took;
        self.begun += stats.prompt_took;
        Some(self.usage)
    }

    /// Returns the time since the first token.
    pub(super) fn generation_time(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the tokens and times so far.
    pub(super) fn usage(&self, output: &ChoiceOutput) -> Usage {
        Usage {
            generated: output.tokens,
            reasoning: output.reasoning,
            generation_time: self.generation_time(),
            ..self.usage
        }
    }
}
