//! A session: the tokens of one sequence. While the model works for it they are with the model.

use super::cancel::Cancel;
use super::end::End;
use super::model::Model;
use super::notifier::Notifier;
use super::output_queue::{OutputEvent, OutputQueue};
use super::output_request::OutputRequest;
use super::outputs::Finish;
use super::request::{IfBusy, Request};
use super::sampling::Sampling;
use super::sampling_request::{LogProbsMode, SamplingRequest};
use super::sequence::Sequence;
use crate::device::Profile;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::exec::CommandTiming;
use crate::model::Facts;
use crate::op::table::Table;
use crate::text::{ChatTemplates, Tokenizer};
use std::sync::Arc;
use std::time::Duration;

/// One sequence of a model: text goes in, text comes out.
///
/// What was computed for it stays with the model while there is room, for whoever comes with the
/// same tokens: a session that goes on, a copy of it, another one with the same beginning.
#[derive(Debug)]
pub struct Session {
    pub(super) model: Model,
    number: u64,
    pub(super) sequence: Sequence,
    /// How many of its tokens were in the cache when the model last worked for it.
    pub(super) fed: usize,
    /// Number of tokens that were computed for it so far.
    computed: u64,
    /// Which computed tokens it reuses.
    reuse: Reuse,
    mail: Arc<OutputQueue>,
    cancel: Cancel,
    /// Whether the model works for it.
    at_work: bool,
    if_busy: IfBusy,
}

/// Which computed tokens a session reuses.
#[derive(Clone, Copy, Debug)]
enum Reuse {
    /// Those of every sequence with the same prefix.
    Shared,
    /// Only its own.
    Own,
}

impl Session {
    /// A session with an empty sequence.
    pub fn new(model: Model) -> Self {
        Self::with(model, IfBusy::Wait, None)
    }

    /// One that waits for others or does not, and whose news ring a bell.
    pub(super) fn with(model: Model, if_busy: IfBusy, bell: Option<Arc<Notifier>>) -> Self {
        Self {
            number: model.next_session(),
            sequence: Sequence::default(),
            fed: 0,
            computed: 0,
            reuse: Reuse::Shared,
            mail: Arc::new(OutputQueue::new(bell)),
            at_work: false,
            if_busy,
            cancel: Cancel::new(),
            model,
        }
    }

    /// Another session with the same sequence. Nothing is computed again for it, and no memory of the
    /// cache is taken for what the two have in common.
    ///
    /// # Errors
    ///
    /// `Memory` where there is none for the tokens.
    pub fn fork(&self) -> Result<Self> {
        let mut fork = Self::new(self.model.clone());
        fork.reserve()?;
        fork.sequence.copy_from(&self.sequence);
        fork.fed = self.fed;
        fork.reuse = self.reuse;
        Ok(fork)
    }

    /// Makes room for all the tokens that fit the context.
    fn reserve(&mut self) -> Result<()> {
        let context = self.model.facts().context as usize;
        self.sequence.make_room(context + 1)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What is known of the model.
    pub fn facts(&self) -> &Facts {
        self.model.facts()
    }

    /// Text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.model.tokenizer()
    }

    /// The chat templates that the model's files bring along.
    pub fn chat_templates(&self) -> &ChatTemplates {
        self.model.chat_templates()
    }

    /// The facts of the device.
    pub fn profile(&self) -> &Profile {
        self.model.profile()
    }

    /// A handle that stops this session from any thread.
    pub fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Forgets a cancellation that nothing heeded.
    pub fn forget_cancel(&mut self) {
        self.cancelled();
    }

