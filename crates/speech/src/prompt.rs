//! Prompts of the decoder: previous text, language, task.

use crate::language::Language;
use crate::special::{SpecialTokens, Task};
use tabla_core::error::{Result, bail};

/// Maximum number of tokens of previous text in a prompt: half of the context of 448, less 1.
pub const PREVIOUS_TOKENS_MAX: usize = 223;
/// Number of tokens after the initial prompt from which on earlier ones are removed.
const KEPT_TOKENS_MAX: usize = 4 * PREVIOUS_TOKENS_MAX;
/// Maximum number of tokens generated per window: half of the context.
pub const NEW_TOKENS_MAX: usize = 224;

/// Whether the model generates timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// Text with timestamps.
    #[default]
    On,
    /// Text alone; the prompt ends in `notimestamps`.
    Off,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Position of `startoftranscript`, whose logits give the probability of no speech.
    pub sot: usize,
}

impl Prompt {
    /// Builds a prompt: the last 223 `previous` tokens after `startofprev`, if there are any, then
    /// the sequence of [`sot_sequence`], then `notimestamps` if timestamps are off.
    pub fn new(
        previous: &[u32],
        sot_sequence: &[u32],
        timestamps: Timestamps,
        special: &SpecialTokens,
    ) -> Self {
        let previous = &previous[previous.len().saturating_sub(PREVIOUS_TOKENS_MAX)..];
        let mut tokens = Vec::with_capacity(previous.len() + sot_sequence.len() + 2);
        if !previous.is_empty() {
            tokens.push(special.startofprev);
            tokens.extend(previous);
        }
        let sot = tokens.len();
        tokens.extend(sot_sequence);
        if timestamps == Timestamps::Off {
            tokens.push(special.notimestamps);
        }
        Self { tokens, sot }
    }
}

/// Returns the tokens that start a transcript: `startoftranscript`, language and task. English models
/// have `startoftranscript` alone.
///
/// # Errors
///
/// `Unsupported` if the model cannot translate or lacks the language.
pub fn sot_sequence(special: &SpecialTokens, language: &Language, task: Task) -> Result<Vec<u32>> {
    if special.is_multilingual() {
        let language = special.language_token(language)?;
        return Ok(vec![special.sot, language, special.task_token(task)]);
    }
    if task == Task::Translate {
        bail!(
            Unsupported,
            "this model transcribes English only and cannot translate: use a multilingual model"
        );
    }
    Ok(vec![special.sot])
}

/// Whether the initial prompt is part of later prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialPrompt {
    /// Until it is cut off or forgotten, as any other previous text.
    #[default]
    Once,
    /// In every prompt, before other previous text.
    Always,
}

/// Tokens of the windows before, the previous text of the next prompt.
#[derive(Clone, Debug)]
pub struct History {
    /// Initial prompt, then the tokens of all windows.
    tokens: Vec<u32>,
    initial: usize,
    mode: InitialPrompt,
    /// Start of the tokens that are not forgotten.
    start: usize,
}

impl History {
    /// Creates a history that starts with the tokens of the initial prompt. The text of an initial
    /// prompt is encoded as a space and the stripped text.
    pub fn new(initial: &[u32], mode: InitialPrompt) -> Self {
        Self {
            tokens: initial.to_vec(),
            initial: initial.len(),
            mode,
            start: 0,
        }
    }

    /// Adds the tokens of a segment, timestamps included.
    pub fn push(&mut self, tokens: &[u32]) {
        self.tokens.extend(tokens);
        // A long recording keeps no more than its prompts need.
        let rest = self.tokens.len() - self.initial;
        if rest > KEPT_TOKENS_MAX {
            let count = rest - PREVIOUS_TOKENS_MAX;
            self.tokens.drain(self.initial..self.initial + count);
            self.start = match self.start.checked_sub(self.initial) {
                Some(after) => self.initial + after.saturating_sub(count),
                None => self.start,
            };
        }
    }

    /// Forgets all tokens so far: after a window at a temperature above 0.5, or after every window if
    /// prompts have no previous text.
    pub fn forget(&mut self) {
        self.start = self.tokens.len();
    }

    /// Returns the previous text of the next prompt, at most 223 tokens.
    pub fn previous(&self) -> Vec<u32> {
        let last = |tokens: &[u32], count: usize| {
            let first = tokens.len().saturating_sub(count);
            tokens[first..].to_vec()
        };
        match self.mode {
            InitialPrompt::Once => last(&self.tokens[self.start..], PREVIOUS_TOKENS_MAX),
            InitialPrompt::Always => {
                let mut all = last(&self.tokens[..self.initial], PREVIOUS_TOKENS_MAX);
                let rest = &self.tokens[self.start.max(self.initial)..];
                all.extend(last(rest, PREVIOUS_TOKENS_MAX - all.len()));
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_have_language_and_task() {
        let english = SpecialTokens::of(51_864).unwrap();
        let many = SpecialTokens::of(51_865).unwrap();
        let german = Language::find("de").unwrap();
        assert_eq!(
            sot_sequence(&many, german, Task::Translate).unwrap(),
            [50_258, 50_261, 50_358]
        );
        assert_eq!(
            sot_sequence(&english, german, Task::Transcribe).unwrap(),
            [50_257]
        );
        sot_sequence(&english, german, Task::Translate).unwrap_err();
        let yue = Language::find("yue").unwrap();
        sot_sequence(&many, yue, Task::Transcribe).unwrap_err();
    }

    #[test]
    fn prompts_keep_the_last_previous_tokens() {
        let special = SpecialTokens::of(51_865).unwrap();
        let sequence = [special.sot, special.sot + 1, special.transcribe];
        let prompt = Prompt::new(&[], &sequence, Timestamps::On, &special);
        assert_eq!((&prompt.tokens[..], prompt.sot), (&sequence[..], 0));
        let previous: Vec<u32> = (0..300).collect();
        let prompt = Prompt::new(&previous, &sequence, Timestamps::Off, &special);
        assert_eq!(prompt.sot, 224);
        assert_eq!(prompt.tokens[..2], [special.startofprev, 77]);
        assert_eq!(prompt.tokens[223], 299);
        assert_eq!(prompt.tokens[224..227], sequence);
        assert_eq!(prompt.tokens[227..], [special.notimestamps]);
    }

    #[test]
    fn history_is_cut_and_forgotten() {
        let mut history = History::new(&[1, 2], InitialPrompt::Once);
        assert_eq!(history.previous(), [1, 2]);
        history.push(&[3, 4]);
        assert_eq!(history.previous(), [1, 2, 3, 4]);
        history.forget();
        assert!(history.previous().is_empty());
        history.push(&[5]);
        assert_eq!(history.previous(), [5]);
        history.push(&[6; 300]);
        assert_eq!(history.previous(), [6; 223]);
    }

    #[test]
    fn initial_prompt_may_be_in_every_prompt() {
        let mut history = History::new(&[1, 2], InitialPrompt::Always);
        history.push(&[3]);
        assert_eq!(history.previous(), [1, 2, 3]);
        history.forget();
        assert_eq!(history.previous(), [1, 2]);
        history.push(&[6; 300]);
        assert_eq!(history.previous()[..3], [1, 2, 6]);
        assert_eq!(history.previous().len(), 223);
        let long = History::new(&[7; 300], InitialPrompt::Always);
        assert_eq!(long.previous(), [7; 223]);
    }
}
