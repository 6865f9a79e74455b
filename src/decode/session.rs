//! A session: the tokens of one sequence. While the model processes the sequence, the model's
//! thread owns the tokens.

use super::captured::Captured;
use super::end::End;
use super::hooks::{AdapterScales, Hooks};
use super::model::Model;
use super::notifier::Notifier;
use super::output_queue::{OutputEvent, OutputQueue};
use super::output_request::OutputRequest;
use super::outputs::Finish;
use super::request::{IfBusy, Request};
use super::rows::zeroed;
use super::sampling::Sampling;
use super::sampling_request::{LogprobsMode, SamplingRequest};
use super::sequence::Sequence;
use crate::cancel::Cancel;
use crate::device::Profile;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::exec::CommandTiming;
use crate::model::Facts;
use crate::op::table::Table;
use crate::text::{ChatTemplates, Tokenizer};
use std::sync::Arc;
use std::time::Duration;

/// One sequence of tokens of a model: [`prefill`](Session::prefill) appends a prompt,
/// [`generate`](Session::generate) appends generated tokens. Sessions of one model can run on
/// different threads; the model decodes them in batches.
///
/// The KV cache of a session remains in the prefix cache of the model while there is room. Later
/// prefills with the same prefix reuse it: of this session, of a [fork](Session::fork), or of any
/// other session of the model.
#[derive(Debug)]
pub struct Session {
    pub(super) model: Model,
    pub(super) sequence: Sequence,
    /// Number of tokens that were in the KV cache after the last request.
    pub(super) cached: usize,
    /// Number of tokens that were computed for this session.
    pub(super) computed: u64,
    /// Which cached tokens this session reuses.
    reuse: Reuse,
    pub(super) hooks: Option<Hooks>,
    /// Scales of the adapters of the hooks.
    pub(super) adapters: Option<AdapterScales>,
    /// Values that the hooks captured.
    pub(super) captured: Option<Captured>,
    output_queue: Arc<OutputQueue>,
    cancel: Cancel,
    /// Whether a request of this session is running.
    is_running: bool,
    if_busy: IfBusy,
}

/// Which cached tokens a session reuses.
#[derive(Clone, Copy, Debug)]
enum Reuse {
    /// Tokens of every sequence with the same prefix.
    Shared,
    /// Only tokens computed for this session.
    Own,
}

impl Session {
    /// Creates a session with an empty sequence.
    pub fn new(model: Model) -> Self {
        Self::with(model, IfBusy::Wait, None)
    }

    /// Creates a session with a policy for a busy model and a notifier for its output.
    pub(super) fn with(model: Model, if_busy: IfBusy, notifier: Option<Arc<Notifier>>) -> Self {
        Self {
            sequence: Sequence::default(),
            cached: 0,
            computed: 0,
            reuse: Reuse::Shared,
            hooks: None,
            adapters: None,
            captured: None,
            output_queue: Arc::new(OutputQueue::new(notifier)),
            is_running: false,
            if_busy,
            cancel: Cancel::new(),
            model,
        }
    }

    /// Creates a session with the same sequence. The two share the KV cache of the common prefix;
    /// nothing is recomputed or copied.
    ///
    /// # Errors
    ///
    /// `Memory` if the tokens cannot be allocated.
    pub fn fork(&self) -> Result<Self> {
        let mut fork = Self::new(self.model.clone());
        fork.reserve()?;
        fork.sequence.copy_from(&self.sequence);
        fork.cached = self.cached;
        fork.reuse = self.reuse;
        fork.hooks.clone_from(&self.hooks);
        fork.adapters.clone_from(&self.adapters);
        fork.captured.clone_from(&self.captured);
        Ok(fork)
    }

