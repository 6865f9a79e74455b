//! What a session asks of the engine: to feed a sequence and to pick tokens behind it.

use super::cancel::Cancel;
use super::drafter::Drafter;
use super::end::End;
use super::output_queue::{OutputQueue, UNREAD_MAX};
use super::output_request::OutputRequest;
use super::outputs::Finish;
use super::sampling_request::{LogProbsMode, SamplingRequest};
use super::sequence::Sequence;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::state::{LogProbs, RUNNING, STOPPED};
use crate::op::table::SamplingStage;
use std::sync::Arc;
use std::time::Duration;

/// What becomes of a request where no seat is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfBusy {
    /// It waits for one.
    Wait,
    /// It ends at once, with `Busy`.
    Fail,
}

/// A sequence at work.
#[derive(Debug)]
pub(super) struct Request {
    /// Whose it is.
    pub(super) session: u64,
    pub(super) sequence: Sequence,
    /// How many of its tokens the cache holds.
    pub(super) cached: usize,
    /// Maximum number of its tokens that may come from the prefix cache.
    pub(super) reusable: usize,
    /// Number of tokens that were computed for it.
    pub(super) computed: usize,
    /// `None`: the sequence is fed and nothing more.
    pub(super) sampling: Option<SamplingRequest>,
    /// What is wanted beside tokens.
    pub(super) output: OutputRequest,
    /// Its row of the page table and of the history, once it has one.
    pub(super) slot: u32,
    pub(super) sampled: usize,
    /// What the host spent on handing its chains to the device.
    pub(super) submitting: Duration,
    pub(super) output_queue: Arc<OutputQueue>,
    pub(super) cancel: Cancel,
    pub(super) if_busy: IfBusy,
    /// Whether the end was told.
    pub(super) ended: bool,
}

impl Request {
    /// Gives everything back.
    pub(super) fn end(&mut self, finish: Result<Option<Finish>>) {
        self.ended = true;
        self.output_queue.end(End {
            sequence: std::mem::take(&mut self.sequence),
            output: std::mem::take(&mut self.output),
            submitting: self.submitting,
            draft: self.drafter().map(|g| g.stats).unwrap_or_default(),
            grammar_state: self.sampling.as_mut().and_then(|p| p.grammar_state.take()),
            cached: self.cached,
            computed: self.computed,
            finish,
        });
    }

    /// Whether all is in the cache that has to be before anything is picked: a picked last token goes
    /// through the model with the step that picks the next one.
    pub(super) fn is_prefilled(&self) -> bool {
        let len = self.sequence.len();
        let goes_on = self.sampling.is_some() && self.cached + 1 == len;
        self.cached == len || goes_on && self.sequence.is_sampled(self.cached)
    }

    /// Whether it goes on only once its session takes tokens, and may do so in another seat.
    pub(super) fn is_stalled(&self) -> bool {
        self.sampling.is_some() && self.output_queue.room() == 0
    }

    /// Whether its session has taken enough tokens for a seat to be worth it: one that has just lost its seat
    /// would lose the next one with the next token.
    pub(super) fn wants_slot(&self) -> bool {
        self.output_queue.room() >= UNREAD_MAX / 2
    }

    /// The tail of tables that picks its tokens.
    pub(super) fn stage(&self) -> SamplingStage {
        let sampling = self.sampling.as_ref();
        sampling.map_or(SamplingStage::Greedy, |sampling| sampling.stage)
    }

    /// What its steps tell beside tokens.
    pub(super) fn log_probs_mode(&self) -> LogProbsMode {
        let sampling = self.sampling.as_ref();
        sampling.map_or(LogProbsMode::Off, SamplingRequest::log_probs_mode)
    }

    /// What makes guesses for it.
    pub(super) fn drafter(&self) -> Option<&Drafter> {
        self.sampling.as_ref()?.drafter.as_ref()
    }

    /// Takes back what makes guesses for it.
    pub(super) fn restore_drafter(&mut self, drafter: Drafter) {
        if let Some(sampling) = &mut self.sampling {
            sampling.drafter = Some(drafter);
        }
    }

    /// Hands its session the tokens behind the first `before`, which were just picked.
    pub(super) fn deliver(&mut self, before: usize, log_probs: Option<LogProbs>) {
        self.cached = self.sequence.len() - 1;
        self.sampled += self.sequence.len() - before;
        self.output_queue
            .push_tokens(&self.sequence.tokens()[before..], log_probs);
    }

    /// Goes on in the grammar behind the token that was picked last, and as far as there is but one way
    /// if the sequence is not `done`. Returns whether it is then.
    ///
    /// # Errors
    ///
    /// `Grammar` where there is no way on.
    pub(super) fn advance_grammar(&mut self, done: u32, context: usize) -> Result<u32> {
        let (remaining, room, len) = (
            self.remaining(),
            self.output_queue.room(),
            self.sequence.len(),
        );
        let (Some(sampling), Some(last)) = (&mut self.sampling, self.sequence.tokens().last())
        else {
            return Ok(done);
        };
        // What is told of tokens is told of picked ones.
        let with_log_probs = sampling.log_probs_mode() == LogProbsMode::On;
        let Some(grammar_state) = &mut sampling.grammar_state else {
            return Ok(done);
        };
        if let Some(failure) = grammar_state.failure() {
            return Err(failure);
        }
        grammar_state.accept(*last)?;
        if grammar_state.is_done() {
            return Ok(STOPPED);
        }
        if done != RUNNING {
            return Ok(done);
        }
        let max = remaining.min(room).min(context.saturating_sub(len));
        let forced = grammar_state.accept_forced(if with_log_probs { 0 } else { max })?;
        let stops = &sampling.sampler.stops[..sampling.sampler.stop_count as usize];
        let stop = forced.iter().position(|token| stops.contains(token));
        let forced = &forced[..stop.map_or(forced.len(), |at| at + 1)];
        forced
            .iter()
            .for_each(|token| self.sequence.push_sampled(*token));
        self.output_queue.push_tokens(forced, None);
        self.sampled += forced.len();
        let done = stop.is_some() || grammar_state.is_done();
        Ok(if done { STOPPED } else { RUNNING })
    }

    /// Tokens that may still be picked.
    pub(super) fn remaining(&self) -> usize {
        let limit = self.sampling.as_ref().map_or(0, |sampling| sampling.limit);
        limit - self.sampled
    }
}

/// Nobody waits for ever, whatever happens to the engine.
impl Drop for Request {
    fn drop(&mut self) {
        if !self.ended {
            let message = "the model's thread has ended: load the model again";
            self.end(Err(Error::new(ErrorKind::Poisoned, message)));
        }
    }
}
