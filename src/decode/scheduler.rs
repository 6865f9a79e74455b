//! The scheduler: which sequences go through the device next. It is the one thread that has it.
//!
//! A round is a chunk of one prompt and a chain of steps of all sequences that have theirs behind
//! them, so that a prompt holds the others up for no longer than a chunk. Chains are single steps
//! while a prompt waits. Where the device runs ahead, the next chain of the same sequences is
//! submitted before the one in front of it was read.

use super::engine::{Engine, row_of};
use super::follow::Masks;
use super::generate::Finish;
use super::inbox::{Found, Inbox, Message, Patience};
use super::request::{Picking, Request};
use super::rows::{Picks, Submission, Tells};
use super::speculate::Guesser;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::state::{FULL, RUNNING, STOPPED};
use crate::op::table::Tail;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Requests that wait for a seat at most.
pub(super) const WAITING_MAX: usize = 1024;

/// How long the scheduler sleeps where sessions do not take the tokens that they have.
const STALL: Duration = Duration::from_millis(2);

/// A chain that was submitted and not read.
struct UnderWay {
    picks: Picks,
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
    pub(super) fn serve(mut self, inbox: &Inbox) {
        let served = catch_unwind(AssertUnwindSafe(|| self.rounds(inbox)));
        inbox.close();
        if served.is_err() {
            let ended = || Error::new(ErrorKind::Internal, "the model's thread panicked");
            let all = self.requests.iter_mut().chain(&mut self.waiting);
            all.for_each(|request| request.end(Err(ended())));
        }
    }

