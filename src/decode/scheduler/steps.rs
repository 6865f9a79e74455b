//! A step of the sequences that can go on: one chain of commands for all of them, with guesses where one
//! goes on by itself, and with masks where answers follow grammars.

use super::{Scheduler, UnderWay};
use crate::decode::drafter::Drafter;
use crate::decode::engine::row_of;
use crate::decode::grammar_state::Masks;
use crate::decode::outputs::Finish;
use crate::decode::request::Request;
use crate::decode::rows::Submission;
use crate::decode::sampling_request::{LogProbsMode, SamplingRequest};
use crate::error::Result;
use crate::exec::state::{FULL, RUNNING, STOPPED};
use crate::op::table::SamplingStage;
use std::time::Instant;

impl Scheduler {
    /// A chain of all that can go on.
    pub(super) fn step(&mut self) -> Result<bool> {
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
        let ahead = self.engine.linked.executor.profile().asynchronous;
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
        let rows = tokens.map_or(0, <[u32]>::len);
        let picked = tokens.map(|tokens| self.engine.check(request, tokens));
        let picked = picked.transpose()?;
        request.computed += rows;
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
        let follows = |r: &Request| r.picking.as_ref().is_some_and(SamplingRequest::follows);
        !members.any(follows) && self.guesser().is_none_or(|guesser| guesser.rest() > 0)
    }

    /// What makes guesses for the one that goes on by itself.
    fn guesser(&self) -> Option<&Drafter> {
        let [session] = &self.members[..] else {
            return None;
        };
        let request = self.requests.iter().find(|r| r.session == *session);
        request?.guesser()
    }

    /// Whether nobody waits for a prompt to be fed: who has no seat waits for one, or for its session.
    fn is_alone(&self) -> bool {
        let fed = self.requests.iter().all(Request::is_fed);
        fed && (self.seats.is_empty() || !self.waiting.iter().any(Request::wants_seat))
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
            .any(|request| request.tells() == LogProbsMode::LogProbs)
        {
            true => LogProbsMode::LogProbs,
            false => LogProbsMode::Nothing,
        };
        let follows = pickings().any(SamplingRequest::follows);
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
            LogProbsMode::Nothing if self.is_alone() && !follows => wished.min(longest).min(rest),
            _ => 1,
        };
        Submission {
            tail: tail.unwrap_or(SamplingStage::Greedy),
            times: times.min(room),
            tells,
        }
    }

    /// LogProbsMode the device where the members are, and submits a chain of theirs.
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

    /// Makes what finds masks before the first request that follows a grammar has a seat.
    pub(super) fn ready_masks(&mut self, request: &Request) -> Result<()> {
        let follows = request
            .picking
            .as_ref()
            .is_some_and(SamplingRequest::follows);
        if follows && self.masks.is_none() {
            self.masks = Some(Masks::new()?);
        }
        Ok(())
    }

    /// Has the masks of the members that follow a grammar found, and says how many they are.
    pub(super) fn want_masks(&mut self) -> Result<usize> {
        let mut wanted = 0;
        for request in &mut self.requests {
            let picking = request.picking.as_mut();
            let member = self.members.contains(&request.session);
            let follow = picking.filter(|_| member).and_then(|p| p.follow.take());
            let Some(follow) = follow else {
                continue;
            };
            let masks = self.masks.as_ref();
            let masks = masks.expect("there since the request has its seat");
            masks.want(request.session, follow)?;
            wanted += 1;
        }
        Ok(wanted)
    }

    /// Takes so many masks to the device.
    pub(super) fn take_masks(&mut self, wanted: usize) -> Result<()> {
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
    pub(super) fn collect(&mut self) -> Result<()> {
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
            if times > 0 {
                // A step computes the token before the one that it picks.
                request.computed += request.sequence.len() - before;
            }
            let told = request.tells() == LogProbsMode::LogProbs && request.sequence.len() > before;
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
            RUNNING | FULL if request.left() == 0 => Some(Finish::Length),
            FULL => Some(Finish::Context),
            RUNNING => None,
            other => unreachable!("the shaders write no other reason than {other}"),
        };
        if let Some(finish) = finish {
            self.end(index, Ok(Some(finish)));
        }
    }
}
