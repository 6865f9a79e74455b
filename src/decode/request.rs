//! Requests of sessions to the scheduler: to prefill a sequence and to sample tokens after it.

use super::captured::Captured;
use super::drafter::Drafter;
use super::end::End;
use super::hooks::{AdapterScales, Hooks};
use super::output_queue::{OutputQueue, UNREAD_MAX};
use super::output_request::OutputRequest;
use super::outputs::Finish;
use super::sampling_request::{LogprobsMode, SamplingRequest};
use super::sequence::Sequence;
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::state::{NOT_FINITE, RUNNING, STOPPED};
use crate::op::params::Logprobs;
use crate::op::table::SamplingStage;
use std::sync::Arc;
use std::time::Duration;

/// Behavior of a request if no slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfBusy {
    /// Waits for a slot.
    Wait,
    /// Fails with `Busy`.
    Fail,
}

/// A request that is waiting or running.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) sequence: Sequence,
    /// Number of tokens in the KV cache.
    pub(super) cached: usize,
    /// Number of them in the KV cache of the drafting head.
    pub(super) head_keys: usize,
    /// Maximum number of its tokens that may come from the prefix cache.
    pub(super) reusable: usize,
    /// Number of tokens that were computed for it.
    pub(super) computed: usize,
    /// How tokens are sampled; `None`: the sequence is only prefilled.
    pub(super) sampling: Option<SamplingRequest>,
    /// Hooks of the session.
    pub(super) hooks: Option<Hooks>,
    /// Scales of the adapters of the hooks.
    pub(super) adapters: Option<AdapterScales>,
    /// Values that the hooks captured.
    pub(super) captured: Option<Captured>,
    /// Other requested output.
    pub(super) output: OutputRequest,
    /// Slot: index of its row in the page table and of its history. Unset while the request waits.
    pub(super) slot: u32,
    /// Number of sampled tokens.
    pub(super) sampled: usize,
    /// Time in which the host submitted its bursts.
    pub(super) submitting: Duration,
    pub(super) output_queue: Arc<OutputQueue>,
    pub(super) cancel: Cancel,
    pub(super) if_busy: IfBusy,
    /// Whether the end was sent to the session.
    pub(super) ended: bool,
}

impl Request {
    /// Returns the sequence and all output to the session.
    pub(super) fn end(&mut self, finish: Result<Option<Finish>>) {
        self.ended = true;
        self.output_queue.end(End {
            sequence: std::mem::take(&mut self.sequence),
            captured: self.captured.take(),
            output: std::mem::take(&mut self.output),
            submitting: self.submitting,
            draft: self.drafter().map(|g| g.stats).unwrap_or_default(),
            grammar_state: self.sampling.as_mut().and_then(|p| p.grammar_state.take()),
            cached: self.cached,
            computed: self.computed,
            finish,
        });
    }

    /// Returns whether all tokens before the next sampling step are in the KV cache. A sampled last
    /// token is computed in the step that samples the next one.
    pub(super) fn is_prefilled(&self) -> bool {
        let len = self.sequence.len();
        let goes_on = self.sampling.is_some() && self.cached + 1 == len;
        self.cached == len || goes_on && self.sequence.is_sampled(self.cached)
    }

    /// Returns the number of tokens that are not in the KV cache.
    pub(super) fn remaining_prompt(&self) -> usize {
        self.sequence.len() - self.cached
    }

    /// Returns whether the output queue is full. The request then may be preempted.
    pub(super) fn is_stalled(&self) -> bool {
        self.sampling.is_some() && self.output_queue.room() == 0
    }

    /// Returns whether the output queue is empty enough to assign a slot. The margin keeps a
    /// preempted request from losing its new slot after one token.
    pub(super) fn needs_slot(&self) -> bool {
        self.output_queue.room() >= UNREAD_MAX / 2
    }

    /// Returns the number of the hooks; 0: none.
    pub(super) fn hooks_id(&self) -> u32 {
        self.hooks.as_ref().map_or(0, Hooks::id)
    }

