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
    pub(super) fed: usize,
    /// Maximum number of its tokens that may come from the prefix cache.
    pub(super) reusable: usize,
    /// Number of tokens that were computed for it.
    pub(super) computed: usize,
    /// `None`: the sequence is fed and nothing more.
    pub(super) picking: Option<SamplingRequest>,
    /// What is wanted beside tokens.
    pub(super) wanted: OutputRequest,
    /// Its row of the page table and of the history, once it has one.
    pub(super) seat: u32,
    pub(super) picked: usize,
    /// What the host spent on handing its chains to the device.
    pub(super) submitting: Duration,
    pub(super) mail: Arc<OutputQueue>,
    pub(super) cancel: Cancel,
    pub(super) if_busy: IfBusy,
    /// Whether the end was told.
    pub(super) ended: bool,
}

impl Request {
    /// Gives everything back.
    pub(super) fn end(&mut self, finish: Result<Option<Finish>>) {
        self.ended = true;
        self.mail.end(End {
            sequence: std::mem::take(&mut self.sequence),
            wanted: std::mem::take(&mut self.wanted),
            submitting: self.submitting,
            guesses: self.guesser().map(|g| g.count).unwrap_or_default(),
            follow: self.picking.as_mut().and_then(|p| p.follow.take()),
            fed: self.fed,
            computed: self.computed,
            finish,
        });
    }

    /// Whether all is in the cache that has to be before anything is picked: a picked last token goes
    /// through the model with the step that picks the next one.
    pub(super) fn is_fed(&self) -> bool {
        let len = self.sequence.len();
        let goes_on = self.picking.is_some() && self.fed + 1 == len;
        self.fed == len || goes_on && self.sequence.was_picked(self.fed)
    }

    /// Whether it goes on only once its session takes tokens, and may do so in another seat.
    pub(super) fn is_stalled(&self) -> bool {
        self.picking.is_some() && self.mail.room() == 0
    }

    /// Whether its session has taken enough tokens for a seat to be worth it: one that has just lost its seat
    /// would lose the next one with the next token.
    pub(super) fn wants_seat(&self) -> bool {
        self.mail.room() >= UNREAD_MAX / 2
    }

    /// The tail of tables that picks its tokens.
    pub(super) fn tail(&self) -> SamplingStage {
        let picking = self.picking.as_ref();
        picking.map_or(SamplingStage::Greedy, |picking| picking.tail)
    }

    /// What its steps tell beside tokens.
    pub(super) fn tells(&self) -> LogProbsMode {
        let picking = self.picking.as_ref();
        picking.map_or(LogProbsMode::Nothing, SamplingRequest::tells)
    }

    /// What makes guesses for it.
    pub(super) fn guesser(&self) -> Option<&Drafter> {
        self.picking.as_ref()?.guesser.as_ref()
    }

    /// Takes back what makes guesses for it.
    pub(super) fn give_back(&mut self, guesser: Drafter) {
        if let Some(picking) = &mut self.picking {
            picking.guesser = Some(guesser);
        }
    }

    /// Hands its session the tokens behind the first `before`, which were just picked.
    pub(super) fn take(&mut self, before: usize, log_probs: Option<LogProbs>) {
        self.fed = self.sequence.len() - 1;
        self.picked += self.sequence.len() - before;
        self.mail.pick(&self.sequence.tokens()[before..], log_probs);
    }

    /// Goes on in the grammar behind the token that was picked last, and as far as there is but one way
    /// if the sequence is not `done`. Returns whether it is then.
    ///
    /// # Errors
    ///
    /// `Grammar` where there is no way on.
    pub(super) fn follow(&mut self, done: u32, context: usize) -> Result<u32> {
        let (left, room, len) = (self.left(), self.mail.room(), self.sequence.len());
        let (Some(picking), Some(last)) = (&mut self.picking, self.sequence.tokens().last()) else {
            return Ok(done);
        };
        // What is told of tokens is told of picked ones.
        let alone = picking.tells() == LogProbsMode::LogProbs;
        let Some(follow) = &mut picking.follow else {
            return Ok(done);
        };
        if let Some(failure) = follow.failure() {
            return Err(failure);
        }
        follow.take(*last)?;
        if follow.is_done() {
            return Ok(STOPPED);
        }
        if done != RUNNING {
            return Ok(done);
        }
        let most = left.min(room).min(context.saturating_sub(len));
        let forced = follow.force(if alone { 0 } else { most })?;
        let stops = &picking.sampler.stops[..picking.sampler.stop_count as usize];
        let stop = forced.iter().position(|token| stops.contains(token));
        let forced = &forced[..stop.map_or(forced.len(), |at| at + 1)];
        forced.iter().for_each(|token| self.sequence.pick(*token));
        self.mail.pick(forced, None);
        self.picked += forced.len();
        let done = stop.is_some() || follow.is_done();
        Ok(if done { STOPPED } else { RUNNING })
    }

    /// Tokens that may still be picked.
    pub(super) fn left(&self) -> usize {
        let limit = self.picking.as_ref().map_or(0, |picking| picking.limit);
        limit - self.picked
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
