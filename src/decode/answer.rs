//! Answers as they are being made: what the model picks, out as text.

use super::burst::Burst;
use super::drafter::Drafter;
use super::end::End;
use super::generate::{GenerateOptions, Overflow};
use super::grammar_state::GrammarState;
use super::logit_biases::LogitBiases;
use super::output_queue::OutputEvent;
use super::output_request::OutputRequest;
use super::outputs::{DraftStats, Finish, Flow, LogProb, Piece, Stats};
use super::rows::PICKS_MAX;
use super::sampling::tail;
use super::sampling_request::SamplingRequest;
use super::session::Session;
use crate::error::{Result, bail};
use crate::exec::state::LogProbs;
use crate::text::{StopStrings, Utf8Stream};
use std::task::Poll;
use std::time::{Duration, Instant};

impl Session {
    /// Generates after the sequence; every piece goes to `each`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` for options out of range, `Device` and
    /// `DeviceLost`.
    pub fn generate(
        &mut self,
        options: &GenerateOptions,
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

    /// Begins to generate after the sequence. The model goes on while the pieces are taken, so that
    /// the answers of several sessions come together, on one thread or on many.
    ///
    /// # Errors
    ///
    /// As [`Session::generate`].
    pub fn answer(&mut self, options: &GenerateOptions) -> Result<Answer<'_>> {
        let mut state = AnswerState::prepare(self, options)?;
        state.begin(self)?;
        Ok(Answer {
            session: self,
            state,
        })
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
    state: AnswerState,
}

impl Answer<'_> {
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
        let more = self.state.next(self.session)?;
        Ok(more.then(|| self.state.piece()))
    }

    /// Ends the answer here: what was taken stays in the sequence, and nothing behind it.
    ///
    /// # Errors
    ///
    /// As [`Answer::next`].
    pub fn stop(&mut self) -> Result<()> {
        self.state.stop(self.session)
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.state.stats(self.session)
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if !self.state.has_ended() {
            // Nobody is left to be told of a failure.
            let _ = self.stop();
        }
    }
}

/// An answer apart from its session, which every call takes.
#[derive(Debug)]
pub struct AnswerState {
    options: GenerateOptions,
    steering: LogitBiases,
    /// The token of the last piece, how likely it was, and the likeliest in its place.
    token: u32,
    log_prob: Option<f32>,
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
    guesses: DraftStats,
    /// Where it is in its grammar, while the model is not at it.
    follow: Option<Box<GrammarState>>,
}

impl AnswerState {
    /// Checks the options, and makes what an answer needs beside its sequence.
    ///
    /// # Errors
    ///
    /// As [`Session::generate`], but for the sequence.
    pub fn prepare(session: &Session, options: &GenerateOptions) -> Result<Self> {
        options.check()?;
        options.speculate.check(&session.model)?;
        let known = session.tokenizer().stops();
        let known = if options.ignore_stops { &[] } else { known };
        let stops = [&options.stop_tokens, known].concat();
        let (own, most) = (stops.len(), GenerateOptions::STOPS_MAX);
        if own > most {
            bail!(
                Argument,
                "{own} stop tokens with the model's own are over the limit of {most}"
            );
        }
        let vocab = session.facts().vocab;
        if let Some(bad) = options.stop_tokens.iter().find(|token| **token >= vocab) {
            bail!(
                Argument,
                "stop token {bad} is outside the vocabulary of {vocab}"
            );
        }
        if let Some(grammar) = &options.grammar
            && !grammar.is_for(session.tokenizer())
        {
            bail!(Argument, "the grammar was compiled for another model");
        }
        let follow = options
            .grammar
            .as_ref()
            .map(|g| GrammarState::new(g, vocab));
        Ok(Self {
            follow,
            steering: options.steering(session.tokenizer(), vocab)?,
            token: 0,
            log_prob: None,
            likeliest: Vec::new(),
            stops,
            stream: Utf8Stream::new(session.tokenizer().piece_bytes_max()),
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
            guesses: DraftStats::default(),
        })
    }

    /// Hands the sequence to the model.
    ///
    /// # Errors
    ///
    /// `State` where it is empty, or where the draft model has another part.
    pub fn begin(&mut self, session: &mut Session) -> Result<()> {
        session.check_sequence()?;
        self.options.speculate.take_roles(&session.model)?;
        self.begun = Instant::now();
        self.hand_over(session)
    }

    /// Hands the sequence to the model.
    fn hand_over(&mut self, session: &mut Session) -> Result<()> {
        let longest = session.profile().chain_tokens.min(PICKS_MAX);
        self.taken = session.tokens().len();
        let so_far = (self.taken, self.picked);
        let sampler = self.options.sampler(&self.steering, &self.stops, so_far);
        let picking = SamplingRequest {
            tail: tail(&sampler),
            sampler,
            steering: self.steering.clone(),
            limit: self.limit - self.picked,
            chain: Burst::new(self.options.chain, longest),
            guesser: self.guesser(session),
            follow: self.follow.take(),
        };
        session.start(Some(picking), OutputRequest::Nothing)
    }

    /// What makes guesses, where the model's tables can check them. What Mirostat learns, what a
    /// grammar lets through and what is told of tokens is of one row of a sequence at a time.
    fn guesser(&self, session: &Session) -> Option<Drafter> {
        let GenerateOptions {
            speculate,
            sampling,
            log_probs,
            grammar,
            ..
        } = &self.options;
        let facts = session.facts();
        let guesser = || speculate.guesser(sampling, facts.context as usize);
        let one_by_one = grammar.is_some() || log_probs.is_some() || sampling.mirostat_tau > 0.0;
        (facts.speculates && !one_by_one).then(guesser).flatten()
    }

