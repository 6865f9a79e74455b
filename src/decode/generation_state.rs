//! State of a generation: sampled tokens become text.

use super::burst::Burst;
use super::drafter::Drafter;
use super::end::End;
use super::free_output::{FreeOutput, FreeToken};
use super::generate::{GenerateOptions, Overflow};
use super::grammar_state::GrammarState;
use super::logit_biases::LogitBiases;
use super::model::Model;
use super::output_queue::OutputEvent;
use super::output_request::OutputRequest;
use super::outputs::{DraftStats, Finish, Logprob, Piece, Stats};
use super::rows::BURST_MAX;
use super::sampling::sampling_stage;
use super::sampling_request::SamplingRequest;
use super::session::Session;
use crate::error::{Result, bail};
use crate::op::params::{Logprobs, Sampler};
use crate::text::{StopStrings, Utf8Stream};
use std::collections::VecDeque;
use std::task::Poll;
use std::time::{Duration, Instant};

/// State of a generation, stored separately from its session. Every call takes the session.
#[derive(Debug)]
pub(super) struct GenerationState {
    options: GenerateOptions,
    logit_biases: LogitBiases,
    /// Token of the last piece, its log-probability, and the likeliest tokens.
    token: u32,
    logprob: Option<f32>,
    top_logprobs: Vec<Logprob>,
    stops: Vec<u32>,
    stream: Utf8Stream,
    stop_strings: StopStrings,
    /// Maximum and current number of generated tokens.
    limit: usize,
    sampled: usize,
    /// Length of the sequence up to the last returned token.
    returned: usize,
    /// Finish reason, once the model has ended.
    finish: Option<Finish>,
    /// Whether the held-back text was returned, or is dropped after an error.
    is_flushed: bool,
    started: Instant,
    /// Number of tokens in the KV cache when the generation began, and the time until the first token.
    prompt: Option<(usize, Duration)>,
    took: Duration,
    submitting: Duration,
    draft: DraftStats,
    /// Grammar state, while the model's thread does not own it. `None` while the output is free.
    grammar_state: Option<Box<GrammarState>>,
    /// State of the output before the grammar applies.
    free: Option<Box<FreeOutput>>,
    /// Tokens of the sequence that were appended instead of sampled ones and are not returned yet.
    appended: VecDeque<u32>,
}

impl GenerationState {
    /// Starts a generation.
    ///
    /// # Errors
    ///
    /// See [`Session::generate`].
    pub(super) fn start(session: &mut Session, options: &GenerateOptions) -> Result<Self> {
        let mut state = Self::new(session, options)?;
        session.check_sequence()?;
        options.speculate.assign_roles(&session.model)?;
        state.started = Instant::now();
        state.hand_over(session)?;
        Ok(state)
    }

    fn new(session: &Session, options: &GenerateOptions) -> Result<Self> {
        options.check(&session.model)?;
        let vocab = session.facts().vocab;
        let grammar = options.grammar.as_ref();
        let mut free = FreeOutput::new(options);
        if let Some(free) = &mut free {
            free.set_tokens(|marker| session.tokenizer().special_id(marker).is_some());
        }
        let grammar = grammar.filter(|_| free.is_none());
        Ok(Self {
            grammar_state: grammar.map(|g| GrammarState::new(g, vocab)),
            free,
            logit_biases: options.logit_biases(session.tokenizer(), vocab)?,
            token: 0,
            logprob: None,
            top_logprobs: Vec::new(),
            stops: options.all_stop_tokens(session.tokenizer()),
            stream: Utf8Stream::new(session.tokenizer().piece_bytes_max()),
            stop_strings: StopStrings::new(&options.stop),
            options: options.clone(),
            limit: options.max_tokens as usize,
            sampled: 0,
            returned: 0,
            finish: None,
            is_flushed: false,
            started: Instant::now(),
            prompt: None,
            took: Duration::ZERO,
            submitting: Duration::ZERO,
            draft: DraftStats::default(),
            appended: VecDeque::new(),
        })
    }

