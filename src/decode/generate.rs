//! Generation: chains of tokens, cut at stop tokens and limits, out as text.

use super::follow::Follow;
use super::mail::News;
use super::request::{End, Picking, Wanted};
use super::rows::PICKS_MAX;
use super::sampling::tail;
use super::speculate::Guesser;
use super::steering::Steering;
use super::{Guesses, Sampling, Session, Speculate};
use crate::error::{Result, bail};
use crate::exec::state::{LogProbs, STOPS_MAX};
use crate::op::table::BIASES_MAX;
use crate::text::{CompiledGrammar, StopStrings, Utf8Stream};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    fn check(&self) -> Result<()> {
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
            }
        }
        Ok(answer.stats())
    }

    /// Begins to generate after the sequence. The model goes on while the pieces are taken, so that
    /// the answers of several sessions come together, on one thread or on many.
    ///
    /// # Errors
    ///
    /// As [`Session::generate`].
    pub fn answer(&mut self, options: &Generate) -> Result<Answer<'_>> {
        options.check()?;
        options.speculate.check(&self.model)?;
        self.check_sequence()?;
        let known = self.tokenizer().stops();
        let known = if options.ignore_stops { &[] } else { known };
        let stops = [&options.stop_tokens, known].concat();
        let (own, most) = (stops.len(), Generate::STOPS_MAX);
        if own > most {
            bail!(
                Argument,
                "{own} stop tokens with the model's own are over the limit of {most}"
            );
        }
        if let Some(grammar) = &options.grammar
            && !grammar.is_of(self.tokenizer())
        {
            bail!(Argument, "the grammar was compiled for another model");
        }
        let vocab = self.facts().vocab;
        let follow = options.grammar.as_ref().map(|g| Follow::new(g, vocab));
        let mut answer = Answer {
            follow,
            steering: Steering::new(&self.model, options)?,
            likeliest: Vec::new(),
            stops,
            stream: Utf8Stream::new(self.tokenizer().piece_bytes_max()),
            strings: StopStrings::new(&options.stop),
            options: options.clone(),
            limit: match options.max_tokens {
                0 => usize::MAX,
                n => n as usize,
            },
            picked: 0,
            taken: 0,
            finish: None,
            is_flushed: false,
            begun: Instant::now(),
            took: Duration::ZERO,
            submitting: Duration::ZERO,
            guesses: Guesses::default(),
            session: self,
        };
        answer.begin();
        Ok(answer)
    }

    /// Forgets the older half of what stands behind the first `keep` tokens.
    fn make_room(&mut self, keep: u32) {
        let context = self.facts().context as usize;
        let begins = self.tokens().first().copied() == self.tokenizer().bos();
        let keep = (keep as usize).max(usize::from(begins)).min(context / 2);
        self.shift(keep, (context - keep).div_ceil(2));
    }
}

/// An answer as it is being made.
///
/// Who drops it before its end has what was made so far in the session.
#[derive(Debug)]
pub struct Answer<'s> {
    session: &'s mut Session,
    options: Generate,
    steering: Steering,
    /// The likeliest tokens in the place of the last one.
    likeliest: Vec<LogProb>,
    stops: Vec<u32>,
    stream: Utf8Stream,
    strings: StopStrings,
    /// Tokens at most, and those so far.
    limit: usize,
    picked: usize,
    /// The length of the sequence up to the last token that was taken.
    taken: usize,
    /// Set once the model is done.
    finish: Option<Finish>,
    /// Whether what there was of an incomplete character has come.
    is_flushed: bool,
    begun: Instant,
    took: Duration,
    submitting: Duration,
    guesses: Guesses,
    /// Where it is in its grammar, while the model is not at it.
    follow: Option<Box<Follow>>,
}