    /// Waits for the next piece, which [`AnswerState::piece`] has then. Returns whether there is one.
    ///
    /// # Errors
    ///
    /// `Device` and `DeviceLost`. The answer has ended then.
    pub fn next(&mut self, session: &mut Session) -> Result<bool> {
        while !self.is_over(session)? {
            let news = session.news(None);
            if self.hear(session, news)? {
                return Ok(true);
            }
        }
        Ok(self.flush(session))
    }

    /// As [`AnswerState::next`], without a wait.
    ///
    /// # Errors
    ///
    /// As [`AnswerState::next`].
    pub(super) fn poll(&mut self, session: &mut Session) -> Poll<Result<bool>> {
        while !self.is_over(session)? {
            let Some(news) = session.try_news() else {
                return Poll::Pending;
            };
            if self.hear(session, news)? {
                return Poll::Ready(Ok(true));
            }
        }
        Poll::Ready(Ok(self.flush(session)))
    }

    /// Whether the answer has ended. It does where someone asked to stop, whatever tokens there are.
    fn is_over(&mut self, session: &mut Session) -> Result<bool> {
        if !self.has_ended() && session.is_cancelled() {
            self.leave(session, Finish::Cancelled)?;
            session.forget_cancel();
        }
        Ok(self.has_ended())
    }

    /// Takes news. Returns whether a piece came of it.
    fn hear(&mut self, session: &mut Session, news: OutputEvent) -> Result<bool> {
        let (token, told) = match news {
            OutputEvent::Fed(_) => return Ok(false),
            OutputEvent::End(end) => return self.end(session, end).map(|()| false),
            OutputEvent::SampledTokens(token, told) => (token, told),
        };
        self.picked += 1;
        self.taken += 1;
        if self.stops.contains(&token) {
            return Ok(false);
        }
        let bytes = session.tokenizer().token_bytes(token);
        self.strings.push(self.stream.push(bytes));
        if self.strings.is_stopped() {
            self.leave(session, Finish::Stop)?;
        }
        self.token = token;
        self.tell(told.as_ref());
        Ok(true)
    }

    /// Makes a piece of what there is of a character or a stop string that did not come to its end, once.
    fn flush(&mut self, session: &Session) -> bool {
        if std::mem::replace(&mut self.is_flushed, true) {
            return false;
        }
        self.token = session.tokens().last().copied().unwrap_or_default();
        self.tell(None);
        !self.strings.flush(self.stream.flush()).is_empty()
    }

    /// The last piece.
    pub fn piece(&self) -> Piece<'_> {
        Piece {
            token: self.token,
            text: self.strings.text(),
            log_prob: self.log_prob,
            likeliest: &self.likeliest,
            is_rest: self.is_flushed,
        }
    }

    /// Keeps how likely the token was, and so many of the likeliest as were asked for.
    fn tell(&mut self, told: Option<&LogProbs>) {
        self.likeliest.clear();
        self.log_prob = told.map(|told| told.log_prob);
        let Some(told) = told else { return };
        let wanted = self.options.log_probs.unwrap_or(0).min(told.count);
        let pairs = told.tokens.iter().zip(&told.log_probs);
        let pairs = pairs.map(|(&token, &log_prob)| LogProb { token, log_prob });
        self.likeliest.extend(pairs.take(wanted as usize));
    }

    /// Takes the sequence back, or begins anew where the context was full and shifts.
    fn end(&mut self, session: &mut Session, mut end: End) -> Result<()> {
        session.take_back(&mut end);
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
        if finish == Finish::Cancelled {
            session.forget_cancel();
        }
        if let (Finish::Context, Overflow::Shift { keep }) = (finish, self.options.overflow)
            && self.picked < self.limit
        {
            session.make_room(keep);
            return self.hand_over(session);
        }
        self.finish = Some(finish);
        Ok(())
    }

    /// Ends the answer here: what was taken stays in the sequence, and nothing behind it.
    ///
    /// # Errors
    ///
    /// As [`Answer::next`].
    pub fn stop(&mut self, session: &mut Session) -> Result<()> {
        self.leave(session, Finish::Callback)
    }

    fn leave(&mut self, session: &mut Session, finish: Finish) -> Result<()> {
        let mut ended = Ok(());
        if self.finish.is_none() {
            self.options.overflow = Overflow::Stop;
            session.enough();
            while self.finish.is_none() {
                if let OutputEvent::End(end) = session.news(None) {
                    ended = self.end(session, end);
                }
            }
        }
        session.truncate(self.taken);
        self.finish = Some(finish);
        ended
    }

    /// Whether the model is done with it.
    pub fn has_ended(&self) -> bool {
        self.finish.is_some()
    }

    /// What was done so far.
    pub fn stats(&self, session: &Session) -> Stats {
        let done = self.has_ended();
        Stats {
            tokens: u32::try_from(self.picked).unwrap_or(u32::MAX),
            took: if done {
                self.took
            } else {
                self.begun.elapsed()
            },
            submitting: session.profile().runs_ahead.then_some(self.submitting),
            guesses: self.guesses,
            finish: self.finish.unwrap_or(Finish::Callback),
        }
    }
}