    /// Sends the sequence to the model's thread. Without further tokens to sample, it computes the prompt.
    fn hand_over(&mut self, session: &mut Session) -> Result<()> {
        let max_burst = session.profile().burst_tokens.min(BURST_MAX);
        let held = self.free.as_ref().map_or(0, |free| free.held_len());
        let unreturned = self.appended.len() + held;
        self.returned = session.tokens().len() - unreturned;
        let (len, sampled) = (session.tokens().len(), self.sampled + unreturned);
        let sampler = Sampler {
            masked: u32::from(self.is_constrained()),
            ..self
                .options
                .sampler(&self.logit_biases, &self.stops, len, sampled)
        };
        let sampling = SamplingRequest {
            stage: sampling_stage(&sampler),
            sampler,
            logit_biases: self.logit_biases.clone(),
            limit: self.limit.saturating_sub(sampled),
            burst: Burst::new(self.options.burst, max_burst),
            drafter: self.drafter(session),
            grammar_state: self.grammar_state.take(),
        };
        let sampling = (sampling.limit > 0).then_some(sampling);
        session.start(sampling, OutputRequest::Nothing)
    }

    /// Starts again after a failure, on another load of the model.
    ///
    /// # Errors
    ///
    /// See [`Generation::resume`](super::generation::Generation::resume).
    pub(super) fn resume_on(&mut self, session: &mut Session, model: &Model) -> Result<()> {
        if self.finish != Some(Finish::Failed) {
            bail!(State, "the generation has not failed");
        }
        if self.is_constrained() && self.grammar_state.is_none() {
            bail!(State, "the state of the grammar was lost");
        }
        self.options.speculate.check(model)?;
        self.options.speculate.assign_roles(model)?;
        session.move_to(model)?;
        (self.finish, self.is_flushed) = (None, false);
        self.hand_over(session).inspect_err(|_| self.fail())
    }

    /// Returns whether a grammar constrains the next token.
    fn is_constrained(&self) -> bool {
        self.options.grammar.is_some() && self.free.is_none()
    }

    /// Creates the drafter if the model can check draft tokens. Mirostat, grammars and
    /// log-probabilities require one row per pass.
    fn drafter(&self, session: &Session) -> Option<Drafter> {
        let GenerateOptions {
            speculate,
            sampling,
            logprobs,
            ..
        } = &self.options;
        let facts = session.facts();
        let drafter = || speculate.drafter(sampling, facts.context as usize);
        let single_row = self.is_constrained() || logprobs.is_some() || sampling.mirostat_tau > 0.0;
        (facts.speculates && !single_row).then(drafter).flatten()
    }

    /// Waits for the next piece, which [`GenerationState::piece`] then returns. Returns whether there
    /// is one.
    ///
    /// # Errors
    ///
    /// `Device` and `DeviceLost`. The generation has ended then.
    pub(super) fn next(&mut self, session: &mut Session) -> Result<bool> {
        while !self.check_ended(session) {
            let has_piece = match self.next_held() {
                Some((token, logprobs)) => self.deliver(session, token, logprobs.as_ref(), 0)?,
                None => {
                    let event = session.next_event(None);
                    self.handle_event(session, event)?
                }
            };
            if has_piece {
                return Ok(true);
            }
        }
        Ok(self.flush(session))
    }

    /// Polls for the next piece; see [`GenerationState::next`].
    ///
    /// # Errors
    ///
    /// See [`GenerationState::next`].
    pub(super) fn poll(&mut self, session: &mut Session) -> Poll<Result<bool>> {
        while !self.check_ended(session) {
            let has_piece = match self.next_held() {
                Some((token, logprobs)) => self.deliver(session, token, logprobs.as_ref(), 0)?,
                None => {
                    let Some(event) = session.try_next_event() else {
                        return Poll::Pending;
                    };
                    self.handle_event(session, event)?
                }
            };
            if has_piece {
                return Poll::Ready(Ok(true));
            }
        }
        Poll::Ready(Ok(self.flush(session)))
    }