    /// Returns the number under which the prefix cache stores pages; 0 without hooks.
    pub(super) fn prefix_id(&self) -> u32 {
        self.adapters
            .as_ref()
            .map_or(0, |adapters| adapters.prefix_id)
    }

    /// Returns the sampling stage that the request needs.
    pub(super) fn stage(&self) -> SamplingStage {
        let sampling = self.sampling.as_ref();
        sampling.map_or(SamplingStage::Greedy, |sampling| sampling.stage)
    }

    /// Returns whether its steps output log-probabilities.
    pub(super) fn logprobs_mode(&self) -> LogprobsMode {
        let sampling = self.sampling.as_ref();
        sampling.map_or(LogprobsMode::Off, SamplingRequest::logprobs_mode)
    }

    /// Returns the drafter.
    pub(super) fn drafter(&self) -> Option<&Drafter> {
        self.sampling.as_ref()?.drafter.as_ref()
    }

    /// Puts the drafter back.
    pub(super) fn restore_drafter(&mut self, drafter: Drafter) {
        if let Some(sampling) = &mut self.sampling {
            sampling.drafter = Some(drafter);
        }
    }

    /// Sends the tokens after the first `before` to the session. `done` is that of the row of the last pass.
    pub(super) fn deliver(&mut self, before: usize, done: u32, logprobs: Option<Logprobs>) {
        // The last token was sampled, but not computed. A pass that samples no token has computed the last one, and
        // a recurrent state cannot return to the position before it.
        let sampled = usize::from(done != NOT_FINITE);
        self.cached = self.sequence.len() - sampled;
        self.sampled += self.sequence.len() - before;
        self.output_queue
            .push_tokens(&self.sequence.tokens()[before..], logprobs);
    }

    /// Advances the grammar by the last sampled token and, unless the sequence is `done`, appends
    /// the tokens that the grammar forces. Returns the new `done`.
    ///
    /// # Errors
    ///
    /// `Grammar` if no token is allowed.
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
        // Log-probabilities exist only for sampled tokens, so forced tokens are sampled then.
        let with_logprobs = sampling.logprobs_mode() == LogprobsMode::On;
        let Some(grammar_state) = &mut sampling.grammar_state else {
            return Ok(done);
        };
        if let Some(failure) = grammar_state.failure() {
            return Err(failure);
        }
        if done == NOT_FINITE {
            return Ok(done);
        }
        grammar_state.accept(*last)?;
        if grammar_state.is_done() {
            return Ok(STOPPED);
        }
        if done != RUNNING {
            return Ok(done);
        }
        let max = remaining.min(room).min(context.saturating_sub(len));
        let forced = grammar_state.accept_forced(if with_logprobs { 0 } else { max })?;
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

    /// Returns the number of tokens that may still be sampled.
    pub(super) fn remaining(&self) -> usize {
        let limit = self.sampling.as_ref().map_or(0, |sampling| sampling.limit);
        limit - self.sampled
    }
}

#[cfg(test)]
impl Request {
    /// Creates a request that prefills a sequence.
    pub(super) fn of_sequence(sequence: Sequence) -> Self {
        Self {
            sequence,
            cached: 0,
            head_keys: 0,
            reusable: usize::MAX,
            computed: 0,
            sampling: None,
            hooks: None,
            adapters: None,
            captured: None,
            output: OutputRequest::Nothing,
            slot: 0,
            sampled: 0,
            submitting: Duration::ZERO,
            output_queue: Arc::new(OutputQueue::new(None)),
            cancel: Cancel::new(),
            if_busy: IfBusy::Wait,
            ended: false,
        }
    }
}

/// A session must not wait forever for a request that the engine dropped.
impl Drop for Request {
    fn drop(&mut self) {
        if !self.ended {
            let message = "the model's thread has ended: load the model again";
            self.end(Err(Error::new(ErrorKind::Poisoned, message)));
        }
    }
}