    /// Whether someone asked to stop, and nobody has heeded it.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_asked()
    }

    /// Whether someone asked to stop; who is told heeds it.
    pub(super) fn cancelled(&self) -> bool {
        self.cancel.heed()
    }

    /// Begins to time every command that the model runs, for whichever session, from nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a device that cannot tell the times of commands.
    pub fn time_commands(&mut self) -> Result<()> {
        self.model
            .call(|engine| engine.linked.executor.time_commands())
    }

    /// Ends timing; what was timed stays.
    ///
    /// # Errors
    ///
    /// `Poisoned` where the model's thread has ended.
    pub fn end_timing(&mut self) -> Result<()> {
        self.model.call(|engine| {
            engine.linked.executor.end_timing();
            Ok(())
        })
    }

    /// The tables of the model, and of each the commands as timed.
    ///
    /// # Errors
    ///
    /// `Poisoned` where the model's thread has ended.
    pub fn laps(&self) -> Result<Vec<(&Table, Vec<CommandTiming>)>> {
        let laps = self.model.call(|engine| {
            let tables = 0..engine.linked.tables.len();
            let laps = tables.map(|at| engine.linked.executor.laps(at).to_vec());
            Ok(laps.collect::<Vec<_>>())
        })?;
        Ok(self.model.tables().iter().zip(laps).collect())
    }

    /// Disables prefix caching for this session and its forks, as for measurements: the model
    /// computes every token that was not computed for this session itself, even if the prefix cache
    /// has it from another one. Other sessions still reuse what is computed for this one;
    /// [`LoadOptions::prefix_bytes`](crate::LoadOptions::prefix_bytes) bounds the prefix cache of a model.
    pub fn disable_prefix_caching(&mut self) {
        self.reuse = Reuse::Own;
    }

    /// Number of tokens that the model has computed for the sequence of this session since it was
    /// made or forked. Tokens from the prefix cache are not counted. Draft tokens are counted when
    /// they are checked, accepted or not; tokens that are computed again are counted again.
    pub fn computed_tokens(&self) -> u64 {
        self.computed
    }

    /// Every token of the sequence: given and picked.
    pub fn tokens(&self) -> &[u32] {
        self.sequence.tokens()
    }

    /// Forgets the sequence.
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Forgets the tokens behind the first `keep`, to go on from there.
    pub fn truncate(&mut self, keep: usize) {
        self.sequence.truncate(keep);
        self.fed = self.fed.min(self.sequence.len());
    }

    /// Forgets `count` tokens behind the first `keep`. What follows moves up and is computed
    /// anew at its new positions when it is needed, as if it had always stood there.
    pub fn shift(&mut self, keep: usize, count: usize) {
        let keep = keep.min(self.sequence.len());
        let end = keep.saturating_add(count).min(self.sequence.len());
        self.sequence.remove(keep..end);
        self.fed = self.fed.min(keep);
    }

    /// Appends tokens to the sequence and runs them through the model, so that the next token
    /// can be picked. `progress` hears how many of how many tokens are done.
    ///
    /// # Errors
    ///
    /// `TooLarge` where they do not fit the context, `Argument` for an id outside the
    /// vocabulary; nothing is appended then. `Cancelled` after [`Cancel::cancel`]: of these tokens,
    /// those of the chunks that were done stay.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let before = self.sequence.len();
        self.append(tokens)?;
        self.check_sequence()?;
        let done = self.feed(OutputRequest::Nothing, progress).map(drop);
        if done.is_err() {
            // A shift or a step back may have left earlier tokens to be computed, too: they stay.
            self.truncate(before.max(self.fed));
        }
        done
    }

    /// Checks tokens and appends them as given ones.
    pub(super) fn append(&mut self, tokens: &[u32]) -> Result<()> {
        let facts = self.model.facts();
        if self.model.is_encoder() {
            bail!(
                State,
                "the model is an encoder: it yields embeddings and generates no text"
            );
        }
        let wanted = self.sequence.len().saturating_add(tokens.len());
        if wanted > facts.context as usize {
            let context = facts.context;
            bail!(
                TooLarge,
                "{wanted} tokens do not fit the context of {context} positions"
            );
        }
        if let Some(bad) = tokens.iter().find(|t| **t >= facts.vocab) {
            let vocab = facts.vocab;
            bail!(Argument, "token {bad} is outside the vocabulary of {vocab}");
        }
        self.reserve()?;
        self.sequence.give(tokens);
        Ok(())
    }

    /// Appends a token as if it had been picked: the table for steps runs it, not that for chunks.
    ///
    /// # Errors
    ///
    /// As [`Session::prefill`].
    pub fn force(&mut self, token: u32) -> Result<()> {
        let before = self.sequence.len();
        self.append(&[token])?;
        self.sequence.truncate(before);
        self.sequence.pick(token);
        let done = self.feed(OutputRequest::Nothing, &mut |_, _| {}).map(drop);
        if done.is_err() {
            self.truncate(before.max(self.fed));
        }
        done
    }

    /// PendingTokens the next token after the sequence and appends it.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence or a full context, `Argument` for options out of range.
    pub fn step(&mut self, sampling: &Sampling) -> Result<u32> {
        sampling.check()?;
        self.check_room()?;
        self.pick(SamplingRequest::one(sampling))?;
        let token = self.sequence.tokens().last();
        token
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "no token was picked"))
    }

    /// PendingTokens tokens after the sequence and appends them, up to the limit of `picking` or a full
    /// context.
    pub(super) fn pick(&mut self, picking: SamplingRequest) -> Result<()> {
        let total = self.sequence.len();
        self.start(Some(picking), OutputRequest::Nothing)?;
        self.finish(total, &mut |_, _| {}).map(drop)
    }

    /// Draws a token after the sequence and does not append it: one seed after another gives
    /// independent draws from the same logits.
    ///
    /// # Errors
    ///
    /// As [`Session::step`].
    pub fn draw(&mut self, sampling: &Sampling) -> Result<u32> {
        let before = self.sequence.len();
        let token = self.step(sampling);
        self.truncate(before);
        token
    }

    /// The logits after the last token of the sequence, `[vocab]`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` for a slice of another length.
    pub fn logits(&mut self, out: &mut [f32]) -> Result<()> {
        self.check_sequence()?;
        let vocab = self.facts().vocab as usize;
        if out.len() != vocab {
            let found = out.len();
            bail!(Argument, "a row of logits has {vocab} numbers, not {found}");
        }
        self.check_room()?;
        let logits = self.feed(OutputRequest::Logits(vec![0.0; vocab]), &mut |_, _| {})?;
        out.copy_from_slice(&logits);
        Ok(())
    }

    /// Checks that there is a sequence to go on from.
    pub(super) fn check_sequence(&self) -> Result<()> {
        if self.sequence.len() == 0 {
            bail!(State, "the sequence is empty: prefill a prompt first");
        }
        Ok(())
    }

    fn check_room(&self) -> Result<()> {
        self.check_sequence()?;
        let context = self.facts().context;
        if self.sequence.len() > context as usize {
            bail!(State, "the context of {context} positions is full");
        }
        Ok(())
    }

    /// The logits after every token of the sequence, `[tokens, vocab]`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` for a slice of another length, `Memory`.
    pub fn logits_all(&mut self, out: &mut [f32]) -> Result<()> {
        self.check_sequence()?;
        let (vocab, total) = (self.facts().vocab as usize, self.sequence.len());
        let numbers = total.saturating_mul(vocab);
        if out.len() != numbers {
            let found = out.len();
            bail!(
                Argument,
                "logits of {total} tokens are {numbers} numbers, not {found}"
            );
        }
        self.check_room()?;
        let room = room(numbers)?;
        out.copy_from_slice(&self.feed(OutputRequest::Scores(room), &mut |_, _| {})?);
        Ok(())
    }

    /// The last layer's row of every token of a text, beside the sequence of the session.
    pub(super) fn hidden(&self, text: &[u32], hidden: Vec<f32>) -> Result<Vec<f32>> {
        let mut other = self.beside(text)?;
        other.feed(OutputRequest::Hidden(hidden), &mut |_, _| {})
    }

    /// A session with this text, which is cancelled with this one.
    pub(super) fn beside(&self, text: &[u32]) -> Result<Self> {
        let mut other = Self::new(self.model.clone());
        other.cancel = self.cancel.clone();
        other.reuse = self.reuse;
        other.append(text)?;
        Ok(other)
    }

    /// Feeds all of the sequence, and returns what is wanted of it.
    pub(super) fn feed(
        &mut self,
        wanted: OutputRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let total = self.sequence.len();
        self.start(None, wanted)?;
        self.finish(total, progress)
    }

    /// Hands the sequence to the model.
    ///
    /// # Errors
    ///
    /// `Memory` where there is none for a whole context.
    pub(super) fn start(
        &mut self,
        picking: Option<SamplingRequest>,
        wanted: OutputRequest,
    ) -> Result<()> {
        self.end_leaked();
        self.reserve()?;
        self.mail.clear();
        if picking
            .as_ref()
            .is_some_and(|p| p.tells() == LogProbsMode::LogProbs)
        {
            self.mail.expect_log_probs();
        }
        self.at_work = true;
        self.model.start(Request {
            session: self.number,
            sequence: std::mem::take(&mut self.sequence),
            fed: 0,
            reusable: match self.reuse {
                Reuse::Shared => usize::MAX,
                Reuse::Own => self.fed,
            },
            computed: 0,
            picking,
            wanted,
            seat: 0,
            picked: 0,
            submitting: Duration::ZERO,
            mail: Arc::clone(&self.mail),
            cancel: self.cancel.clone(),
            if_busy: self.if_busy,
            ended: false,
        });
        Ok(())
    }

    /// An answer that was leaked in the midst is still at work, and has what the sequence was.
    fn end_leaked(&mut self) {
        while self.at_work {
            self.mail.enough();
            self.at_work = !matches!(self.news(None), OutputEvent::End(_));
        }
    }

    /// What comes next of what the model does.
    pub(super) fn news(&self, fed: Option<usize>) -> OutputEvent {
        self.mail.next(fed)
    }

    /// What is there of it, without a wait.
    pub(super) fn try_news(&self) -> Option<OutputEvent> {
        self.mail.try_next()
    }

    /// Says that no more tokens are wanted.
    pub(super) fn enough(&self) {
        self.mail.enough();
    }

    /// Takes the sequence back.
    pub(super) fn take_back(&mut self, end: &mut End) {
        self.at_work = false;
        self.sequence = std::mem::take(&mut end.sequence);
        self.fed = end.fed;
        self.computed += end.computed as u64;
    }

    /// Waits for the end of what the model does with a sequence of `total` tokens, and takes it back.
    fn finish(&mut self, total: usize, progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        let mut fed = 0;
        loop {
            match self.news(Some(fed)) {
                OutputEvent::SampledTokens(..) => {}
                OutputEvent::Fed(count) => {
                    fed = count;
                    progress(fed, total);
                }
                OutputEvent::End(mut end) => {
                    self.take_back(&mut end);
                    if end.finish? == Some(Finish::Cancelled) {
                        self.cancelled();
                        bail!(Cancelled, "cancelled after {} of {total} tokens", self.fed);
                    }
                    return Ok(end.wanted.numbers());
                }
            }
        }
    }
}

/// What a leaked answer has of it comes to its end.
impl Drop for Session {
    fn drop(&mut self) {
        if self.at_work {
            self.mail.enough();
        }
    }
}

/// Room for so many numbers.
pub(super) fn room(numbers: usize) -> Result<Vec<f32>> {
    let mut room = Vec::new();
    let failed = |e| {
        let message = format_args!("room for {numbers} numbers cannot be had");
        Error::new(ErrorKind::Memory, message).caused_by(e)
    };
    room.try_reserve_exact(numbers).map_err(failed)?;
    room.resize(numbers, 0.0);
    Ok(room)
}
