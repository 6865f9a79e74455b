//! A session: the tokens of one sequence, and how many of them the KV cache holds.

use super::Sampling;
use super::rows::{Picks, write_rows, write_sampler};
use crate::device::Profile;
use crate::error::{Result, bail};
use crate::exec::Lap;
use crate::exec::state::{RUNNING, Row, state_bytes};
use crate::model::{Facts, Model, TableId};
use crate::op::table::{Place, Table};
use crate::text::{ChatTemplates, Tokenizer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A session has the first sequence of its model for itself.
pub(super) const SEQUENCE: u32 = 0;

/// One sequence of a model: text goes in, text comes out.
#[derive(Debug)]
pub struct Session {
    pub(super) model: Model,
    /// Every token of the sequence; its room is taken once.
    pub(super) tokens: Vec<u32>,
    /// How many of them the KV cache holds. The last picked is behind, and after a shift or a step
    /// back all that has to be computed anew.
    pub(super) fed: usize,
    /// How many it held at most since they were computed from the first one on: what rings of
    /// layers with a window lost before that is gone.
    pub(super) deepest: usize,
    /// How many tokens there are once the chains are done that were submitted, if none ends early.
    pub(super) submitted: usize,
    /// Host copy of the step state and its rows, for writing.
    pub(super) state: Vec<u8>,
    cancel: Cancel,
}

/// Stops what a session does, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicU8>);

/// Nobody asked to stop.
const GO_ON: u8 = 0;
/// Someone asked; whoever heeds it forgets it.
const CANCELLED: u8 = 1;
/// The session is going away: nothing forgets it.
const CLOSED: u8 = 2;

impl Cancel {
    /// Asks the session to stop at the next token or chunk. A session at rest stops at the first
    /// of what it does next, unless it is told to forget it.
    pub fn cancel(&self) {
        self.0.fetch_max(CANCELLED, Ordering::Relaxed);
    }

    /// Asks the session to stop for good.
    pub(crate) fn close(&self) {
        self.0.store(CLOSED, Ordering::Relaxed);
    }
}

impl Session {
    /// A session with an empty sequence.
    pub fn new(model: Model) -> Self {
        let rows = model.tables.iter().map(|t| t.tokens).max().unwrap_or(1);
        let context = model.facts.context as usize;
        Self {
            tokens: Vec::with_capacity(context + 1),
            fed: 0,
            deepest: 0,
            submitted: 0,
            state: vec![0; state_bytes(rows as usize)],
            cancel: Cancel::default(),
            model,
        }
    }

    /// What is known of the model.
    pub fn facts(&self) -> &Facts {
        &self.model.facts
    }

    /// Text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.model.tokenizer
    }

    /// The chat templates that the model's files bring along.
    pub fn chat_templates(&self) -> &ChatTemplates {
        &self.model.chat_templates
    }

    /// The facts of the device.
    pub fn profile(&self) -> &Profile {
        self.model.profile()
    }

    /// A handle that stops this session from any thread.
    pub fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Begins to time every command that the session runs, from nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a device that cannot tell the times of commands.
    pub fn time_commands(&mut self) -> Result<()> {
        self.model.executor.time_commands()
    }

    /// Ends timing; what was timed stays.
    pub fn end_timing(&mut self) {
        self.model.executor.end_timing();
    }

    /// The tables of the model, and of each the commands as timed.
    pub fn laps(&self) -> impl Iterator<Item = (&Table, &[Lap])> {
        let tables = self.model.tables.iter().enumerate();
        tables.map(|(at, table)| (table, self.model.executor.laps(at)))
    }

    /// Forgets a cancellation that nothing heeded.
    pub fn forget_cancel(&mut self) {
        self.cancelled();
    }

    /// The tokenizer, for who must not wait for the session.
    pub(crate) fn shared_tokenizer(&self) -> Arc<Tokenizer> {
        Arc::clone(&self.model.tokenizer)
    }

    /// The chat templates, for who must not wait for the session.
    pub(crate) fn shared_chat_templates(&self) -> Arc<ChatTemplates> {
        Arc::clone(&self.model.chat_templates)
    }

    /// Every token of the sequence: given and picked.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets the sequence.
    pub fn reset(&mut self) {
        self.tokens.clear();
        self.rewind(0);
    }

    /// Picks the next token after the sequence and appends it.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence or a full context, `Argument` for options out of range.
    pub fn step(&mut self, sampling: &Sampling) -> Result<u32> {
        sampling.check()?;
        self.check_sequence()?;
        self.catch_up()?;
        self.advance(sampling, 1)?;
        self.tokens.last().copied().ok_or_else(unreachable_empty)
    }

    /// Draws a token after the sequence and does not append it: one seed after another gives
    /// independent draws from the same logits.
    ///
    /// # Errors
    ///
    /// As [`Session::step`].
    pub fn draw(&mut self, sampling: &Sampling) -> Result<u32> {
        sampling.check()?;
        self.check_sequence()?;
        self.feed(&mut |_, _| {})?;
        self.advance(sampling, 1)?;
        let token = self.tokens.pop().ok_or_else(unreachable_empty)?;
        self.hold(self.tokens.len());
        Ok(token)
    }

    /// Appends a token as if it had been picked: the decode table runs it, not the batch table.
    ///
    /// # Errors
    ///
    /// As [`Session::prefill`].
    pub fn force(&mut self, token: u32) -> Result<()> {
        if !self.tokens.is_empty() {
            self.feed(&mut |_, _| {})?;
        }
        self.append(&[token])?;
        let step = self.model.at(TableId::Step)?;
        let end = self.model.tables[step].body().end;
        self.pass(step, self.fed, 1, end)?;
        self.hold(self.fed + 1);
        Ok(())
    }

    /// The logits after the last token of the sequence, `[vocab]`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` for a slice of another length.
    pub fn logits(&mut self, out: &mut [f32]) -> Result<()> {
        self.check_sequence()?;
        let vocab = self.model.facts.vocab as usize;
        if out.len() != vocab {
            bail!(
                Argument,
                "a row of logits has {vocab} numbers, not {}",
                out.len()
            );
        }
        self.feed(&mut |_, _| {})?;
        self.model
            .executor
            .read(Place::Logits, 0, bytemuck::cast_slice_mut(out))
    }

    /// Checks that there is a sequence to go on from.
    pub(super) fn check_sequence(&self) -> Result<()> {
        if self.tokens.is_empty() {
            bail!(State, "the sequence is empty: prefill a prompt first");
        }
        Ok(())
    }

    /// Whether someone asked to stop; who is told heeds it.
    pub(super) fn cancelled(&self) -> bool {
        let flag = &self.cancel.0;
        let heeded = flag.compare_exchange(CANCELLED, GO_ON, Ordering::Relaxed, Ordering::Relaxed);
        heeded.is_ok() || flag.load(Ordering::Relaxed) == CLOSED
    }

    /// Picks up to `times` tokens in one submission; fewer after a stop token or a full context.
    fn advance(&mut self, sampling: &Sampling, times: u32) -> Result<()> {
        self.begin(sampling, &[])?;
        let picks = self.submit(sampling, times);
        let collected = picks.and_then(|picks| self.collect(picks));
        collected.inspect_err(|_| self.give_up()).map(drop)
    }

    /// Tells the device where the sequence ends and how tokens are picked. It goes on from there by
    /// itself, chain by chain.
    pub(super) fn begin(&mut self, sampling: &Sampling, stops: &[u32]) -> Result<()> {
        let context = self.model.facts.context;
        let token = *self.tokens.last().ok_or_else(unreachable_empty)?;
        // The row is the last token at its position; where it is fed, its logits are there.
        let position = self.tokens.len() - 1;
        if position >= context as usize {
            bail!(State, "the context of {context} positions is full");
        }
        write_sampler(&mut self.model, SEQUENCE, &sampling.sampler(stops))?;
        let row = Row {
            token,
            position: u32::try_from(position).expect("a position is under the context"),
            sequence: SEQUENCE,
            done: RUNNING,
        };
        write_rows(&mut self.model, &mut self.state, [row].into_iter())?;
        self.submitted = self.tokens.len();
        Ok(())
    }

    /// Submits a chain behind those that were since [`Session::begin`].
    pub(super) fn submit(&mut self, sampling: &Sampling, times: u32) -> Result<Picks> {
        let id = self.model.at(TableId::Step)?;
        let cmds = self.model.tables[id].pass(sampling.tail());
        let pick = self.model.tables[id].tails[sampling.tail() as usize].clone();
        let executor = &mut self.model.executor;
        let first = self.submitted;
        // Whatever becomes of it: it may have run.
        self.submitted += times as usize;
        let mut whole = times;
        if self.fed == first {
            executor.run(id, pick.into(), 1)?;
            whole -= 1;
        }
        if whole > 0 {
            executor.run(id, cmds, whole)?;
        }
        Picks::ask(&mut self.model, [(SEQUENCE, first)].into_iter(), times)
    }

    /// Waits for a chain and appends what it picked. Returns the row's `done`.
    pub(super) fn collect(&mut self, picks: Picks) -> Result<u32> {
        let picked = picks.take(&mut self.model)?;
        let done = picked.append(0, SEQUENCE, &mut self.tokens);
        // The token picked last has not been fed.
        self.hold(self.tokens.len() - 1);
        Ok(done)
    }

    /// Collects none of the chains that were submitted since: the cache holds what they fed.
    pub(super) fn give_up(&mut self) {
        self.deepest = self.deepest.max(self.submitted.saturating_sub(1));
        self.rewind(self.fed);
    }

    /// Forgets the tokens behind the first `keep`, to go on from there.
    pub fn truncate(&mut self, keep: usize) {
        self.tokens.truncate(keep);
        self.rewind(keep.saturating_sub(1));
    }

    /// Forgets `count` tokens behind the first `keep`. What follows moves up and is computed
    /// anew at its new positions when it is needed, as if it had always stood there.
    pub fn shift(&mut self, keep: usize, count: usize) {
        let keep = keep.min(self.tokens.len());
        let end = keep.saturating_add(count).min(self.tokens.len());
        self.tokens.drain(keep..end);
        // The logits are those of a forgotten token where nothing follows.
        self.rewind(keep.min(self.tokens.len().saturating_sub(1)));
    }

    /// Says that the cache holds the first `fed` tokens.
    pub(super) fn hold(&mut self, fed: usize) {
        self.fed = fed;
        self.deepest = self.deepest.max(fed);
    }

    /// Forgets what the cache holds behind `position`; everything, where a window that ends there
    /// has left its ring.
    pub(super) fn rewind(&mut self, position: usize) {
        self.fed = self.fed.min(position);
        if self.deepest - self.fed > self.model.pages.rewind() {
            self.fed = 0;
        }
        if self.fed == 0 {
            self.deepest = 0;
        }
    }
}

fn unreachable_empty() -> crate::error::Error {
    crate::error::Error::new(
        crate::error::ErrorKind::Internal,
        "the sequence became empty",
    )
}
