//! Generation: chains of tokens, cut at stop tokens and limits, out as text.

use super::rows::{PICKS_MAX, Picks};
use super::{Sampling, Session};
use crate::error::{ErrorKind, Result};
use crate::exec::state::{FULL, RUNNING, STOPPED, STOPS_MAX};
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
    /// How much of that the host spent on handing chains to the device; `None` where they are done by
    /// then, as on a CPU.
    pub submitting: Option<Duration>,
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
        let mut stops = [0; STOPS_MAX];
        let mut answer = Answer {
            options,
            chain: Chain::new(options.chain, self.profile().chain_tokens.min(PICKS_MAX)),
            stops: self.stops(options, &mut stops),
            stream: Utf8Stream::new(self.model.tokenizer.piece_bytes_max()),
            each,
            limit: match options.max_tokens {
                0 => usize::MAX,
                n => n as usize,
            },
            picked: 0,
            submitting: Duration::ZERO,
        };
        let finish = self.answer(&mut answer)?;
        let text = answer.stream.flush();
        if !text.is_empty() {
            let token = self.tokens.last().copied().unwrap_or_default();
            (answer.each)(Piece { token, text });
        }
        Ok(Stats {
            tokens: u32::try_from(answer.picked).unwrap_or(u32::MAX),
            took: start.elapsed(),
            submitting: self.profile().runs_ahead.then_some(answer.submitting),
            finish,
        })
    }

    /// The tokens that end an answer. The tokenizer's list is in the session, which picking changes:
    /// it is copied once.
    fn stops<'a>(&self, options: &Generate, room: &'a mut [u32; STOPS_MAX]) -> &'a [u32] {
        let known = self.model.tokenizer.stops();
        let count = if options.ignore_stops {
            0
        } else {
            known.len().min(room.len())
        };
        room[..count].copy_from_slice(&known[..count]);
        &room[..count]
    }

    /// Picks until something ends the answer.
    fn answer(&mut self, answer: &mut Answer<'_>) -> Result<Finish> {
        loop {
            if answer.picked >= answer.limit {
                return Ok(Finish::Length);
            }
            if self.cancelled() {
                return Ok(Finish::Cancelled);
            }
            if self.tokens.len() > self.model.facts.context as usize {
                let Overflow::Shift { keep } = answer.options.overflow else {
                    return Ok(Finish::Context);
                };
                self.make_room(keep);
            }
            match self.catch_up() {
                Err(e) if e.kind() == ErrorKind::Cancelled => return Ok(Finish::Cancelled),
                other => other?,
            }
            let since = Instant::now();
            self.begin(&answer.options.sampling, answer.stops)?;
            answer.submitting += since.elapsed();
            let ended = self.chains(answer).inspect_err(|_| self.give_up())?;
            if let Some(finish) = ended {
                return Ok(finish);
            }
        }
    }

    /// Chains, one behind the other, until the answer ends or there is no more to submit. Where the
    /// device runs ahead, the next one is submitted before one is read: the device never waits for
    /// the host.
    fn chains(&mut self, answer: &mut Answer<'_>) -> Result<Option<Finish>> {
        let ahead = self.profile().runs_ahead;
        let mut since = Instant::now();
        let mut under_way = self.next_chain(answer)?;
        while let Some((picks, times)) = under_way {
            under_way = if ahead {
                self.next_chain(answer)?
            } else {
                None
            };
            let before = self.tokens.len();
            let done = self.collect(picks)?;
            answer.chain.adapt(since.elapsed(), times);
            since = Instant::now();
            let ended = self.hand_out(before, done, answer);
            if let Some(at) = ended {
                self.give_up();
                self.truncate(at);
            }
            answer.picked += self.tokens.len() - before;
            match done {
                _ if ended.is_some() => return Ok(Some(Finish::Callback)),
                RUNNING => {}
                STOPPED => return Ok(Some(Finish::Stop)),
                FULL if answer.options.overflow == Overflow::Stop => {
                    return Ok(Some(Finish::Context));
                }
                FULL => return Ok(None),
                other => unreachable!("the shaders write no other reason than {other}"),
            }
            if (under_way.is_some() || self.room(answer) > 0) && self.cancelled() {
                self.give_up();
                return Ok(Some(Finish::Cancelled));
            }
            if under_way.is_none() {
                under_way = self.next_chain(answer)?;
            }
        }
        Ok(None)
    }

    /// Submits the next chain, where there is room for a token of it.
    fn next_chain(&mut self, answer: &mut Answer<'_>) -> Result<Option<(Picks, u32)>> {
        let times = self.room(answer).min(answer.chain.next);
        if times == 0 {
            return Ok(None);
        }
        let since = Instant::now();
        let picks = self.submit(&answer.options.sampling, times)?;
        answer.submitting += since.elapsed();
        Ok(Some((picks, times)))
    }

    /// Tokens that may be picked behind those that are submitted; a chain stops by itself where the
    /// context is full.
    fn room(&self, answer: &Answer<'_>) -> u32 {
        if self.submitted > self.model.facts.context as usize {
            return 0;
        }
        let under_way = self.submitted - self.tokens.len();
        let left = answer.limit - answer.picked - under_way;
        u32::try_from(left).unwrap_or(u32::MAX)
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
    fn hand_out(&self, before: usize, done: u32, answer: &mut Answer<'_>) -> Option<usize> {
        let last = self.tokens.len() - 1;
        for (at, &token) in self.tokens.iter().enumerate().skip(before) {
            if at == last && done == STOPPED {
                return None;
            }
            let bytes = self.model.tokenizer.token_bytes(token);
            let text = answer.stream.push(bytes);
            if (answer.each)(Piece { token, text }) == Flow::Stop {
                return Some(at + 1);
            }
        }
        None
    }
}

/// An answer as it is being picked.
struct Answer<'a> {
    options: &'a Generate,
    chain: Chain,
    stops: &'a [u32],
    stream: Utf8Stream,
    each: &'a mut dyn FnMut(Piece<'_>) -> Flow,
    /// Tokens at most, and those so far.
    limit: usize,
    picked: usize,
    /// See [`Stats::submitting`].
    submitting: Duration,
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