    /// Returns whether the generation has ended. A cancellation ends it even if tokens are queued.
    fn check_ended(&mut self, session: &mut Session) -> bool {
        if !self.has_ended() && session.is_cancelled() {
            self.end_early(session, Finish::Cancelled);
            session.clear_cancel();
        }
        self.has_ended()
    }

    /// Handles an output event. Returns whether there is a new piece.
    fn handle_event(&mut self, session: &mut Session, event: OutputEvent) -> Result<bool> {
        let is_prompt_computed = match event {
            OutputEvent::Token(..) => true,
            OutputEvent::End(_) => self.limit == 0,
            OutputEvent::Progress(_) => false,
        };
        if self.prompt.is_none() && is_prompt_computed {
            self.prompt = Some((session.cached_at_first(), self.started.elapsed()));
        }
        match event {
            OutputEvent::Progress(_) => Ok(false),
            OutputEvent::End(end) => self.end(session, end).map(|()| false),
            OutputEvent::Token(token, logprobs) if self.free.is_some() => {
                self.handle_free(session, token, logprobs)
            }
            OutputEvent::Token(token, logprobs) => {
                self.deliver(session, token, logprobs.as_ref(), usize::MAX)
            }
        }
    }

    /// Adds a token to the output. Stop strings apply to its last `content` bytes. Returns whether there
    /// is a new piece.
    fn deliver(
        &mut self,
        session: &mut Session,
        token: u32,
        logprobs: Option<&Logprobs>,
        content: usize,
    ) -> Result<bool> {
        self.sampled += 1;
        self.returned += 1;
        if self.stops.contains(&token) {
            return Ok(false);
        }
        let bytes = session.tokenizer().token_bytes(token);
        match bytes.len().saturating_sub(content) {
            0 => self.stop_strings.push(self.stream.push(bytes)),
            skipped => {
                let (skipped, content) = bytes.split_at(skipped);
                self.stop_strings.skip(self.stream.push(skipped));
                self.stop_strings.append(self.stream.push(content));
            }
        }
        if self.stop_strings.is_stopped() {
            self.end_early(session, Finish::Stop);
        }
        self.token = token;
        self.set_logprobs(logprobs);
        Ok(true)
    }

    /// Handles a token that was sampled without the grammar. Returns whether there is a new piece.
    fn handle_free(
        &mut self,
        session: &mut Session,
        token: u32,
        logprobs: Option<Logprobs>,
    ) -> Result<bool> {
        let Some(free) = &mut self.free else {
            return self.deliver(session, token, logprobs.as_ref(), usize::MAX);
        };
        if let Some(text) = free.close_exhausted() {
            return self.close_reasoning(session, &text);
        }
        let mut kind = match self.stops.contains(&token) {
            true => free.push_stop_token(),
            false => free.push(session.tokenizer().token_bytes_with_special(token)),
        };
        let content = free.content_bytes();
        self.free.take_if(|free| free.is_finished());
        while let FreeToken::Trigger(rest) = kind {
            if let Some(grammar_state) = self.grammar_after(session, &rest) {
                let has_piece = self.deliver(session, token, logprobs.as_ref(), content)?;
                if !self.has_ended() {
                    self.interrupt(session);
                    self.resume(session, Some(grammar_state))?;
                }
                return Ok(has_piece);
            }
            kind = self
                .free
                .as_mut()
                .map_or(FreeToken::Output, |free| free.next_trigger());
        }
        match kind {
            FreeToken::Undecided | FreeToken::Reasoning => {
                if let Some(free) = &mut self.free {
                    free.hold(token, logprobs);
                }
                Ok(false)
            }
            FreeToken::Rejected => self.replace(session, ""),
            FreeToken::Replaced(text) => self.replace(session, &text),
            FreeToken::Close(kept) => self.replace_close(session, token, kept),
            FreeToken::Output | FreeToken::Trigger(_) => {
                self.deliver(session, token, logprobs.as_ref(), content)
            }
        }
    }

    /// Returns the next token that was held back or appended.
    fn next_held(&mut self) -> Option<(u32, Option<Logprobs>)> {
        let held = self.free.as_mut().and_then(|free| free.next_held());
        held.or_else(|| Some((self.appended.pop_front()?, None)))
    }

