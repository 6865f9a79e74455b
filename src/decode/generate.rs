//! Generation: chains of tokens, cut at stop tokens and limits, out as text.

use super::{Sampling, Session};
use crate::error::{ErrorKind, Result};
use crate::exec::state::{FULL, RUNNING, STOPPED};
use crate::text::Utf8Stream;
use std::time::{Duration, Instant};

/// What to generate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Generate {
    /// How tokens are picked.
    pub sampling: Sampling,
    /// Tokens at most; 0 goes on until a stop token or a full context.
    pub max_tokens: u32,
    /// Tokens of one submission; 0 adapts: short at the start, longer as long as pieces keep
    /// coming at least every [`PIECE_EVERY`]. The device's own limit holds, 32 on a CPU.
    pub chain: u32,
    /// Whether stop tokens are ordinary.
    pub ignore_stops: bool,
    /// What happens when the context is full.
    pub overflow: Overflow,
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

/// A piece of the answer: one token. Where the last character stays incomplete, the last token comes
/// once more with what there is of it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The token.
    pub token: u32,
    /// The text that it completes; empty while a character is incomplete.
    pub text: &'a str,
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
    /// A stop token; it is in the sequence and not in the text.
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
        options.sampling.check()?;
        self.check_sequence()?;
        let start = Instant::now();
        let mut stream = Utf8Stream::new(self.model.tokenizer.piece_bytes_max());
        let (finish, tokens) = self.chains(options, &mut stream, each)?;
        if let Some(text) = Some(stream.flush()).filter(|text| !text.is_empty()) {
            let token = self.tokens.last().copied().unwrap_or_default();
            each(Piece { token, text });
        }
        Ok(Stats {
            tokens,
            took: start.elapsed(),
            finish,
        })
    }

    /// Submits chains until something ends the answer; counts the tokens that were picked.
    fn chains(
        &mut self,
        options: &Generate,
        stream: &mut Utf8Stream,
        each: &mut dyn FnMut(Piece<'_>) -> Flow,
    ) -> Result<(Finish, u32)> {
        let limit = if options.max_tokens == 0 {
            u32::MAX
        } else {
            options.max_tokens
        };
        let mut chain = Chain::new(options.chain, self.model.executor.profile().chain_tokens);
        let mut picked = 0;
        // The tokenizer's list outlives the borrow of the session: it is copied once.
        let mut stops = [0; 32];
        let known = self.model.tokenizer.stops();
        let count = if options.ignore_stops {
            0
        } else {
            known.len().min(stops.len())
        };
        stops[..count].copy_from_slice(&known[..count]);
        let finish = loop {
            if picked >= limit {
                break Finish::Length;
            }
            if self.cancelled() {
                break Finish::Cancelled;
            }
            if self.tokens.len() > self.model.facts.context as usize {
                let Overflow::Shift { keep } = options.overflow else {
                    break Finish::Context;
                };
                self.make_room(keep);
            }
            match self.catch_up() {
                Err(e) if e.kind() == ErrorKind::Cancelled => break Finish::Cancelled,
                other => other?,
            }
            let before = self.tokens.len();
            let start = Instant::now();
            let times = chain.next.min(limit - picked);
            let done = self.advance(&options.sampling, times, &stops[..count])?;
            chain.adapt(start.elapsed(), times);
            let ended = self.hand_out(before, done, stream, each);
            if let Some(at) = ended {
                self.truncate(at);
            }
            picked += u32::try_from(self.tokens.len() - before).unwrap_or(u32::MAX);
            match done {
                _ if ended.is_some() => break Finish::Callback,
                RUNNING => {}
                STOPPED => break Finish::Stop,
                FULL if options.overflow == Overflow::Stop => break Finish::Context,
                FULL => {}
                other => unreachable!("the shaders write no other reason than {other}"),
            }
        };
        Ok((finish, picked))
    }

    /// Forgets the older half of what stands behind the first `keep` tokens.
    fn make_room(&mut self, keep: u32) {
        let context = self.model.facts.context as usize;
        let begins = self.tokens.first().copied() == self.model.tokenizer.bos();
        let keep = (keep as usize).max(usize::from(begins)).min(context / 2);
        self.shift(keep, (context - keep).div_ceil(2));
    }

    /// Hands the tokens behind `before` to the callback. `Some(n)`: it ended the answer, and the
    /// sequence keeps `n` tokens.
    fn hand_out(
        &self,
        before: usize,
        done: u32,
        stream: &mut Utf8Stream,
        each: &mut dyn FnMut(Piece<'_>) -> Flow,
    ) -> Option<usize> {
        let last = self.tokens.len() - 1;
        for (at, &token) in self.tokens.iter().enumerate().skip(before) {
            if at == last && done == STOPPED {
                return None;
            }
            let text = stream.push(self.model.tokenizer.token_bytes(token));
            if each(Piece { token, text }) == Flow::Stop {
                return Some(at + 1);
            }
        }
        None
    }
}

/// How many tokens the next submission picks.
struct Chain {
    next: u32,
    max: u32,
    fixed: bool,
}

impl Chain {
    fn new(wanted: u32, max: u32) -> Self {
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

    /// Doubles while the pieces still come often enough, halves when they do not.
    fn adapt(&mut self, took: Duration, times: u32) {
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
