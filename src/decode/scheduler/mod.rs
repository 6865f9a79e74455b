//! The scheduler: selects the sequences that the device computes next. It runs on the model's
//! thread; in builds without threads, the functions that wait for output run its iterations.
//!
//! A speech model has windows of recordings instead of sequences: one iteration starts one and decodes
//! a token of all.
//!
//! One iteration prefills a chunk of one prompt and then decodes a burst of all prefilled
//! sequences, so that a prompt delays the others by at most one chunk. While a prompt waits, bursts
//! are single steps. If the device supports it, the next burst of the same batch is submitted
//! before the previous one is read.

mod slots;
mod steps;
#[cfg(test)]
mod tests;

use super::engine::Engine;
use super::grammar_state::MaskWorker;
use super::lost;
use super::outputs::Finish;
use super::request::{IfBusy, Request};
use super::request_queue::{Message, Received, RequestQueue, WaitPolicy};
use super::rows::PendingTokens;
use super::sequence::StepBits;
use crate::error::{Error, ErrorKind, Result};
use crate::reserve;
use slots::Slots;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Maximum number of queued requests.
pub(super) const WAITING_MAX: usize = 1024;

/// Maximum number of messages handled per iteration, so that retrying clients cannot starve
/// decoding.
const MESSAGES_MAX: u32 = 64;

/// Maximum number of tokens of a chunk while other sequences decode: a chunk delays their next token. If more
/// prompts wait than sequences decode, chunks are twice as long, so that more sequences soon share the decode
/// steps.
const INTERLEAVED_TOKENS: usize = 64;

/// How long the scheduler waits while all output queues are full.
const STALL: Duration = Duration::from_millis(2);

/// A burst that was submitted and not read yet.
struct InFlight {
    pending: PendingTokens,
    /// Number of steps; 0 if a token is sampled from existing logits.
    steps: u32,
    start: Instant,
}

/// Which prompt the next chunk is from. The turns alternate, so that neither a long prompt delays all later
/// ones, nor short ones delay a long one forever.
#[derive(Clone, Copy)]
enum PrefillTurn {
    /// The one that got its slot first.
    Oldest,
    /// The one with the fewest tokens left; among equals the oldest.
    Shortest,
}

/// State of the scheduler. A burst in flight is collected before a free slot is assigned, so that a slot of
/// its batch has the same request as at its start, or none.
pub(super) struct Scheduler {
    engine: Engine,
    slots: Slots,
    waiting: VecDeque<Request>,
    /// Whose chunk is prefilled next.
    turn: PrefillTurn,
    in_flight: Option<InFlight>,
    /// Slots in the current batch, in the order of their rows.
    batch: Vec<u32>,
    /// Slots that can decode a step.
    ready: Vec<u32>,
    /// Computes grammar masks. Started with the first request that has a grammar.
    mask_worker: Option<MaskWorker>,
    /// Time when the tokens of the last burst were delivered.
    collected: Instant,
}

impl Scheduler {
    pub(super) fn new(engine: Engine) -> Self {
        let sequences = engine.linked.facts.sequences;
        let count = sequences as usize;
        Self {
            slots: Slots::new(sequences),
            waiting: VecDeque::with_capacity(WAITING_MAX),
            turn: PrefillTurn::Oldest,
            in_flight: None,
            batch: Vec::with_capacity(count),
            ready: Vec::with_capacity(count),
            mask_worker: None,
            collected: Instant::now(),
            engine,
        }
    }