    /// Returns the state of the grammar after a text; `None` if the grammar does not allow it.
    fn grammar_after(&self, session: &Session, text: &[u8]) -> Option<Box<GrammarState>> {
        let grammar = self.options.grammar.as_ref()?;
        let mut grammar_state = GrammarState::new(grammar, session.facts().vocab);
        grammar_state.accept_text(text).ok()?;
        Some(grammar_state)
    }

    /// Handles a token whose first `kept` bytes complete the closing marker of reasoning: replaces it
    /// by tokens of these bytes, after which the grammar applies. Returns whether there is a new
    /// piece.
    fn replace_close(&mut self, session: &mut Session, token: u32, kept: usize) -> Result<bool> {
        let bytes = &session.tokenizer().token_bytes_with_special(token)[..kept];
        match str::from_utf8(bytes).map(str::to_string) {
            Ok(text) => self.replace(session, &text),
            Err(_) => self.deliver(session, token, None, 0),
        }
    }

    /// Replaces the tokens that were not returned by a text, after which the grammar applies. Returns that
    /// there is no new piece.
    fn replace(&mut self, session: &mut Session, text: &str) -> Result<bool> {
        self.interrupt(session);
        self.append(session, text)?;
        let grammar_state = self.grammar_after(session, &[]);
        self.resume(session, grammar_state)?;
        Ok(false)
    }

    /// Replaces the tokens that were not returned by a text that closes the reasoning. Returns that there
    /// is no new piece.
    fn close_reasoning(&mut self, session: &mut Session, text: &str) -> Result<bool> {
        self.interrupt(session);
        self.append(session, text)?;
        let is_before_grammar = self.free.as_ref().is_some_and(|f| f.is_before_grammar());
        let grammar_state = self.grammar_after(session, &[]);
        self.resume(session, grammar_state.filter(|_| is_before_grammar))?;
        Ok(false)
    }

    /// Ends the running request, and removes the tokens that were not returned.
    fn interrupt(&mut self, session: &mut Session) {
        session.request_stop();
        loop {
            if let OutputEvent::End(end) = session.next_event(None) {
                // The next request fails again if the device has failed.
                let _ = self.take_back(session, end);
                session.truncate(self.returned);
                return;
            }
        }
    }

    /// Appends the tokens of a text to the sequence and to the output, as far as the limits allow.
    fn append(&mut self, session: &mut Session, text: &str) -> Result<()> {
        let encoded = session.tokenizer().encode_markers(text);
        let mut tokens = encoded.inspect_err(|_| self.fail())?;
        tokens.truncate(self.limit - self.sampled);
        let context = session.facts().context as usize;
        if let Overflow::Shift { n_keep } = self.options.overflow
            && session.tokens().len() + tokens.len() > context
        {
            session.shift_context(n_keep);
        }
        // A token at the end of the context is output, but is not computed.
        tokens.truncate((context + 1).saturating_sub(session.tokens().len()));
        for token in &tokens {
            session.sequence.push_sampled(*token);
        }
        self.appended.extend(tokens);
        Ok(())
    }

    /// Starts a request after the sequence, with the grammar from its first token if there is a state.
    fn resume(
        &mut self,
        session: &mut Session,
        grammar_state: Option<Box<GrammarState>>,
    ) -> Result<()> {
        if grammar_state.is_some() {
            self.free = None;
        }
        self.grammar_state = grammar_state;
        self.hand_over(session).inspect_err(|_| self.fail())
    }

    /// Creates the final piece from held-back text, once. Returns whether there is any.
    fn flush(&mut self, session: &Session) -> bool {
        if std::mem::replace(&mut self.is_flushed, true) {
            return false;
        }
        self.token = session.tokens().last().copied().unwrap_or_default();
        self.set_logprobs(None);
        !self.stop_strings.flush(self.stream.flush()).is_empty()
    }