    /// Reserves memory for a full context.
    fn reserve(&mut self) -> Result<()> {
        let context = self.model.facts().context as usize;
        self.sequence.reserve(context + 1)
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the properties of the model.
    pub fn facts(&self) -> &Facts {
        self.model.facts()
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.model.tokenizer()
    }

    /// Returns the chat templates of the model files.
    pub fn chat_templates(&self) -> &ChatTemplates {
        self.model.chat_templates()
    }

    /// Returns the properties of the device.
    pub fn profile(&self) -> &Profile {
        self.model.profile()
    }

    /// Returns a handle that cancels this session from any thread.
    pub fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Clears a pending cancellation.
    pub fn clear_cancel(&mut self) {
        self.cancelled();
    }

    /// Returns whether a cancellation is pending.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_pending()
    }

    /// Returns whether a cancellation was pending, and clears it.
    pub(super) fn cancelled(&self) -> bool {
        self.cancel.take_pending()
    }

    /// Starts to time every command of the model, for all sessions, and clears earlier timings.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device cannot time commands.
    pub fn time_commands(&mut self) -> Result<()> {
        self.model
            .call(|engine| engine.linked.executor.time_commands())
    }

    /// Stops timing. Recorded timings are kept.
    ///
    /// # Errors
    ///
    /// `Poisoned` if the model's thread has ended.
    pub fn end_timing(&mut self) -> Result<()> {
        self.model.call(|engine| {
            engine.linked.executor.end_timing();
            Ok(())
        })
    }

    /// Returns each table of the model with the timings of its commands.
    ///
    /// # Errors
    ///
    /// `Poisoned` if the model's thread has ended.
    pub fn command_timings(&self) -> Result<Vec<(&Table, Vec<CommandTiming>)>> {
        let timings = self.model.call(|engine| {
            let tables = 0..engine.linked.tables.len();
            let timings = tables.map(|at| engine.linked.executor.command_timings(at).to_vec());
            Ok(timings.collect::<Vec<_>>())
        })?;
        Ok(self.model.tables().iter().zip(timings).collect())
    }

    /// Disables prefix caching for this session and its forks, for example in benchmarks. The model
    /// then computes every token that was not computed for this session, even if the prefix cache
    /// contains it. Other sessions still reuse the cache of this one.
    ///
    /// [`LoadOptions::prefix_bytes`](crate::load::LoadOptions::prefix_bytes) limits the prefix cache of a
    /// model.
    pub fn disable_prefix_caching(&mut self) {
        self.reuse = Reuse::Own;
    }

    /// Returns the number of tokens that the model computed for this session since it was created
    /// or forked. Tokens from the prefix cache are not counted. Checked draft tokens are counted,
    /// accepted or not, and recomputed tokens are counted again.
    pub fn computed_tokens(&self) -> u64 {
        self.computed
    }

    /// Returns all tokens of the sequence: prompt tokens and generated tokens.
    pub fn tokens(&self) -> &[u32] {
        self.sequence.tokens()
    }

    /// Continues the session on another load of its model, for example after the error `DeviceLost`. The tokens are
    /// kept, and computed again when they are needed. Sampling with the same seed then gives the tokens that the first
    /// load would have given; on another device they may differ, as anywhere.
    ///
    /// # Errors
    ///
    /// `Argument` for another model, `TooLarge` if its context is too short, `State` if the session has hooks, which
    /// belong to a load, or if a model file has changed. The session is unchanged then.
    pub fn move_to(&mut self, model: &Model) -> Result<()> {
        if self.hooks.is_some() {
            bail!(
                State,
                "the hooks of the session belong to its model: remove them before it moves"
            );
        }
        if self.model.digest()? != model.digest()? {
            bail!(Argument, "the session belongs to another model");
        }
        let (tokens, context) = (self.sequence.len(), model.facts().context);
        // The last token needs no position.
        if tokens > context as usize + 1 {
            bail!(
                TooLarge,
                "{tokens} tokens exceed the context of {context} positions"
            );
        }
        self.end_leaked();
        self.model = model.clone();
        self.cached = 0;
        Ok(())
    }

