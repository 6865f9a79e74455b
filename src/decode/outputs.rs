//! Outputs of a generation: pieces, log-probabilities, why it ended, statistics.

use std::time::Duration;

/// A piece of the answer: one token. Where the last character stays incomplete, or text was held back
/// that a stop string might have begun with, the last token comes once more with what there is of it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The token.
    pub token: u32,
    /// The text that it completes; empty while a character is incomplete, or a stop string may have
    /// begun.
    pub text: &'a str,
    /// How likely the token was, where [`GenerateOptions::log_probs`](crate::GenerateOptions::log_probs) asked for it.
    pub log_prob: Option<f32>,
    /// The likeliest tokens in its place, the likeliest first.
    pub likeliest: &'a [LogProb],
    /// Whether it is text that was held back to the end, and the token the one that came before.
    pub is_rest: bool,
}

/// The natural logarithm of how likely the model held a token, before biases and samplers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// The token.
    pub token: u32,
    /// The logarithm.
    pub log_prob: f32,
}

/// What a callback answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// End here; the token stays in the sequence.
    Stop,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token or a stop string, which is in the sequence and not in the text, or the end of the
    /// grammar.
    Stop,
    /// `max_tokens` were picked.
    Length,
    /// The context is full.
    Context,
    /// The callback said so.
    Callback,
    /// Someone called [`Cancel::cancel`](crate::Cancel::cancel).
    Cancelled,
}

/// What a generation did.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Tokens that were picked.
    pub tokens: u32,
    /// How long it took.
    pub took: Duration,
    /// How much of that the host spent on handing chains to the device; `None` where they are done by
    /// then, as on a CPU.
    pub submitting: Option<Duration>,
    /// DraftStats that were made at tokens, and those of them that were right.
    pub guesses: DraftStats,
    /// Why it ended.
    pub finish: Finish,
}

/// DraftStats at tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// How many were made.
    pub made: u32,
    /// How many of them were right.
    pub right: u32,
}

impl std::ops::AddAssign for DraftStats {
    fn add_assign(&mut self, other: Self) {
        self.made = self.made.saturating_add(other.made);
        self.right = self.right.saturating_add(other.right);
    }
}
