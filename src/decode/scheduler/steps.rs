//! Decode steps: one burst for a batch of sequences, with draft tokens for a single sequence and
//! with masks for grammars.

use super::slots::Slots;
use super::{InFlight, Scheduler};
use crate::decode::drafter::Drafter;
use crate::decode::engine::row_of;
use crate::decode::grammar_state::MaskWorker;
use crate::decode::outputs::Finish;
use crate::decode::request::Request;
use crate::decode::rows::Submission;
use crate::decode::sampling_request::{LogprobsMode, SamplingRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::state::{FULL, NOT_FINITE, RUNNING, STOPPED};
use crate::op::table::SamplingStage;
use std::time::Instant;

impl Scheduler {
    /// Decodes a burst of all ready sequences.
    pub(super) fn step(&mut self) -> Result<bool> {
        self.select_ready();
        if self.in_flight.is_some() {
            // A batch is a whole group, with the same hooks.
            let same = self.ready == self.batch;
            let ahead = same && self.is_prefill_idle() && self.may_run_ahead();
            let next = match ahead {
                true => self.submit_next()?,
                false => None,
            };
            self.collect()?;
            self.in_flight = next;
            return Ok(true);
        }
        if self.ready.is_empty() {
            return Ok(false);
        }
        if self.speculate()? {
            return Ok(true);
        }
        let ahead = self.engine.linked.executor.profile().asynchronous;
        let mut from = 0;
        while from < self.ready.len() {
            self.batch.clear();
            let group = from..from + self.group_len(from);
            self.batch.extend(&self.ready[group.clone()]);
            let whole = group.len() == self.ready.len();
            from = group.end;
            self.submit()?;
            if !ahead || !whole {
                self.collect()?;
            }
        }
        Ok(true)
    }

    /// Returns the number of ready requests from index `from` on that one step can decode: they have
    /// the same hooks.
    fn group_len(&self, from: usize) -> usize {
        let ready = self.ready[from..].iter().take(self.engine.max_rows());
        let hooks = |slot: u32| self.slots.get(slot).map_or(0, Request::hooks_id);
        let first = hooks(self.ready[from]);
        ready.take_while(|slot| hooks(**slot) == first).count()
    }

    /// Runs a pass with draft tokens if a single sequence is decoding and has a draft.
    fn speculate(&mut self) -> Result<bool> {
        let (&[slot], true) = (&self.ready[..], self.is_prefill_idle()) else {
            return Ok(false);
        };
        let request = self.slots.get_mut(slot).expect("ready slots have requests");
        let Some(mut drafter) = request.sampling.as_mut().and_then(|s| s.drafter.take()) else {
            return Ok(false);
        };
        if request.captured.is_some() {
            // Rows of rejected tokens must not be stored.
            request.restore_drafter(drafter);
            return Ok(false);
        }
        let context = self.engine.linked.facts.context as usize;
        let before = request.sequence.len();
        // The pass samples one token more than there are draft tokens, and each draft token has a
        // position.
        let room = request.remaining().min(request.output_queue.room()) - 1;
        let room = room
            .min(context - before)
            .min(self.engine.max_drafts(before - 1));
        let mut start = Instant::now();
        let (engine, mut head_keys) = (&mut self.engine, request.head_keys);
        let by_head = |count, out: &mut Vec<u32>| {
            // A cost of the prompt, not of this pass.
            engine.compute_prompt_head_keys(request, &mut head_keys)?;
            start = Instant::now();
            engine.draft(request, &mut head_keys, count, out)
        };
        let tokens = drafter.draft(request.sequence.tokens(), room, by_head)?;
        request.head_keys = head_keys;
        let rows = tokens.map_or(0, <[u32]>::len);
        let sampled = tokens.map(|tokens| self.engine.check_draft(request, tokens));
        let sampled = sampled.transpose()?;
        request.computed += rows;
        let Some(sampled) = sampled else {
            request.restore_drafter(drafter);
            return Ok(false);
        };
        let accepted = drafter.accepted(sampled.iter().map(|(token, _)| *token));
        let mut done = RUNNING;
        for (token, row) in &sampled[..=accepted] {
            done = *row;
            if done != NOT_FINITE {
                request.sequence.push_sampled(*token);
            }
            if done != RUNNING {
                break;
            }
        }
        request.deliver(before, done, None);
        // Delivery takes time, and happens less often with long bursts.
        drafter.record_check(accepted, start.elapsed());
        request.restore_drafter(drafter);
        self.end_if_done(slot, done);
        Ok(true)
    }

    /// Returns whether the next step of the batch needs no input from the host.
    fn may_run_ahead(&self) -> bool {
        let mut batch = Self::batch_requests(&self.slots, &self.batch);
        let uses_grammar = |r: &Request| {
            r.sampling
                .as_ref()
                .is_some_and(SamplingRequest::uses_grammar)
        };
        let needs_host = |r: &Request| uses_grammar(r) || r.captured.is_some();
        !batch.any(needs_host) && self.drafter().is_none_or(|drafter| drafter.cooldown() > 0)
    }

    /// Returns the drafter of a single-sequence batch.
    fn drafter(&self) -> Option<&Drafter> {
        let &[slot] = &self.batch[..] else {
            return None;
        };
        self.slots.get(slot)?.drafter()
    }

    /// Returns whether no prompt waits for prefill.
    fn is_prefill_idle(&self) -> bool {
        let prefilled = self.slots.iter().all(Request::is_prefilled);
        let is_full = self.slots.free().is_none();
        prefilled && (is_full || !self.waiting.iter().any(Request::needs_slot))
    }

    /// Selects the requests that are prefilled and whose output queue has room.
    fn select_ready(&mut self) {
        self.ready.clear();
        let ready = self.slots.iter().filter(|request| {
            let steps = request.sampling.is_some() && request.is_prefilled();
            steps && request.cached < request.sequence.len() && request.output_queue.room() > 0
        });
        self.ready.extend(ready.map(|request| request.slot));
        // Requests with the same hooks are decoded together. A stable sort could allocate.
        let slots = &self.slots;
        if slots.iter().any(|request| request.hooks.is_some()) {
            let hooks = |slot: u32| slots.get(slot).map_or(0, Request::hooks_id);
            self.ready
                .sort_unstable_by_key(|slot| (hooks(*slot), *slot));
        }
    }

    /// Returns the requests of the batch, in the order of their rows.
    fn batch_requests<'a>(
        slots: &'a Slots,
        batch: &'a [u32],
    ) -> impl Iterator<Item = &'a Request> + Clone {
        batch.iter().filter_map(|slot| slots.get(*slot))
    }

    /// Determines the size of the next burst, and the largest sampling stage that a request in the
    /// batch needs.
    fn next_submission(&self, in_flight: u32) -> Submission {
        let in_flight = in_flight as usize;
        let batch = Self::batch_requests(&self.slots, &self.batch);
        let cooldown = self.drafter().map_or(u32::MAX, |g| g.cooldown().max(1));
        let sampling_requests = || {
            batch
                .clone()
                .filter_map(|request| request.sampling.as_ref())
        };
        let stage = sampling_requests().map(|sampling| sampling.stage).max();
        let logprobs = match batch
            .clone()
            .any(|request| request.logprobs_mode() == LogprobsMode::On)
        {
            true => LogprobsMode::On,
            false => LogprobsMode::Off,
        };
        let uses_grammar = sampling_requests().any(SamplingRequest::uses_grammar);
        let captures = batch.clone().any(|request| request.captured.is_some());
        let room = batch.clone().map(|request| {
            let room = request.remaining().min(request.output_queue.room());
            room.saturating_sub(in_flight)
        });
        let room = u32::try_from(room.min().unwrap_or(0)).unwrap_or(u32::MAX);
        let preferred = sampling_requests()
            .map(|sampling| sampling.burst.next())
            .min()
            .unwrap_or(1);
        let max_burst = self.engine.max_burst();
        let steps = match logprobs {
            LogprobsMode::Off if self.is_prefill_idle() && !uses_grammar && !captures => {
                preferred.min(max_burst).min(cooldown)
            }
            _ => 1,
        };
        Submission {
            stage: stage.unwrap_or(SamplingStage::Greedy),
            steps: steps.min(room),
            logprobs,
        }
    }

    /// Writes the rows of the batch and submits a burst.
    fn submit(&mut self) -> Result<()> {
        let start = Instant::now();
        let submission = self.next_submission(0);
        for slot in &self.batch {
            let request = self.slots.get(*slot).expect("ready slots have requests");
            let to = request.cached + submission.steps as usize;
            self.engine
                .make_writable(request.slot, request.cached, to)?;
        }
        let masks = self.request_masks()?;
        let batch = Self::batch_requests(&self.slots, &self.batch);
        let first = batch.clone().next().expect("a batch has requests");
        let rows = batch.map(|request| row_of(request, request.cached));
        let begun = self.engine.begin_steps(first, rows);
        let rows = self.batch.len();
        match masks {
            0 => begun?,
            _ => {
                let computed = begun.and_then(|()| self.engine.step_logits(rows));
                self.upload_masks(masks)?;
                computed?;
            }
        }
        let batch = Self::batch_requests(&self.slots, &self.batch);
        let sequences = batch.map(|request| (request.slot, request.sequence.len()));
        let pending = match masks {
            0 => self.engine.steps(rows, submission, sequences)?,
            _ => self.engine.step_sample(rows, submission, sequences)?,
        };
        self.in_flight = Some(InFlight {
            pending,
            steps: submission.steps,
            start,
        });
        self.add_submit_time(start);
        Ok(())
    }

    /// Starts the mask worker before the first request with a grammar gets a slot.
    pub(super) fn start_mask_worker(&mut self, request: &Request) -> Result<()> {
        let uses_grammar = request
            .sampling
            .as_ref()
            .is_some_and(SamplingRequest::uses_grammar);
        if uses_grammar && self.mask_worker.is_none() {
            self.mask_worker = Some(MaskWorker::new()?);
        }
        Ok(())
    }

    /// Requests the masks of all requests in the batch that have a grammar, and returns their
    /// number.
    pub(super) fn request_masks(&mut self) -> Result<usize> {
        let mut masks = 0;
        for slot in &self.batch {
            let request = self.slots.get_mut(*slot);
            let sampling = request.and_then(|request| request.sampling.as_mut());
            let Some(grammar_state) = sampling.and_then(|s| s.grammar_state.take()) else {
                continue;
            };
            let mask_worker = self.mask_worker.as_ref();
            let mask_worker = mask_worker.expect("mask worker runs since the request got its slot");
            mask_worker.request(*slot, grammar_state)?;
            masks += 1;
        }
        Ok(masks)
    }

    /// Waits for `masks` masks and writes them to the device. All requests have their grammar states again, also after
    /// an error of the device.
    pub(super) fn upload_masks(&mut self, masks: usize) -> Result<()> {
        let Some(mask_worker) = self.mask_worker.as_ref().filter(|_| masks > 0) else {
            return Ok(());
        };
        let mut written = Ok(());
        for _ in 0..masks {
            let (slot, grammar_state) = mask_worker.wait()?;
            written = written.and_then(|()| self.engine.mask(slot, grammar_state.mask()));
            let request = self.slots.get_mut(slot);
            let request = request.expect("requests keep running while their masks are computed");
            if let Some(sampling) = &mut request.sampling {
                sampling.grammar_state = Some(grammar_state);
            }
        }
        written
    }

    /// Submits another burst of the same batch after the one in flight.
    fn submit_next(&mut self) -> Result<Option<InFlight>> {
        let start = Instant::now();
        let Some(before) = &self.in_flight else {
            return Ok(None);
        };
        let ahead = before.steps;
        let submission = self.next_submission(ahead);
        let context = self.engine.linked.facts.context as usize;
        let batch = Self::batch_requests(&self.slots, &self.batch);
        let full = batch
            .clone()
            .any(|r| r.sequence.len() + ahead as usize > context);
        if submission.steps == 0 || full {
            return Ok(None);
        }
        for request in batch.clone() {
            let from = request.cached + ahead as usize;
            self.engine
                .make_writable(request.slot, from, from + submission.steps as usize)?;
        }
        let sequences = batch.map(|r| (r.slot, r.sequence.len() + ahead as usize));
        let pending = self.engine.steps(self.batch.len(), submission, sequences)?;
        self.add_submit_time(start);
        Ok(Some(InFlight {
            pending,
            steps: submission.steps,
            start,
        }))
    }

    /// Adds the time since `start` to the submission time of the batch.
    fn add_submit_time(&mut self, start: Instant) {
        let took = start.elapsed();
        for slot in &self.batch {
            if let Some(request) = self.slots.get_mut(*slot) {
                request.submitting += took;
            }
        }
    }

    /// Waits for the burst in flight and delivers its tokens.
    pub(super) fn collect(&mut self) -> Result<()> {
        let Some(InFlight {
            pending,
            steps,
            start,
        }) = self.in_flight.take()
        else {
            return Ok(());
        };
        let sampled = self.engine.wait(pending)?;
        // The burst may have waited for the previous one.
        let start = start.max(self.collected);
        for at in 0..self.batch.len() {
            let slot = self.batch[at];
            // The request may have ended in the meantime.
            let Some(request) = self.slots.get_mut(slot) else {
                continue;
            };
            let before = request.sequence.len();
            let sequence = &mut request.sequence;
            let done =
                sampled.for_each_token(at, slot, before, |token| sequence.push_sampled(token));
            if steps > 0 {
                // A step computes the token before the sampled one.
                request.computed += request.sequence.len() - before;
            }
            let has_logprobs =
                request.logprobs_mode() == LogprobsMode::On && request.sequence.len() > before;
            let logprobs = sampled.logprobs(at).filter(|_| has_logprobs);
            request.deliver(before, done, logprobs);
            if let Some(sampling) = request.sampling.as_mut().filter(|_| steps > 0) {
                let took = start.elapsed();
                sampling.burst.adapt(took, steps);
                if let (Some(drafter), [_]) = (&mut sampling.drafter, &self.batch[..]) {
                    drafter.record_steps(took, steps);
                }
            }
            if steps > 0 {
                let run = before - 1..before;
                self.engine.read_captured(request, &run, at)?;
            }
            let context = self.engine.linked.facts.context as usize;
            match request.advance_grammar(done, context) {
                Ok(done) => self.end_if_done(slot, done),
                Err(e) => self.end(slot, Err(e)),
            }
        }
        self.collected = Instant::now();
        Ok(())
    }

    /// Returns the error for a request without a finite logit. A grammar may allow only tokens that the logit
    /// biases exclude.
    fn without_token(&self, request: &Request) -> Error {
        let position = request.sequence.len();
        let sampling = request.sampling.as_ref();
        let has_grammar = sampling.is_some_and(|sampling| sampling.grammar_state.is_some());
        if has_grammar && self.engine.linked.weights_are_finite() {
            let message = format_args!(
                "no token at position {position} is allowed by both the grammar and the logit biases"
            );
            return Error::new(ErrorKind::Grammar, message);
        }
        let what = format_args!("no logit of the token at position {position} is finite");
        self.engine.linked.not_finite(what)
    }

    /// Ends the request of a slot after its last token.
    fn end_if_done(&mut self, slot: u32, done: u32) {
        let request = self.slots.get(slot).expect("the slot has a request");
        if done == NOT_FINITE {
            let error = self.without_token(request);
            self.end(slot, Err(error));
            return;
        }
        let finish = match done {
            STOPPED => Some(Finish::Stop),
            RUNNING | FULL if request.remaining() == 0 => Some(Finish::Length),
            FULL => Some(Finish::Context),
            RUNNING => None,
            other => unreachable!("the shaders write no other reason than {other}"),
        };
        if let Some(finish) = finish {
            self.end(slot, Ok(Some(finish)));
        }
    }
}