    fn rounds(&mut self, inbox: &Inbox) {
        let mut patience = Patience::Endless;
        loop {
            match inbox.take(patience) {
                Found::Message(message) => self.take(message),
                Found::Closed => return,
                Found::Nothing if self.round() => {}
                Found::Nothing => {
                    patience = Patience::Some(STALL);
                    continue;
                }
            }
            let idle =
                self.requests.is_empty() && self.waiting.is_empty() && self.under_way.is_none();
            patience = if idle {
                Patience::Endless
            } else {
                Patience::None
            };
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Start(mut request) if self.waiting.len() >= WAITING_MAX => {
                let message = format_args!("busy: {WAITING_MAX} others wait for the model");
                request.end(Err(Error::new(ErrorKind::State, message)));
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

    fn end_cancelled(&mut self) {
        let mut at = 0;
        while at < self.requests.len() {
            let request = &self.requests[at];
            if request.mail.is_enough() || request.cancel.heed() {
                self.end(at, Ok(Some(Finish::Cancelled)));
            } else {
                at += 1;
            }
        }
        self.waiting.retain_mut(|request| {
            let cancelled = request.mail.is_enough() || request.cancel.heed();
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
        let Some(first) = waiting.position(|request| !request.is_stalled()) else {
            return Ok(());
        };
        if self.seats.is_empty() {
            self.make_way()?;
        } else {
            self.collect()?;
        }
        let mut next = Some(first);
        while let (Some(seat), Some(at)) = (self.seats.last(), next) {
            let mut request = self.waiting.remove(at).expect("one waits there");
            let mut waiting = self.waiting.iter();
            next = waiting.position(|request| !request.is_stalled());
            match self.engine.seat(&mut request, *seat) {
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
                Some(_) if full => Some(Some(Finish::Context)),
                Some(_) if request.left() == 0 => Some(Some(Finish::Length)),
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

    /// A chain of all that can go on.
    fn step(&mut self) -> Result<bool> {
        self.choose();
        if self.under_way.is_some() {
            let same = self.ready == self.members && self.ready.len() <= self.engine.widest();
            let ahead = same && self.is_alone() && self.may_run_ahead();
            let next = match ahead {
                true => self.submit_behind()?,
                false => None,
            };
            self.collect()?;
            self.under_way = next;
            return Ok(true);
        }
        if self.ready.is_empty() {
            return Ok(false);
        }
        if self.guess()? {
            return Ok(true);
        }
        let widest = self.engine.widest();
        let ahead = self.engine.linked.executor.profile().runs_ahead;
        let groups = self.ready.len().div_ceil(widest);
        for group in 0..groups {
            self.members.clear();
            let ready = self.ready.iter().skip(group * widest).take(widest);
            self.members.extend(ready);
            self.submit()?;
            if !ahead || groups > 1 {
                self.collect()?;
            }
        }
        Ok(true)
    }

    /// A pass with guesses, where one sequence goes on by itself and has some that may pay.
    fn guess(&mut self) -> Result<bool> {
        let ([session], true) = (&self.ready[..], self.is_alone()) else {
            return Ok(false);
        };
        let index = self.requests.iter().position(|r| r.session == *session);
        let index = index.expect("it is ready");
        let request = &mut self.requests[index];
        let Some(mut guesser) = request.picking.as_mut().and_then(|p| p.guesser.take()) else {
            return Ok(false);
        };
        let context = self.engine.linked.facts.context as usize;
        let before = request.sequence.len();
        // One more is picked behind the last guess, and each guess has a position.
        let room = request.left().min(request.mail.room()) - 1;
        let room = room.min(context - before).min(self.engine.widest() - 1);
        let since = Instant::now();
        let tokens = guesser.guess(request.sequence.tokens(), room);
        let picked = tokens.map(|tokens| self.engine.check(request, tokens));
        let picked = picked.transpose()?;
        let mut right = 0;
        if let Some(picked) = &picked {
            right = guesser.right(picked.iter().map(|(token, _)| *token));
            guesser.checked(right, since.elapsed());
        }
        request.give_back(guesser);
        let Some(picked) = picked else {
            return Ok(false);
        };
        let mut done = RUNNING;
        for (token, row) in &picked[..=right] {
            request.sequence.pick(*token);
            done = *row;
            if done != RUNNING {
                break;
            }
        }
        request.take(before, None);
        self.go_on(index, done);
        Ok(true)
    }

    /// Whether the members' next step needs nothing from the host.
    fn may_run_ahead(&self) -> bool {
        let mut members = Self::of_members(&self.requests, &self.members);
        let follows = |r: &Request| r.picking.as_ref().is_some_and(Picking::follows);
        !members.any(follows) && self.guesser().is_none_or(|guesser| guesser.rest() > 0)
    }

    /// What makes guesses for the one that goes on by itself.
    fn guesser(&self) -> Option<&Guesser> {
        let [session] = &self.members[..] else {
            return None;
        };
        let request = self.requests.iter().find(|r| r.session == *session);
        request?.guesser()
    }

    /// Whether nobody waits for a prompt to be fed: who has no seat waits for one.
    fn is_alone(&self) -> bool {
        let fed = self.requests.iter().all(Request::is_fed);
        fed && (self.waiting.is_empty() || self.seats.is_empty())
    }

    /// Those that have a token to go on from and a session that takes the next one.
    fn choose(&mut self) {
        self.ready.clear();
        let ready = self.requests.iter().filter(|request| {
            let steps = request.picking.is_some() && request.is_fed();
            steps && request.fed < request.sequence.len() && request.mail.room() > 0
        });
        self.ready.extend(ready.map(|request| request.session));
    }

    /// The requests of the members, in the order of their rows.
    fn of_members<'a>(
        requests: &'a [Request],
        members: &'a [u64],
    ) -> impl Iterator<Item = &'a Request> + Clone {
        members
            .iter()
            .filter_map(|session| requests.iter().find(|r| r.session == *session))
    }

    /// How long the next chain is, and its tail: the largest that any member needs.
    fn chain(&self, under_way: u32) -> Submission {
        let under_way = under_way as usize;
        let members = Self::of_members(&self.requests, &self.members);
        let rest = self.guesser().map_or(u32::MAX, |g| g.rest().max(1));
        let pickings = || {
            members
                .clone()
                .filter_map(|request| request.picking.as_ref())
        };
        let tail = pickings().map(|picking| picking.tail).max();
        let tells = match members
            .clone()
            .any(|request| request.tells() == Tells::LogProbs)
        {
            true => Tells::LogProbs,
            false => Tells::Nothing,
        };
        let follows = pickings().any(Picking::follows);
        let room = members.clone().map(|request| {
            let room = request.left().min(request.mail.room());
            room.saturating_sub(under_way)
        });
        let room = u32::try_from(room.min().unwrap_or(0)).unwrap_or(u32::MAX);
        let wished = pickings()
            .map(|picking| picking.chain.next())
            .min()
            .unwrap_or(1);
        let longest = self.engine.longest_chain();
        let times = match tells {
            Tells::Nothing if self.is_alone() && !follows => wished.min(longest).min(rest),
            _ => 1,
        };
        Submission {
            tail: tail.unwrap_or(Tail::Greedy),
            times: times.min(room),
            tells,
        }
    }

    /// Tells the device where the members are, and submits a chain of theirs.
    fn submit(&mut self) -> Result<()> {
        let since = Instant::now();
        let chain = self.chain(0);
        for session in &self.members {
            let request = self.requests.iter().find(|r| r.session == *session);
            let request = request.expect("it is ready");
            let to = request.fed + chain.times as usize;
            self.engine.grow(request.seat, request.fed, to)?;
        }
        let wanted = self.want_masks()?;
        let members = Self::of_members(&self.requests, &self.members);
        let rows = members.map(|request| row_of(request, request.fed));
        self.engine.begin_steps(rows)?;
        let rows = self.members.len();
        if wanted > 0 {
            let computed = self.engine.step_logits(rows);
            self.take_masks(wanted)?;
            computed?;
        }
        let members = Self::of_members(&self.requests, &self.members);
        let sequences = members.map(|request| (request.seat, request.sequence.len()));
        let picks = match wanted {
            0 => self.engine.steps(rows, chain, sequences)?,
            _ => self.engine.step_picks(rows, chain, sequences)?,
        };
        self.under_way = Some(UnderWay {
            picks,
            times: chain.times,
            since,
        });
        self.count(since);
        Ok(())
    }

    /// Has the masks of the members that follow a grammar found, and says how many they are.
    fn want_masks(&mut self) -> Result<usize> {
        let mut wanted = 0;
        for request in &mut self.requests {
            let picking = request.picking.as_mut();
            let member = self.members.contains(&request.session);
            let follow = picking.filter(|_| member).and_then(|p| p.follow.take());
            let Some(follow) = follow else {
                continue;
            };
            let masks = match &self.masks {
                Some(masks) => masks,
                None => self.masks.insert(Masks::new()?),
            };
            masks.want(request.session, follow)?;
            wanted += 1;
        }
        Ok(wanted)
    }

    /// Takes so many masks to the device.
    fn take_masks(&mut self, wanted: usize) -> Result<()> {
        let Some(masks) = self.masks.as_ref().filter(|_| wanted > 0) else {
            return Ok(());
        };
        for _ in 0..wanted {
            let (session, follow) = masks.next()?;
            let request = self.requests.iter_mut().find(|r| r.session == session);
            let request = request.expect("members stay while their masks are found");
            self.engine.mask(request.seat, follow.mask())?;
            if let Some(picking) = &mut request.picking {
                picking.follow = Some(follow);
            }
        }
        Ok(())
    }

    /// Submits another chain behind the one under way, of the same rows.
    fn submit_behind(&mut self) -> Result<Option<UnderWay>> {
        let since = Instant::now();
        let Some(before) = &self.under_way else {
            return Ok(None);
        };
        let ahead = before.times;
        let chain = self.chain(ahead);
        let context = self.engine.linked.facts.context as usize;
        let members = Self::of_members(&self.requests, &self.members);
        let full = members
            .clone()
            .any(|r| r.sequence.len() + ahead as usize > context);
        if chain.times == 0 || full {
            return Ok(None);
        }
        for request in members.clone() {
            let from = request.fed + ahead as usize;
            self.engine
                .grow(request.seat, from, from + chain.times as usize)?;
        }
        let sequences = members.map(|r| (r.seat, r.sequence.len() + ahead as usize));
        let picks = self.engine.steps(self.members.len(), chain, sequences)?;
        self.count(since);
        Ok(Some(UnderWay {
            picks,
            times: chain.times,
            since,
        }))
    }

    /// Counts what the host spent on the members.
    fn count(&mut self, since: Instant) {
        let took = since.elapsed();
        for request in &mut self.requests {
            if self.members.contains(&request.session) {
                request.submitting += took;
            }
        }
    }

    /// Waits for the chain under way, and hands out what it picked.
    fn collect(&mut self) -> Result<()> {
        let Some(UnderWay {
            picks,
            times,
            since,
        }) = self.under_way.take()
        else {
            return Ok(());
        };
        let picked = self.engine.take(picks)?;
        // It may have waited for the one in front of it.
        let took = since.max(self.collected).elapsed();
        self.collected = Instant::now();
        for at in 0..self.members.len() {
            let session = self.members[at];
            // Who has ended since is not here any more.
            let Some(index) = self.requests.iter().position(|r| r.session == session) else {
                continue;
            };
            let request = &mut self.requests[index];
            let before = request.sequence.len();
            let (seat, sequence) = (request.seat, &mut request.sequence);
            let done = picked.take(at, seat, before, |token| sequence.pick(token));
            if let Some(picking) = request.picking.as_mut().filter(|_| times > 0) {
                picking.chain.adapt(took, times);
                if let (Some(guesser), [_]) = (&mut picking.guesser, &self.members[..]) {
                    guesser.stepped(took, times);
                }
            }
            let told = request.tells() == Tells::LogProbs && request.sequence.len() > before;
            let log_probs = picked.log_probs(at).filter(|_| told);
            request.take(before, log_probs);
            let context = self.engine.linked.facts.context as usize;
            match request.follow(done, context) {
                Ok(done) => self.go_on(index, done),
                Err(e) => self.end(index, Err(e)),
            }
        }
        Ok(())
    }

    /// Ends a request where its last token did.
    fn go_on(&mut self, index: usize, done: u32) {
        let request = &self.requests[index];
        let finish = match done {
            STOPPED => Some(Finish::Stop),
            FULL => Some(Finish::Context),
            RUNNING if request.left() == 0 => Some(Finish::Length),
            RUNNING => None,
            other => unreachable!("the shaders write no other reason than {other}"),
        };
        if let Some(finish) = finish {
            self.end(index, Ok(Some(finish)));
        }
    }
}