    /// Handles requests until the queue is closed. After a panic all requests fail and later ones
    /// are rejected.
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
            let all = self.slots.iter_mut().chain(&mut self.waiting);
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
            let idle = self.slots.is_empty()
                && self.waiting.is_empty()
                && self.in_flight.is_none()
                && self.engine.windows.is_idle();
            wait = if idle {
                WaitPolicy::Forever
            } else {
                WaitPolicy::NoWait
            };
        }
    }

    /// Handles the messages that have arrived, and ends cancelled requests.
    pub(super) fn handle_messages(&mut self, request_queue: &RequestQueue) {
        for _ in 0..MESSAGES_MAX {
            let Received::Message(message) = request_queue.receive(WaitPolicy::NoWait) else {
                break;
            };
            self.handle(message);
        }
        self.end_cancelled();
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Start(mut request) if self.waiting.len() >= WAITING_MAX => {
                let message =
                    format_args!("the model's queue is full: {WAITING_MAX} requests are waiting");
                request.end(Err(Error::new(ErrorKind::Busy, message)));
            }
            Message::Start(mut request)
                if request.if_busy == IfBusy::Fail && !self.has_free_slot() =>
            {
                let message = "the model is busy: no slot is free";
                request.end(Err(Error::new(ErrorKind::Busy, message)));
            }
            Message::Start(mut request) => match self.check() {
                Ok(()) => self.waiting.push_back(request),
                Err(e) => request.end(Err(e)),
            },
            Message::Call(work) => {
                if let Err(e) = self.collect() {
                    self.fail(&e);
                }
                work(&mut self.engine);
                if let Some(e) = lost::failure(&self.engine.linked) {
                    self.fail(&e);
                }
            }
        }
    }

    /// Checks that the model's files have not changed, and that there is memory.
    fn check(&self) -> Result<()> {
        (self.engine.linked.check_files)()?;
        reserve::check()
    }

    /// Returns whether a slot is free and no queued request needs it.
    fn has_free_slot(&self) -> bool {
        self.slots.free().is_some() && !self.waiting.iter().any(Request::needs_slot)
    }

    /// Runs one iteration: a chunk and a burst. Returns whether there was work.
    pub(super) fn run_iteration(&mut self) -> bool {
        self.end_cancelled();
        if let Err(e) = reserve::check() {
            self.fail(&e);
            for mut request in self.waiting.drain(..) {
                request.end(Err(Error::new(e.kind(), e.message())));
            }
        }
        let decoded = self.engine.decode_windows();
        let done = self.admit().and_then(|()| {
            let prefilled = self.prefill()?;
            Ok(self.step()? || prefilled || decoded)
        });
        done.unwrap_or_else(|e| {
            self.fail(&e);
            true
        })
    }

    /// Fails all running requests, because the state of the device is unknown.
    fn fail(&mut self, error: &Error) {
        self.in_flight = None;
        // Its queue may contain masks of the failed requests.
        self.mask_worker = None;
        lost::free_if_lost(&mut self.engine.linked, error);
        while let Some(slot) = self.slots.nth(0) {
            let mut request = self.slots.vacate(slot);
            self.engine.discard_slot(&request);
            request.cached = 0;
            request.end(Err(Error::new(error.kind(), error.message())));
        }
        self.engine.kv.clear_prefixes();
    }

    /// Ends cancelled requests.
    fn end_cancelled(&mut self) {
        let is_cancelled = |request: &Request| {
            request.output_queue.is_stop_requested() || request.cancel.is_pending()
        };
        if self.engine.is_recurrent() && self.slots.iter().any(is_cancelled) {
            // The state that is kept must be the one after the last token.
            if let Err(e) = self.collect() {
                self.fail(&e);
            }
        }
        while let Some(slot) = self.slots.find(is_cancelled) {
            self.end(slot, Ok(Some(Finish::Cancelled)));
        }
        self.waiting.retain_mut(|request| {
            let cancelled = is_cancelled(request);
            if cancelled {
                request.end(Ok(Some(Finish::Cancelled)));
            }
            !cancelled
        });
    }

    /// Ends the request of a slot.
    fn end(&mut self, slot: u32, finish: Result<Option<Finish>>) {
        let mut request = self.slots.vacate(slot);
        self.engine.release_slot(&mut request);
        request.end(finish);
    }

    /// Assigns slots to queued requests in order.
    fn admit(&mut self) -> Result<()> {
        let mut waiting = self.waiting.iter();
        let Some(first) = waiting.position(Request::needs_slot) else {
            return Ok(());
        };
        match self.slots.free() {
            Some(_) => self.collect()?,
            None => self.preempt_stalled()?,
        }
        let mut next = Some(first);
        while let (Some(slot), Some(at)) = (self.slots.free(), next) {
            let mut request = self.waiting.remove(at).expect("index is valid");
            let mut waiting = self.waiting.iter();
            next = waiting.position(Request::needs_slot);
            if let Err(e) = self.start_mask_worker(&request) {
                request.end(Err(e));
                continue;
            }
            match self.engine.assign_slot(&mut request, slot) {
                Ok(()) => {
                    request.output_queue.report_progress(request.cached);
                    self.slots.assign(request);
                    // Sample now, while its logits are on the device.
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

    /// Preempts a request whose output queue is full, and moves it to the end of the queue.
    fn preempt_stalled(&mut self) -> Result<()> {
        if !self.slots.iter().any(Request::is_stalled) {
            return Ok(());
        }
        self.collect()?;
        if let Some(slot) = self.slots.find(Request::is_stalled) {
            let request = self.slots.get_mut(slot).expect("the slot is assigned");
            self.engine.read_sampler_state(request)?;
            let mut request = self.slots.vacate(slot);
            self.engine.release_slot(&mut request);
            self.waiting.push_back(request);
        }
        Ok(())
    }

    /// Returns the maximum number of tokens of the next chunk of a request. While other sequences decode,
    /// chunks are short, if the length of a chunk does not change its bits.
    fn max_chunk(&self, request: &Request) -> usize {
        let decodes = |request: &&Request| request.sampling.is_some() && request.is_prefilled();
        let decoding = self.slots.iter().filter(decodes).count();
        if decoding == 0 || self.engine.step_bits() != StepBits::SameAsChunk {
            return usize::MAX;
        }
        let tokens = match self.unfinished_prompts().count() > decoding {
            true => 2 * INTERLEAVED_TOKENS,
            false => INTERLEAVED_TOKENS,
        };
        // Every chunk reads all weights: a short rest is not worth a chunk of its own.
        match request.remaining_prompt() {
            rest if rest <= tokens + INTERLEAVED_TOKENS / 2 => rest,
            _ => tokens,
        }
    }

    /// Returns the requests whose prompts are not prefilled, the oldest first.
    fn unfinished_prompts(&self) -> impl Iterator<Item = &Request> {
        let requests = self.slots.iter();
        requests.filter(|request| !request.is_prefilled())
    }

    /// Returns the slot of the request whose chunk is prefilled next.
    fn next_prompt(&mut self) -> Option<u32> {
        let (slot, turn) = {
            let mut prompts = self.unfinished_prompts();
            let (request, turn) = match self.turn {
                PrefillTurn::Oldest => (prompts.next(), PrefillTurn::Shortest),
                PrefillTurn::Shortest => {
                    let shortest = prompts.min_by_key(|request| request.remaining_prompt());
                    (shortest, PrefillTurn::Oldest)
                }
            };
            (request?.slot, turn)
        };
        self.turn = turn;
        Some(slot)
    }

    /// Prefills a chunk of a prompt, and samples its first token after the last chunk.
    fn prefill(&mut self) -> Result<bool> {
        let Some(slot) = self.next_prompt() else {
            return Ok(false);
        };
        self.collect()?;
        let max_tokens = self.slots.get(slot).map(|request| self.max_chunk(request));
        let (Some(request), Some(max_tokens)) = (self.slots.get_mut(slot), max_tokens) else {
            return Ok(true);
        };
        self.engine.prefill(request, max_tokens)?;
        request.output_queue.report_progress(request.cached);
        self.start_sampling()?;
        Ok(true)
    }

    /// Samples the first token of prefilled requests, or ends them.
    fn start_sampling(&mut self) -> Result<bool> {
        let context = self.engine.linked.facts.context as usize;
        let mut at = 0;
        let mut any = false;
        while let Some(slot) = self.slots.nth(at) {
            let request = self.slots.get(slot).expect("the slot is assigned");
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
                self.end(slot, Ok(finish));
                any = true;
                continue;
            }
            if request.cached == request.sequence.len() {
                self.batch.clear();
                self.batch.push(slot);
                let masks = self.request_masks()?;
                self.upload_masks(masks)?;
                let request = self.slots.get_mut(slot).expect("the slot is assigned");
                let pending = self.engine.sample_first(request)?;
                self.in_flight = Some(InFlight {
                    pending,
                    steps: 0,
                    start: Instant::now(),
                });
                self.collect()?;
                any = true;
                // The request may have ended: check the same index again.
                continue;
            }
            at += 1;
        }
        Ok(any)
    }
}
