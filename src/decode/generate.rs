//! Generation: what is wanted of an answer, the pieces that it comes in, and how long its chains are.

use super::{Guesses, Sampling, Session, Speculate};
use crate::error::{Result, bail};
use crate::exec::state::STOPS_MAX;
use crate::op::table::BIASES_MAX;
use crate::text::CompiledGrammar;
use std::sync::Arc;
use std::time::Duration;

/// What to generate.
#[derive(Clone, Debug, Default)]
pub struct Generate {
    /// How tokens are picked.
    pub sampling: Sampling,
    /// Tokens at most; 0 goes on until a stop token or a full context.
    pub max_tokens: u32,
    /// Tokens of one submission; 0 adapts: short at the start, longer as long as pieces keep
    /// coming at least every [`PIECE_EVERY`]. The device's own limit holds, 32 on a CPU.
    pub chain: u32,
    /// Whether the model's own stop tokens are ordinary.
    pub ignore_stops: bool,
    /// Further tokens that end the answer; with the model's own [`Generate::STOPS_MAX`] at most.
    pub stop_tokens: Vec<u32>,
    /// Texts that end the answer, wherever tokens end, [`Generate::STOP_STRINGS_MAX`] at most of
    /// [`Generate::STOP_STRING_BYTES_MAX`] each. No part of one gets out.
    pub stop: Vec<String>,
    /// What happens when the context is full.
    pub overflow: Overflow,
    /// Where guesses at the next tokens come from.
    pub speculate: Speculate,
    /// The grammar that the answer follows, from [`Model::compile_grammar`](super::Model::compile_grammar).
    /// It ends where nothing can follow; what can come in one way only is not picked,
    /// unless log-probabilities are asked for.
    pub grammar: Option<Arc<CompiledGrammar>>,
    /// What is added to the logits of tokens in front of every sampler, [`Generate::BIASES_MAX`] tokens
    /// at most; -inf bans one. Those of one token add up.
    pub logit_bias: Vec<(u32, f32)>,
    /// So many tokens come before a stop token may.
    pub min_tokens: u32,
    /// What repetitions end at for DRY: any token with one of these texts in it, so many and so long as
    /// stop strings at most. `None`: [`Generate::DRY_BREAKERS`].
    pub dry_breakers: Option<Vec<String>>,
    /// Has every piece tell how likely its token was, and so many of the likeliest,
    /// [`Generate::LOG_PROBS_MAX`] at most. Steps are submitted one by one then.
    pub log_probs: Option<u32>,
}

impl Generate {
    /// Stop tokens at most.
    pub const STOPS_MAX: usize = STOPS_MAX;
    /// Stop strings at most.
    pub const STOP_STRINGS_MAX: usize = 64;
    /// Bytes of a stop string at most.
    pub const STOP_STRING_BYTES_MAX: usize = 1024;

    /// Tokens that have a bias at most.
    pub const BIASES_MAX: u32 = BIASES_MAX;
    /// Likeliest tokens that are told at most.
    pub const LOG_PROBS_MAX: u32 = 20;
    /// What repetitions end at for DRY unless somebody says otherwise, as llama.cpp has it.
    pub const DRY_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

    /// Holds every option to its range.
    pub(super) fn check(&self) -> Result<()> {
        self.sampling.check()?;
        let (wanted, most) = (self.log_probs.unwrap_or(0), Self::LOG_PROBS_MAX);
        if wanted > most {
            bail!(Argument, "log_probs {wanted} is over {most}");
        }
        let (own, most) = (self.stop_tokens.len(), Self::STOPS_MAX);
        if own > most {
            bail!(Argument, "{own} stop tokens are over the limit of {most}");
        }
        check_texts("stop string", &self.stop)?;
        let breakers = self.dry_breakers.as_deref();
        check_texts("DRY breaker", breakers.unwrap_or(&[]))
    }
}

/// Holds texts to a number and a length.
fn check_texts(what: &str, texts: &[String]) -> Result<()> {
    let (count, most) = (texts.len(), Generate::STOP_STRINGS_MAX);
    if count > most {
        bail!(Argument, "{count} {what}s are over the limit of {most}");
    }
    let most = Generate::STOP_STRING_BYTES_MAX;
    for (at, text) in texts.iter().enumerate() {
        let bytes = text.len();
        if !(1..=most).contains(&bytes) {
            bail!(Argument, "{what} {at} has {bytes} bytes, not 1 to {most}");
        }
    }
    Ok(())
}

/// What happens when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Generation ends.
    #[default]
    Stop,
    /// The older half of the sequence behind its first `keep` tokens is forgotten, and the rest
    /// computed anew at its new positions.
    Shift {
        /// Tokens at the front that stay, half of the context at most; one that begins texts
        /// (BOS) stays in any case.
        keep: u32,
    },
}

/// Someone watches: pieces come at least this often where the device is fast enough.
const PIECE_EVERY: Duration = Duration::from_millis(40);

/// A piece of the answer: one token. Where the last character stays incomplete, or text was held back
/// that a stop string might have begun with, the last token comes once more with what there is of it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The token.
    pub token: u32,
    /// The text that it completes; empty while a character is incomplete, or a stop string may have
    /// begun.
    pub text: &'a str,
    /// How likely the token was, where [`Generate::log_probs`] asked for it.
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
    /// Someone called [`Cancel::cancel`](super::Cancel).
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
    /// Guesses that were made at tokens, and those of them that were right.
    pub guesses: Guesses,
    /// Why it ended.
    pub finish: Finish,
}

impl Session {
    /// Generates after the sequence; every piece goes to `each`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` for options out of range, `Device` and
    /// `DeviceLost`.
    pub fn generate(
        &mut self,
        options: &Generate,
        each: &mut dyn FnMut(Piece<'_>) -> Flow,
    ) -> Result<Stats> {
        let mut answer = self.answer(options)?;
        while let Some(piece) = answer.next()? {
            if each(piece) == Flow::Stop {
                answer.stop()?;
                break;
            }
        }
        Ok(answer.stats())
    }
}

/// How many tokens the next submission picks.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    next: u32,
    max: u32,
    fixed: bool,
}

impl Chain {
    pub(super) fn new(wanted: u32, max: u32) -> Self {
        match wanted {
            0 => Self {
                next: 1,
                max,
                fixed: false,
            },
            n => Self {
                next: n.min(max),
                max,
                fixed: true,
            },
        }
    }

    /// Tokens of the next submission.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Doubles while the pieces still come often enough, halves when they do not.
    pub(super) fn adapt(&mut self, took: Duration, times: u32) {
        if self.fixed {
            return;
        }
        let doubled = took * 2 * self.next / times.max(1);
        if doubled <= PIECE_EVERY {
            self.next = (self.next * 2).min(self.max);
        } else if took > PIECE_EVERY {
            self.next = (self.next / 2).max(1);
        }
    }
}
