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
use super::grammar_state::Masks;
use super::outputs::Finish;
use super::request::{IfBusy, Request};
use super::request_queue::{Found, Message, RequestQueue, WaitPolicy};
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
struct UnderWay {
    picks: PendingTokens,
    /// Steps of it; 0 where tokens were picked from logits that were there.
    times: u32,
    since: Instant,
}

/// Everything that has to do with the device, on one thread.
pub(super) struct Scheduler {
    engine: Engine,
    /// Those that have a seat.
    requests: Vec<Request>,
    waiting: VecDeque<Request>,
    seats: Vec<u32>,
    /// Whose turn it is to be fed.
    turn: usize,
    under_way: Option<UnderWay>,
    /// The sessions of its rows.
    members: Vec<u64>,
    /// The sessions that can go on.
    ready: Vec<u64>,
    /// Finds what grammars let through, once there is one.
    masks: Option<Masks>,
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
            seats: (0..sequences).rev().collect(),
            turn: 0,
            under_way: None,
            members: Vec::with_capacity(count),
            ready: Vec::with_capacity(count),
            masks: None,
            collected: Instant::now(),
            engine,
        }
    }

    /// Serves sessions until there are none. A panic ends the work of all of them, and whatever
    /// comes behind it is refused.
    pub(super) fn serve(mut self, inbox: &RequestQueue) {
        let served = catch_unwind(AssertUnwindSafe(|| self.rounds(inbox)));
        inbox.close();
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

    fn rounds(&mut self, inbox: &RequestQueue) {
        let (mut patience, mut messages) = (WaitPolicy::Endless, 0);
        loop {
            match inbox.take(patience) {
                Found::Message(message) => {
                    self.take(message);
                    messages += 1;
                    if messages == MESSAGES_MAX {
                        self.round();
                        messages = 0;
                    }
                }
                Found::Closed => return,
                Found::Nothing => {
                    messages = 0;
                    if !self.round() {
                        patience = WaitPolicy::Some(STALL);
                        continue;
                    }
                }
            }
            let idle =
                self.requests.is_empty() && self.waiting.is_empty() && self.under_way.is_none();
            patience = if idle {
                WaitPolicy::Endless
            } else {
                WaitPolicy::None
            };
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Start(mut request) if self.waiting.len() >= WAITING_MAX => {
                let message = format_args!("{WAITING_MAX} others wait for the model");
                request.end(Err(Error::new(ErrorKind::Busy, message)));
            }
            Message::Start(mut request) if request.if_busy == IfBusy::Fail && !self.has_seat() => {
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
    fn has_seat(&self) -> bool {
        !self.seats.is_empty() && !self.waiting.iter().any(Request::wants_seat)
    }

    /// A chunk and a chain. Returns whether there was something to do.
    fn round(&mut self) -> bool {
        self.end_cancelled();
        let done = self.admit().and_then(|()| {
            let fed = self.feed()?;
            Ok(self.step()? || fed)
        });
        done.unwrap_or_else(|e| {
            self.fail(&e);
            true
        })
    }

    /// Ends everything that was at work: who knows what the device has of it.
    fn fail(&mut self, error: &Error) {
        self.under_way = None;
        // It may have found some that nobody waits for any more.
        self.masks = None;
        for mut request in self.requests.drain(..) {
            self.engine.drop_seat(&request);
            self.seats.push(request.seat);
            request.fed = 0;
            request.end(Err(Error::new(error.kind(), error.message())));
        }
        self.engine.kv.forget_prefixes();
    }

    /// Ends what nobody wants any more. Its session heeds that, on its own thread.
    fn end_cancelled(&mut self) {
        let mut at = 0;
        while at < self.requests.len() {
            let request = &self.requests[at];
            if request.mail.is_enough() || request.cancel.is_asked() {
                self.end(at, Ok(Some(Finish::Cancelled)));
            } else {
                at += 1;
            }
        }
        self.waiting.retain_mut(|request| {
            let cancelled = request.mail.is_enough() || request.cancel.is_asked();
            if cancelled {
                request.end(Ok(Some(Finish::Cancelled)));
            }
            !cancelled
        });
    }

    /// Ends a request that has a seat.
    fn end(&mut self, at: usize, finish: Result<Option<Finish>>) {
        let mut request = self.take_seat(at);
        self.engine.unseat(&mut request);
        request.end(finish);
    }

    /// Takes a request out of those that have seats.
    fn take_seat(&mut self, at: usize) -> Request {
        let request = self.requests.remove(at);
        if at < self.turn {
            self.turn -= 1;
        }
        self.seats.push(request.seat);
        request
    }

    /// Gives seats to those that wait, in their order.
    fn admit(&mut self) -> Result<()> {
        let mut waiting = self.waiting.iter();
        let Some(first) = waiting.position(Request::wants_seat) else {
            return Ok(());
        };
        if self.seats.is_empty() {
            self.make_way()?;
        } else {
            self.collect()?;
        }
        let mut next = Some(first);
        while let (Some(&seat), Some(at)) = (self.seats.last(), next) {
            let mut request = self.waiting.remove(at).expect("one waits there");
            let mut waiting = self.waiting.iter();
            next = waiting.position(Request::wants_seat);
            if let Err(e) = self.ready_masks(&request) {
                request.end(Err(e));
                continue;
            }
            match self.engine.seat(&mut request, seat) {
                Ok(()) => {
                    self.seats.pop();
                    request.mail.fed(request.fed);
                    self.requests.push(request);
                    // Its logits may be there, until something else goes through the device.
                    self.begin()?;
                }
                Err(e) => {
                    self.engine.drop_seat(&request);
                    request.end(Err(Error::new(e.kind(), e.message())));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Takes the seat of one whose session does not take its tokens: it waits again, behind the others.
    fn make_way(&mut self) -> Result<()> {
        if !self.requests.iter().any(Request::is_stalled) {
            return Ok(());
        }
        self.collect()?;
        if let Some(at) = self.requests.iter().position(Request::is_stalled) {
            self.engine.learn(&mut self.requests[at])?;
            let mut request = self.take_seat(at);
            self.engine.unseat(&mut request);
            self.waiting.push_back(request);
        }
        Ok(())
    }

    /// Feeds a chunk of the one whose turn it is, and picks its first token where it is the last.
    fn feed(&mut self) -> Result<bool> {
        let count = self.requests.len();
        let mut order = (self.turn..count).chain(0..self.turn.min(count));
        let Some(at) = order.find(|at| !self.requests[*at].is_fed()) else {
            return Ok(false);
        };
        let session = self.requests[at].session;
        self.collect()?;
        let Some(at) = self.requests.iter().position(|r| r.session == session) else {
            return Ok(true);
        };
        self.turn = at + 1;
        let request = &mut self.requests[at];
        self.engine.feed(request)?;
        request.mail.fed(request.fed);
        self.begin()?;
        Ok(true)
    }

    /// What was fed goes on: to its first token, or to its end.
    fn begin(&mut self) -> Result<bool> {
        let context = self.engine.linked.facts.context as usize;
        let mut at = 0;
        let mut any = false;
        while at < self.requests.len() {
            let request = &mut self.requests[at];
            let full = request.sequence.len() > context;
            if !request.is_fed() && !full {
                at += 1;
                continue;
            }
            let finish = match &request.picking {
                None => Some(None),
                Some(_) if request.left() == 0 => Some(Some(Finish::Length)),
                Some(_) if full => Some(Some(Finish::Context)),
                Some(_) => None,
            };
            if let Some(finish) = finish {
                self.end(at, Ok(finish));
                any = true;
                continue;
            }
            if request.fed == request.sequence.len() {
                self.members.clear();
                self.members.push(request.session);
                let wanted = self.want_masks()?;
                self.take_masks(wanted)?;
                let picks = self.engine.pick_first(&mut self.requests[at])?;
                self.under_way = Some(UnderWay {
                    picks,
                    times: 0,
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
