//! The scheduler: which sequences go through the device next. It is the one thread that has it.
//!
//! A round is a chunk of one prompt and a chain of steps of all sequences that have theirs behind
//! them, so that a prompt holds the others up for no longer than a chunk. Chains are single steps
//! while a prompt waits. Where the device runs ahead, the next chain of the same sequences is
//! submitted before the one in front of it was read.

mod steps;
#[cfg(test)]
mod tests;

use super::engine::Engine;
use super::grammar_state::MaskWorker;
use super::outputs::Finish;
use super::request::{IfBusy, Request};
use super::request_queue::{Message, Received, RequestQueue, WaitPolicy};
use super::rows::PendingTokens;
use crate::error::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Requests that wait for a seat at most.
pub(super) const WAITING_MAX: usize = 1024;

/// Messages without a round between them at most: who is refused and comes again holds up nobody.
const MESSAGES_MAX: u32 = 64;

/// How long the scheduler sleeps where sessions do not take the tokens that they have.
const STALL: Duration = Duration::from_millis(2);

/// A chain that was submitted and not read.
struct InFlight {
    pending: PendingTokens,
    /// Steps of it; 0 where tokens were picked from logits that were there.
    steps: u32,
    since: Instant,
}

/// Everything that has to do with the device, on one thread.
pub(super) struct Scheduler {
    engine: Engine,
    /// Those that have a seat.
    requests: Vec<Request>,
    waiting: VecDeque<Request>,
    slots: Vec<u32>,
    /// Whose turn it is to be fed.
    next_prefill: usize,
    in_flight: Option<InFlight>,
    /// The sessions of its rows.
    batch: Vec<u64>,
    /// The sessions that can go on.
    ready: Vec<u64>,
    /// Finds what grammars let through, once there is one.
    mask_worker: Option<MaskWorker>,
    /// When the last chain was read.
    collected: Instant,
}

impl Scheduler {
    pub(super) fn new(engine: Engine) -> Self {
        let sequences = engine.linked.facts.sequences;
        let count = sequences as usize;
        Self {
            requests: Vec::with_capacity(count),
            waiting: VecDeque::with_capacity(WAITING_MAX),
            slots: (0..sequences).rev().collect(),
            next_prefill: 0,
            in_flight: None,
            batch: Vec::with_capacity(count),
            ready: Vec::with_capacity(count),
            mask_worker: None,
            collected: Instant::now(),
            engine,
        }
    }

    /// Serves sessions until there are none. A panic ends the work of all of them, and whatever
    /// comes behind it is refused.
    pub(super) fn serve(mut self, request_queue: &RequestQueue) {
        let served = catch_unwind(AssertUnwindSafe(|| self.run(request_queue)));
        request_queue.close();
        if served.is_err() {
            let ended = || {
                Error::new(
                    ErrorKind::Poisoned,
                    "the model's thread panicked: load the model again",
                )
            };
            let all = self.requests.iter_mut().chain(&mut self.waiting);
            all.for_each(|request| request.end(Err(ended())));
        }
    }

    fn run(&mut self, request_queue: &RequestQueue) {
        let (mut wait, mut messages) = (WaitPolicy::Forever, 0);
        loop {
            match request_queue.receive(wait) {
                Received::Message(message) => {
                    self.handle(message);
                    messages += 1;
                    if messages == MESSAGES_MAX {
                        self.run_iteration();
                        messages = 0;
                    }
                }
                Received::Closed => return,
                Received::Empty => {
                    messages = 0;
                    if !self.run_iteration() {
                        wait = WaitPolicy::Timeout(STALL);
                        continue;
                    }
                }
            }
            let idle =
                self.requests.is_empty() && self.waiting.is_empty() && self.in_flight.is_none();
            wait = if idle {
                WaitPolicy::Forever
            } else {
                WaitPolicy::NoWait
            };
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Start(mut request) if self.waiting.len() >= WAITING_MAX => {
                let message = format_args!("{WAITING_MAX} others wait for the model");
                request.end(Err(Error::new(ErrorKind::Busy, message)));
            }
            Message::Start(mut request)
                if request.if_busy == IfBusy::Fail && !self.has_free_slot() =>
            {
                let message = "others have the model";
                request.end(Err(Error::new(ErrorKind::Busy, message)));
            }
            Message::Start(request) => self.waiting.push_back(request),
            Message::Call(work) => {
                if let Err(e) = self.collect() {
                    self.fail(&e);
                }
                work(&mut self.engine);
            }
        }
    }

    /// Whether a seat is free that nobody waits for.
    fn has_free_slot(&self) -> bool {
        !self.slots.is_empty() && !self.waiting.iter().any(Request::wants_slot)
    }

    /// A chunk and a chain. Returns whether there was something to do.
    fn run_iteration(&mut self) -> bool {
        self.end_cancelled();
        let done = self.admit().and_then(|()| {
            let cached = self.prefill()?;
            Ok(self.step()? || cached)
        });
        done.unwrap_or_else(|e| {
            self.fail(&e);
            true
        })
    }