impl Answer<'_> {
    /// Hands the sequence to the model.
    fn begin(&mut self) {
        let profile = self.session.profile();
        let longest = profile.chain_tokens.min(PICKS_MAX);
        self.taken = self.session.tokens().len();
        let so_far = (self.taken, self.picked);
        let sampler = self.steering.sampler(&self.options, &self.stops, so_far);
        let picking = Picking {
            tail: tail(&sampler),
            sampler,
            steering: self.steering.clone(),
            limit: self.limit - self.picked,
            chain: Chain::new(self.options.chain, longest),
            guesser: self.guesser(),
            follow: self.follow.take(),
        };
        self.session.start(Some(picking), Wanted::Nothing);
    }

    /// What makes guesses, where the model's tables can check them. What Mirostat learns, what a
    /// grammar lets through and what is told of tokens is of one row of a sequence at a time.
    fn guesser(&self) -> Option<Guesser> {
        let Generate {
            speculate,
            sampling,
            log_probs,
            grammar,
            ..
        } = &self.options;
        let facts = self.session.facts();
        let guesser = || Guesser::new(speculate, sampling, facts.context as usize);
        let one_by_one = grammar.is_some() || log_probs.is_some() || sampling.mirostat_tau > 0.0;
        (facts.speculates && !one_by_one).then(guesser).flatten()
    }

    /// Waits for the next piece; `None` behind the last one.
    ///
    /// # Errors
    ///
    /// `Device` and `DeviceLost`. The answer has ended then.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend what it yields"
    )]
    pub fn next(&mut self) -> Result<Option<Piece<'_>>> {
        while self.finish.is_none() {
            match self.session.news(None) {
                News::Fed(_) => {}
                News::End(end) => self.end(end)?,
                News::Picked(token, told) => {
                    self.picked += 1;
                    self.taken += 1;
                    if self.stops.contains(&token) {
                        continue;
                    }
                    let bytes = self.session.tokenizer().token_bytes(token);
                    self.strings.push(self.stream.push(bytes));
                    if self.strings.is_stopped() {
                        self.leave(Finish::Stop)?;
                    }
                    self.tell(told.as_ref());
                    return Ok(Some(Piece {
                        token,
                        text: self.strings.text(),
                        log_prob: told.map(|told| told.log_prob),
                        likeliest: &self.likeliest,
                    }));
                }
            }
        }
        if std::mem::replace(&mut self.is_flushed, true) {
            return Ok(None);
        }
        let token = self.session.tokens().last().copied().unwrap_or_default();
        let text = self.strings.flush(self.stream.flush());
        let piece = Piece {
            token,
            text,
            log_prob: None,
            likeliest: &[],
        };
        Ok((!text.is_empty()).then_some(piece))
    }

    /// Keeps so many of the likeliest tokens as were asked for.
    fn tell(&mut self, told: Option<&LogProbs>) {
        self.likeliest.clear();
        let Some(told) = told else { return };
        let wanted = self.options.log_probs.unwrap_or(0).min(told.count);
        let pairs = told.tokens.iter().zip(&told.log_probs);
        let pairs = pairs.map(|(&token, &log_prob)| LogProb { token, log_prob });
        self.likeliest.extend(pairs.take(wanted as usize));
    }

    /// Takes the sequence back, or begins anew where the context was full and shifts.
    fn end(&mut self, mut end: End) -> Result<()> {
        self.session.take_back(&mut end);
        self.submitting += end.submitting;
        self.guesses += end.guesses;
        self.follow = end.follow.take();
        self.took = self.begun.elapsed();
        let failed = |e| {
            self.finish = Some(Finish::Cancelled);
            e
        };
        let finish = end.finish.map_err(failed)?;
        let finish = finish.unwrap_or(Finish::Length);
        if let (Finish::Context, Overflow::Shift { keep }) = (finish, self.options.overflow)
            && self.picked < self.limit
        {
            self.session.make_room(keep);
            self.begin();
            return Ok(());
        }
        self.finish = Some(finish);
        Ok(())
    }

    /// Ends the answer here: what was taken stays in the sequence, and nothing behind it.
    ///
    /// # Errors
    ///
    /// As [`Answer::next`].
    pub fn stop(&mut self) -> Result<()> {
        self.leave(Finish::Callback)
    }

    fn leave(&mut self, finish: Finish) -> Result<()> {
        let mut ended = Ok(());
        if self.finish.is_none() {
            self.options.overflow = Overflow::Stop;
            self.session.enough();
            while self.finish.is_none() {
                if let News::End(end) = self.session.news(None) {
                    ended = self.end(end);
                }
            }
        }
        self.session.truncate(self.taken);
        self.finish = Some(finish);
        ended
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        let done = self.finish.is_some();
        Stats {
            tokens: u32::try_from(self.picked).unwrap_or(u32::MAX),
            took: if done {
                self.took
            } else {
                self.begun.elapsed()
            },
            submitting: self.session.profile().runs_ahead.then_some(self.submitting),
            guesses: self.guesses,
            finish: self.finish.unwrap_or(Finish::Callback),
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if self.finish.is_none() {
            // Nobody is left to be told of a failure.
            let _ = self.stop();
        }
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
