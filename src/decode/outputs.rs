//! Outputs of a generation: pieces, log-probabilities, finish reason, statistics.

use std::time::Duration;

/// Text of one generated token. If the output ends with an incomplete character or with text that
/// was held back for a stop string, a final piece repeats the last token with that text.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Piece<'a> {
    /// Token ID.
    pub token: u32,
    /// Text that the token completes. Empty while a character is incomplete or a stop string may
    /// have started.
    pub text: &'a str,
    /// Log-probability of the token, if
    /// [`GenerateOptions::logprobs`](crate::GenerateOptions::logprobs) is set.
    pub logprob: Option<f32>,
    /// Likeliest tokens at this position, in descending order.
    pub top_logprobs: &'a [Logprob],
    /// Whether this is the final piece with held-back text, whose token was already returned.
    pub is_flush: bool,
}

impl Piece<'_> {
    /// Copies the piece, so that it outlives the next one.
    pub fn into_owned(self) -> OwnedPiece {
        OwnedPiece {
            token: self.token,
            text: self.text.to_owned(),
            logprob: self.logprob,
            top_logprobs: self.top_logprobs.to_vec(),
            is_flush: self.is_flush,
        }
    }
}

/// A copy of a [`Piece`], as the iterator of a [`Generation`](crate::Generation) returns it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OwnedPiece {
    /// Same as [`Piece::token`].
    pub token: u32,
    /// Same as [`Piece::text`].
    pub text: String,
    /// Same as [`Piece::logprob`].
    pub logprob: Option<f32>,
    /// Same as [`Piece::top_logprobs`].
    pub top_logprobs: Vec<Logprob>,
    /// Same as [`Piece::is_flush`].
    pub is_flush: bool,
}

/// Log-probability (natural logarithm) of a token, before biases and samplers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Logprob {
    /// Token ID.
    pub token: u32,
    /// Log-probability.
    pub logprob: f32,
}

/// Log-probability of a given token, from
/// [`Session::score_with_alternatives`](crate::Session::score_with_alternatives).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScoredToken {
    /// Log-probability (natural logarithm) of the token.
    pub logprob: f32,
    /// Likeliest tokens at its position, in descending order. If the given token is one of them,
    /// its log-probability has the same bits as `logprob`.
    pub top: Vec<Logprob>,
}

/// Reason for the end of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// A stop token, a stop string, or the end of the grammar. The stop token or string is in the
    /// sequence but not in the text.
    Stop,
    /// `max_tokens` tokens were generated.
    Length,
    /// The context is full.
    Context,
    /// The caller ended the generation, with [`Generation::stop`](crate::Generation::stop) or by
    /// breaking from the callback of [`Session::generate_with`](crate::Session::generate_with).
    Callback,
    /// [`Cancel::cancel`](crate::Cancel::cancel) was called.
    Cancelled,
    /// An error, which the generation returned.
    Failed,
}

/// Statistics of a generation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Number of generated tokens.
    pub tokens: u32,
    /// Number of tokens before the generation that were in the KV cache: of this session or of another one
    /// with the same prefix. 0 before the first token.
    pub prompt_cached: u32,
    /// Time until the first token was sampled, with the time in which the request waited for a slot. Zero
    /// before.
    pub prompt_took: Duration,
    /// Duration of the generation.
    pub took: Duration,
    /// Time in which the host submitted work to the device; `None` if submitting waits for the
    /// result, as on a CPU.
    pub submitting: Option<Duration>,
    /// Draft tokens of speculative decoding.
    pub draft: DraftStats,
    /// Finish reason; `None` while the generation runs.
    pub finish: Option<Finish>,
}

/// Statistics of draft tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DraftStats {
    /// Number of draft tokens that were checked.
    pub drafted: u32,
    /// Number of draft tokens that were accepted.
    pub accepted: u32,
}

impl std::ops::AddAssign for DraftStats {
    fn add_assign(&mut self, other: Self) {
        self.drafted = self.drafted.saturating_add(other.drafted);
        self.accepted = self.accepted.saturating_add(other.accepted);
    }
}