    /// Ends everything that was at work: who knows what the device has of it.
    fn fail(&mut self, error: &Error) {
        self.in_flight = None;
        // It may have found some that nobody waits for any more.
        self.mask_worker = None;
        for mut request in self.requests.drain(..) {
            self.engine.discard_slot(&request);
            self.slots.push(request.slot);
            request.cached = 0;
            request.end(Err(Error::new(error.kind(), error.message())));
        }
        self.engine.kv.clear_prefixes();
    }

    /// Ends what nobody wants any more. Its session heeds that, on its own thread.
    fn end_cancelled(&mut self) {
        let mut at = 0;
        while at < self.requests.len() {
            let request = &self.requests[at];
            if request.output_queue.is_stop_requested() || request.cancel.is_pending() {
                self.end(at, Ok(Some(Finish::Cancelled)));
            } else {
                at += 1;
            }
        }
        self.waiting.retain_mut(|request| {
            let cancelled = request.output_queue.is_stop_requested() || request.cancel.is_pending();
            if cancelled {
                request.end(Ok(Some(Finish::Cancelled)));
            }
            !cancelled
        });
    }

    /// Ends a request that has a seat.
    fn end(&mut self, at: usize, finish: Result<Option<Finish>>) {
        let mut request = self.vacate_slot(at);
        self.engine.release_slot(&mut request);
        request.end(finish);
    }

    /// Takes a request out of those that have seats.
    fn vacate_slot(&mut self, at: usize) -> Request {
        let request = self.requests.remove(at);
        if at < self.next_prefill {
            self.next_prefill -= 1;
        }
        self.slots.push(request.slot);
        request
    }

    /// Gives seats to those that wait, in their order.
    fn admit(&mut self) -> Result<()> {
        let mut waiting = self.waiting.iter();
        let Some(first) = waiting.position(Request::wants_slot) else {
            return Ok(());
        };
        if self.slots.is_empty() {
            self.preempt_stalled()?;
        } else {
            self.collect()?;
        }
        let mut next = Some(first);
        while let (Some(&slot), Some(at)) = (self.slots.last(), next) {
            let mut request = self.waiting.remove(at).expect("one waits there");
            let mut waiting = self.waiting.iter();
            next = waiting.position(Request::wants_slot);
            if let Err(e) = self.start_mask_worker(&request) {
                request.end(Err(e));
                continue;
            }
            match self.engine.assign_slot(&mut request, slot) {
                Ok(()) => {
                    self.slots.pop();
                    request.output_queue.report_progress(request.cached);
                    self.requests.push(request);
                    // Its logits may be there, until something else goes through the device.
                    self.start_sampling()?;
                }
                Err(e) => {
                    self.engine.discard_slot(&request);
                    request.end(Err(Error::new(e.kind(), e.message())));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Takes the seat of one whose session does not take its tokens: it waits again, behind the others.
    fn preempt_stalled(&mut self) -> Result<()> {
        if !self.requests.iter().any(Request::is_stalled) {
            return Ok(());
        }
        self.collect()?;
        if let Some(at) = self.requests.iter().position(Request::is_stalled) {
            self.engine.read_sampler_state(&mut self.requests[at])?;
            let mut request = self.vacate_slot(at);
            self.engine.release_slot(&mut request);
            self.waiting.push_back(request);
        }
        Ok(())
    }

    /// Feeds a chunk of the one whose turn it is, and picks its first token where it is the last.
    fn prefill(&mut self) -> Result<bool> {
        let count = self.requests.len();
        let mut order = (self.next_prefill..count).chain(0..self.next_prefill.min(count));
        let Some(at) = order.find(|at| !self.requests[*at].is_prefilled()) else {
            return Ok(false);
        };
        let session = self.requests[at].session;
        self.collect()?;
        let Some(at) = self.requests.iter().position(|r| r.session == session) else {
            return Ok(true);
        };
        self.next_prefill = at + 1;
        let request = &mut self.requests[at];
        self.engine.prefill(request)?;
        request.output_queue.report_progress(request.cached);
        self.start_sampling()?;
        Ok(true)
    }

    /// What was fed goes on: to its first token, or to its end.
    fn start_sampling(&mut self) -> Result<bool> {
        let context = self.engine.linked.facts.context as usize;
        let mut at = 0;
        let mut any = false;
        while at < self.requests.len() {
            let request = &mut self.requests[at];
            let full = request.sequence.len() > context;
            if !request.is_prefilled() && !full {
                at += 1;
                continue;
            }
            let finish = match &request.sampling {
                None => Some(None),
                Some(_) if request.remaining() == 0 => Some(Some(Finish::Length)),
                Some(_) if full => Some(Some(Finish::Context)),
                Some(_) => None,
            };
            if let Some(finish) = finish {
                self.end(at, Ok(finish));
                any = true;
                continue;
            }
            if request.cached == request.sequence.len() {
                self.batch.clear();
                self.batch.push(request.session);
                let masks = self.request_masks()?;
                self.upload_masks(masks)?;
                let pending = self.engine.sample_first(&mut self.requests[at])?;
                self.in_flight = Some(InFlight {
                    pending,
                    steps: 0,
                    since: Instant::now(),
                });
                self.collect()?;
                any = true;
                // It may have ended.
                continue;
            }
            at += 1;
        }
        Ok(any)
    }
}