    /// Returns the current piece.
    pub(super) fn piece(&self) -> Piece<'_> {
        Piece {
            token: self.token,
            text: self.stop_strings.text(),
            logprob: self.logprob,
            top_logprobs: &self.top_logprobs,
            is_flush: self.is_flushed,
        }
    }

    /// Stores the log-probabilities that were requested.
    fn set_logprobs(&mut self, logprobs: Option<&Logprobs>) {
        self.top_logprobs.clear();
        self.logprob = logprobs.map(|logprobs| logprobs.logprob);
        let Some(logprobs) = logprobs else { return };
        let count = self.options.logprobs.unwrap_or(0).min(logprobs.count);
        let pairs = logprobs.tokens.iter().zip(&logprobs.logprobs);
        let pairs = pairs.map(|(&token, &logprob)| Logprob { token, logprob });
        self.top_logprobs.extend(pairs.take(count as usize));
    }

    /// Handles the end of a request. Starts again after a context shift if the context was full.
    fn end(&mut self, session: &mut Session, end: End) -> Result<()> {
        let finish = self.take_back(session, end);
        let finish = finish.inspect_err(|_| self.fail())?;
        if finish == Finish::Cancelled {
            session.clear_cancel();
        }
        let is_undecided = self.free.as_ref().is_some_and(|free| free.is_undecided());
        if is_undecided && finish != Finish::Cancelled {
            // Held tokens are not output.
            if let Some(grammar_state) = self.grammar_after(session, &[]) {
                session.truncate(self.returned);
                return self.resume(session, Some(grammar_state));
            }
        }
        if let (Finish::Context, Overflow::Shift { n_keep }) = (finish, self.options.overflow)
            && self.sampled < self.limit
        {
            session.shift_context(n_keep);
            return self.hand_over(session).inspect_err(|_| self.fail());
        }
        if is_undecided {
            session.truncate(self.returned);
        }
        self.finish = Some(finish);
        Ok(())
    }

    /// Takes the sequence back from the model's thread. Returns why the request ended.
    fn take_back(&mut self, session: &mut Session, mut end: End) -> Result<Finish> {
        session.take_back(&mut end);
        self.submitting += end.submitting;
        self.draft += end.draft;
        self.grammar_state = end.grammar_state.take();
        self.took = self.started.elapsed();
        Ok(end.finish?.unwrap_or(Finish::Length))
    }

    /// Ends the generation after an error.
    fn fail(&mut self) {
        self.finish = Some(Finish::Failed);
        self.is_flushed = true;
    }

    /// Ends the generation if it runs. The sequence keeps the tokens of the pieces returned so far,
    /// and no others.
    pub(super) fn stop(&mut self, session: &mut Session) {
        if !self.has_ended() {
            self.end_early(session, Finish::Callback);
        }
    }

    /// Ends the generation before its limit. Nothing more is needed of the model, so that its errors do not matter.
    fn end_early(&mut self, session: &mut Session, finish: Finish) {
        if self.finish.is_none() {
            self.options.overflow = Overflow::Stop;
            session.request_stop();
            while self.finish.is_none() {
                if let OutputEvent::End(end) = session.next_event(None) {
                    let _ = self.end(session, end);
                }
            }
            self.is_flushed = false;
        }
        session.truncate(self.returned);
        self.finish = Some(finish);
    }

    /// Returns whether the generation has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.finish.is_some()
    }

    /// Returns the stop string that ended the output.
    pub(super) fn stop_string(&self) -> Option<&str> {
        self.stop_strings.found()
    }

    /// Returns the statistics so far.
    pub(super) fn stats(&self, session: &Session) -> Stats {
        let done = self.has_ended();
        let (prompt_cached, prompt_took) = self.prompt.unwrap_or_default();
        Stats {
            tokens: u32::try_from(self.sampled).unwrap_or(u32::MAX),
            prompt_cached: u32::try_from(prompt_cached).unwrap_or(u32::MAX),
            prompt_took,
            took: if done {
                self.took
            } else {
                self.started.elapsed()
            },
            submitting: session.profile().asynchronous.then_some(self.submitting),
            draft: self.draft,
            finish: self.finish,
        }
    }
}