    /// Removes all tokens.
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Removes all tokens after the first `keep`.
    pub fn truncate(&mut self, keep: usize) {
        self.sequence.truncate(keep);
        self.cached = self.cached.min(self.sequence.len());
        self.truncate_captured(keep);
    }

    /// Removes `count` tokens after the first `keep`. The tokens after them move to lower
    /// positions, and are recomputed there when they are needed.
    pub fn shift(&mut self, keep: usize, count: usize) {
        let keep = keep.min(self.sequence.len());
        let end = keep.saturating_add(count).min(self.sequence.len());
        self.sequence.remove(keep..end);
        self.cached = self.cached.min(keep);
        self.truncate_captured(keep);
    }

    /// Appends tokens to the sequence and computes their KV cache, so that the next token can be
    /// sampled.
    ///
    /// # Errors
    ///
    /// `TooLarge` if the tokens exceed the context, `Argument` for a token outside the vocabulary;
    /// the sequence is unchanged then. `Cancelled` after [`Cancel::cancel`]; tokens of completed
    /// chunks stay in the sequence.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        self.prefill_with(tokens, |_, _| {})
    }

    /// Same as [`prefill`](Self::prefill). `progress` receives the number of computed tokens and the
    /// total after every chunk.
    ///
    /// # Errors
    ///
    /// See [`Session::prefill`].
    pub fn prefill_with(
        &mut self,
        tokens: &[u32],
        mut progress: impl FnMut(usize, usize),
    ) -> Result<()> {
        let before = self.sequence.len();
        self.append(tokens)?;
        self.check_sequence()?;
        let result = self
            .compute(OutputRequest::Nothing, &mut progress)
            .map(drop);
        if result.is_err() {
            // Earlier tokens may be uncached after a shift or a truncation: keep them.
            self.truncate(before.max(self.cached));
        }
        result
    }

    /// Appends tokens to the sequence without computing them. The next call that needs their KV
    /// cache computes them, for example [`generate`](Session::generate) or
    /// [`prefill`](Session::prefill) of further tokens. With [`generate`](Session::generate), prompt
    /// and output are then one request: the session does not release its slot between them, and
    /// the call returns before the prompt is computed.
    ///
    /// # Errors
    ///
    /// `TooLarge` if the tokens exceed the context, `Argument` for a token outside the vocabulary,
    /// `State` for an encoder or a speech model, `Memory`. The sequence is unchanged then.
    pub fn append(&mut self, tokens: &[u32]) -> Result<()> {
        let facts = self.model.facts();
        if self.model.is_encoder() {
            bail!(
                State,
                "the model is an encoder: it computes embeddings or scores of texts and cannot generate text"
            );
        }
        if self.model.speech().is_some() {
            bail!(State, "the model is a speech model: it transcribes audio");
        }
        let needed = self.sequence.len().saturating_add(tokens.len());
        if needed > facts.context as usize {
            let context = facts.context;
            bail!(
                TooLarge,
                "{needed} tokens exceed the context of {context} positions"
            );
        }
        if let Some(bad) = tokens.iter().find(|t| **t >= facts.vocab) {
            let vocab = facts.vocab;
            bail!(Argument, "token {bad} is outside the vocabulary of {vocab}");
        }
        self.reserve()?;
        self.sequence.push_prompt(tokens);
        Ok(())
    }

    /// Appends a token as if it had been sampled: the step table computes it, not the chunk table.
    ///
    /// # Errors
    ///
    /// See [`Session::prefill`].
    pub fn force(&mut self, token: u32) -> Result<()> {
        let before = self.sequence.len();
        self.append(&[token])?;
        self.sequence.truncate(before);
        self.sequence.push_sampled(token);
        let result = self
            .compute(OutputRequest::Nothing, &mut |_, _| {})
            .map(drop);
        if result.is_err() {
            self.truncate(before.max(self.cached));
        }
        result
    }

    /// Samples the next token and appends it to the sequence.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence or a full context, `Argument` for sampling parameters out of
    /// range.
    pub fn step(&mut self, sampling: &Sampling) -> Result<u32> {
        sampling.check()?;
        self.check_not_full()?;
        self.sample_tokens(SamplingRequest::one(sampling))?;
        let token = self.sequence.tokens().last();
        token
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "no token was sampled"))
    }

    /// Samples tokens and appends them to the sequence, up to the limit of `sampling` or a full
    /// context.
    pub(super) fn sample_tokens(&mut self, sampling: SamplingRequest) -> Result<()> {
        let total = self.sequence.len();
        self.start(Some(sampling), OutputRequest::Nothing)?;
        self.finish(total, &mut |_, _| {}).map(drop)
    }

    /// Samples a token without appending it. Different seeds give independent samples from the same
    /// logits.
    ///
    /// # Errors
    ///
    /// See [`Session::step`].
    pub fn draw(&mut self, sampling: &Sampling) -> Result<u32> {
        let before = self.sequence.len();
        let token = self.step(sampling);
        self.truncate(before);
        token
    }

    /// Computes the logits after the last token, `[vocab]`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` if `out` has the wrong length.
    pub fn logits(&mut self, out: &mut [f32]) -> Result<()> {
        self.check_sequence()?;
        let vocab = self.facts().vocab as usize;
        if out.len() != vocab {
            let found = out.len();
            bail!(Argument, "expected {vocab} logits, got {found}");
        }
        self.check_not_full()?;
        let logits = self.compute(OutputRequest::Logits(vec![0.0; vocab]), &mut |_, _| {})?;
        out.copy_from_slice(&logits);
        Ok(())
    }

    /// Checks that the sequence is not empty.
    pub(super) fn check_sequence(&self) -> Result<()> {
        if self.sequence.len() == 0 {
            match self.tokenizer().bos() {
                Some(_) => bail!(State, "the sequence is empty: prefill a prompt first"),
                None => bail!(
                    State,
                    "the sequence is empty: prefill a prompt of at least one token; an empty text has none, because the model has no BOS token"
                ),
            }
        }
        Ok(())
    }

    pub(super) fn check_not_full(&self) -> Result<()> {
        self.check_sequence()?;
        let context = self.facts().context;
        if self.sequence.len() > context as usize {
            bail!(State, "the context of {context} positions is full");
        }
        Ok(())
    }

    /// Computes the logits after every token, `[tokens, vocab]`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` if `out` has the wrong length, `Memory`.
    pub fn logits_all(&mut self, out: &mut [f32]) -> Result<()> {
        self.check_sequence()?;
        let (vocab, total) = (self.facts().vocab as usize, self.sequence.len());
        let numbers = total.saturating_mul(vocab);
        if out.len() != numbers {
            let found = out.len();
            bail!(
                Argument,
                "expected {numbers} logits for {total} tokens, got {found}"
            );
        }
        self.check_not_full()?;
        let buffer = zeroed(numbers)?;
        out.copy_from_slice(&self.compute(OutputRequest::AllLogits(buffer), &mut |_, _| {})?);
        Ok(())
    }

    /// Computes the hidden states of a text in a separate session.
    pub(super) fn hidden(&self, text: &[u32], hidden: Vec<f32>) -> Result<Vec<f32>> {
        let mut session = self.detached(text)?;
        session.compute(OutputRequest::Hidden(hidden), &mut |_, _| {})
    }

    /// Creates a separate session with these tokens and the cancellation of this one.
    pub(super) fn detached(&self, text: &[u32]) -> Result<Self> {
        let mut session = Self::new(self.model.clone());
        session.cancel = self.cancel.clone();
        session.reuse = self.reuse;
        session.hooks.clone_from(&self.hooks);
        session.adapters.clone_from(&self.adapters);
        session.append(text)?;
        Ok(session)
    }

    /// Computes the whole sequence and returns the requested output.
    pub(super) fn compute(
        &mut self,
        output: OutputRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        self.compute_output(output, progress)
            .map(OutputRequest::into_values)
    }

    /// Same as [`compute`](Self::compute), and returns the output with its buffers.
    pub(super) fn compute_output(
        &mut self,
        output: OutputRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<OutputRequest> {
        let total = self.sequence.len();
        self.start(None, output)?;
        self.finish(total, progress)
    }

    /// Sends the sequence to the model's thread.
    ///
    /// # Errors
    ///
    /// `Memory` if a full context cannot be allocated.
    pub(super) fn start(
        &mut self,
        sampling: Option<SamplingRequest>,
        output: OutputRequest,
    ) -> Result<()> {
        self.end_leaked();
        self.reserve()?;
        self.output_queue.clear();
        if sampling
            .as_ref()
            .is_some_and(|p| p.logprobs_mode() == LogprobsMode::On)
        {
            self.output_queue.reserve_logprobs();
        }
        self.is_running = true;
        self.model.start(Request {
            sequence: std::mem::take(&mut self.sequence),
            cached: 0,
            head_keys: 0,
            reusable: match self.reuse {
                Reuse::Shared => usize::MAX,
                Reuse::Own => self.cached,
            },
            computed: 0,
            sampling,
            hooks: self.hooks.clone(),
            adapters: self.adapters.clone(),
            captured: self.captured.take(),
            output,
            slot: 0,
            sampled: 0,
            submitting: Duration::ZERO,
            output_queue: Arc::clone(&self.output_queue),
            cancel: self.cancel.clone(),
            if_busy: self.if_busy,
            ended: false,
        });
        Ok(())
    }

    /// A leaked `Generation` (`mem::forget`) is still running and owns the sequence.
    pub(super) fn end_leaked(&mut self) {
        while self.is_running {
            self.output_queue.request_stop();
            self.is_running = !matches!(self.next_event(None), OutputEvent::End(_));
        }
    }

    /// Waits for the next output event.
    pub(super) fn next_event(&self, cached: Option<usize>) -> OutputEvent {
        match self.model.runs_on_caller() {
            true => (self.model).run_until(|| self.output_queue.try_next(cached)),
            false => self.output_queue.next(cached),
        }
    }

    /// Returns the next output event, if there is one.
    pub(super) fn try_next_event(&self) -> Option<OutputEvent> {
        self.output_queue.try_next(None)
    }

    /// Returns the number of tokens that were in the KV cache when the request began.
    pub(super) fn cached_at_first(&self) -> usize {
        self.output_queue.cached_at_first()
    }

    /// Requests the end of the output.
    pub(super) fn request_stop(&self) {
        self.output_queue.request_stop();
    }

    /// Takes the sequence back from the model's thread.
    pub(super) fn take_back(&mut self, end: &mut End) {
        self.is_running = false;
        self.sequence = std::mem::take(&mut end.sequence);
        self.captured = end.captured.take();
        self.cached = end.cached;
        self.computed += end.computed as u64;
    }

    /// Waits for the end of the request on a sequence of `total` tokens, and takes the sequence
    /// back.
    fn finish(
        &mut self,
        total: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<OutputRequest> {
        let mut cached = 0;
        loop {
            match self.next_event(Some(cached)) {
                OutputEvent::Token(..) => {}
                OutputEvent::Progress(count) => {
                    cached = count;
                    progress(cached, total);
                }
                OutputEvent::End(mut end) => {
                    self.take_back(&mut end);
                    if end.finish? == Some(Finish::Cancelled) {
                        self.cancelled();
                        bail!(
                            Cancelled,
                            "cancelled after {} of {total} tokens",
                            self.cached
                        );
                    }
                    return Ok(end.output);
                }
            }
        }
    }
}

/// Ends the request of a leaked `Generation`.
impl Drop for Session {
    fn drop(&mut self) {
        if self.is_running {
            self.output_queue.request_stop();
            self.model.handle_messages();
        }
    }
}
