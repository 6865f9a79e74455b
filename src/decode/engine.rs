//! The engine: the device, the pages of its cache, and the passes that sequences go through.

use super::kv::{Edits, Kv, PageKind};
use super::output_request::OutputRequest;
use super::request::Request;
use super::rows::{
    BURST_MAX, PendingTokens, SampledTokens, Submission, TokenRun, pass, read_mirostat,
    read_sampled, wait, write_history, write_rows, write_sampler,
};
use super::sequence::StepBits;
use crate::error::Result;
use crate::exec::state::{RUNNING, Row, state_bytes};
use crate::model::{LinkedTables, STEP_ROWS_MAX, TableId};
use crate::op::table::BufferId;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A table for steps.
#[derive(Clone, Copy, Debug)]
struct Step {
    table: usize,
    rows: usize,
}

/// The device with the model's tables, and the cache.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) linked: LinkedTables,
    pub(super) kv: Kv,
    /// Room for what is to be done before a pass.
    edits: Edits,
    /// Room for the keys of a sequence.
    keys: Vec<u32>,
    /// The tables that pick a token for each of their rows, the narrowest first; none of an encoder.
    steps: Vec<Step>,
    /// Host copy of the step state and its rows, for writing.
    state: Vec<u8>,
    /// The keys of the sequence whose logits are on the device; none where there are none.
    logits_of: Vec<u32>,
}

impl Engine {
    pub(super) fn new(linked: LinkedTables) -> Self {
        let tables = (0..).zip(&*linked.tables);
        let steps = tables.filter(|(_, table)| table.name == TableId::Step.name());
        let mut steps: Vec<Step> = steps
            .map(|(index, table)| Step {
                table: index,
                rows: table.tokens as usize,
            })
            .collect();
        if linked.step_bits_differ() && linked.facts.speculates && steps.len() > 1 {
            // The mat-vec of one row sums in another order than the mat-mat of several there:
            // without it a sequence gets the same bits in any company.
            steps.remove(0);
        }
        let rows = linked.tables.iter().map(|t| t.tokens).max().unwrap_or(1);
        let context = linked.facts.context as usize;
        let sequences = linked.facts.sequences;
        Self {
            kv: Kv::new(sequences as usize, linked.pages),
            edits: Edits::new(),
            keys: Vec::with_capacity(context + 1),
            steps,
            state: vec![0; state_bytes(rows as usize)],
            logits_of: Vec::with_capacity(context + 1),
            linked,
        }
    }

    /// Whether tables for steps and for chunks leave other bits in the cache.
    pub(super) fn step_bits(&self) -> StepBits {
        if self.linked.step_bits_differ() {
            StepBits::Distinct
        } else {
            StepBits::SameAsChunk
        }
    }

    /// Rows of a pass of tokens of one sequence: of picked ones, of given ones. A lone row of a model
    /// for one sequence is not computed as several are.
    fn max_run_rows(&self) -> Result<[usize; 2]> {
        let batch = self.linked.at(TableId::Batch)?;
        let together = self.linked.facts.speculates;
        let steps = self
            .steps
            .last()
            .filter(|_| together)
            .map_or(1, |step| step.rows);
        Ok([steps, self.linked.tables[batch].tokens as usize])
    }

    /// Gives a request a seat, with what is known of its sequence.
    pub(super) fn assign_slot(&mut self, request: &mut Request, slot: u32) -> Result<()> {
        request.slot = slot;
        let step_bits = self.step_bits();
        let len = request.sequence.len();
        request.sequence.token_ids(
            len.min(self.linked.facts.context as usize),
            step_bits,
            &mut self.keys,
        );
        let sequence = &request.sequence;
        let chunk = self.linked.tables[self.linked.at(TableId::Batch)?].tokens as usize;
        // Where a chunk's rows may see each other in the bits, what begins inside of one does not.
        let splits_chunk = |known: usize| {
            let given = |at: usize| !sequence.is_sampled(at);
            (1..len).contains(&known) && given(known - 1) && given(known)
        };
        let fits = |known: usize| match step_bits {
            StepBits::Distinct if splits_chunk(known) => sequence.aligned(known, chunk),
            _ => known,
        };
        // A request that loses its slot and gets another one keeps what was computed for it.
        let reusable = request.reusable.max(request.cached);
        let shared = request.output.recompute_from().min(reusable);
        let keys = &self.keys[..shared.min(self.keys.len())];
        request.cached = self
            .kv
            .attach_prefix(slot as usize, keys, fits, &mut self.edits);
        self.apply_edits(slot)?;
        let known = request.sampling.is_some() && self.logits_of == self.keys;
        let no_output =
            request.sampling.is_none() && matches!(request.output, OutputRequest::Nothing);
        if request.cached == len
            && len > 0
            && !no_output
            && (sequence.is_sampled(len - 1) || !known)
        {
            // The logits behind the last token are gone: it goes through the model once more.
            request.cached -= 1;
        }
        let history = request.sequence.tokens();
        let history = &history[..len.min(self.linked.facts.context as usize)];
        let offset = slot as usize * self.linked.facts.context as usize * size_of::<u32>();
        let bytes = bytemuck::cast_slice(history);
        self.linked
            .executor
            .write(BufferId::History, offset, bytes)?;
        if let Some(sampling) = &request.sampling {
            write_sampler(&mut self.linked, slot, sampling)?;
        }
        Ok(())
    }

    /// Takes back what was learned of a request in its seat.
    pub(super) fn read_sampler_state(&mut self, request: &mut Request) -> Result<()> {
        match &mut request.sampling {
            Some(sampling) => read_mirostat(&mut self.linked, request.slot, sampling),
            None => Ok(()),
        }
    }

    /// Takes the seat of a request, and keeps what was computed for it.
    pub(super) fn release_slot(&mut self, request: &mut Request) {
        let cached = request.cached.min(request.sequence.len());
        let cached = cached.min(request.output.recompute_from());
        if cached > 0 {
            let step_bits = self.step_bits();
            request
                .sequence
                .token_ids(cached, step_bits, &mut self.keys);
            self.kv.insert_prefix(request.slot as usize, &self.keys);
        }
        self.kv.release_pages_after(request.slot as usize, 0);
    }

    /// Takes the seat of a request whose pages hold who knows what.
    pub(super) fn discard_slot(&mut self, request: &Request) {
        self.kv.release_pages_after(request.slot as usize, 0);
    }

    /// Makes positions of a seat writable.
    pub(super) fn make_writable(&mut self, slot: u32, from: usize, to: usize) -> Result<()> {
        let to = to.min(self.linked.facts.context as usize);
        self.kv
            .make_writable(slot as usize, from..to, &mut self.edits);
        self.apply_edits(slot)
    }

    /// Does what the cache's bookkeeping wants done.
    fn apply_edits(&mut self, slot: u32) -> Result<()> {
        let Self {
            linked, kv, edits, ..
        } = self;
        let tables = Arc::clone(&linked.tables);
        for copy in edits.copies.drain(..) {
            for buffer in &tables[0].slots {
                let Some((bytes, windowed)) = linked.page_of(buffer) else {
                    continue;
                };
                if windowed == (copy.kind == PageKind::Windowed) {
                    let [from, to] = [copy.from, copy.to].map(|page| page as usize * bytes);
                    linked.executor.duplicate(buffer.place, from, to, bytes)?;
                }
            }
        }
        if std::mem::take(&mut edits.entries) {
            let row = kv.row(slot as usize);
            let bytes: &[u8] = bytemuck::cast_slice(row);
            let offset = slot as usize * bytes.len();
            linked.executor.write(BufferId::Pages, offset, bytes)?;
        }
        Ok(())
    }

    /// One pass of tokens that a request's cache lacks: a chunk of given ones, or some picked ones.
    /// What is wanted of them is read back.
    pub(super) fn prefill(&mut self, request: &mut Request) -> Result<()> {
        let batch = self.linked.at(TableId::Batch)?;
        let len = request.sequence.len();
        let (table, run) = match request.output {
            OutputRequest::Hidden(_) => {
                let table = self.linked.at(TableId::Embed)?;
                let rows = self.linked.tables[table].tokens as usize;
                (table, request.cached..len.min(request.cached + rows))
            }
            OutputRequest::AllLogits(_) | OutputRequest::LogProbs(_)
                if request.cached >= request.output.recompute_from() =>
            {
                let run = request.cached..len.min(request.cached + self.max_rows());
                (self.step_table(run.len()).table, run)
            }
            _ => {
                let mut run = request.sequence.run(request.cached, self.max_run_rows()?);
                run.end = run.end.min(request.output.recompute_from());
                let sampled = request.sequence.is_sampled(run.start);
                if sampled && request.sampling.is_some() {
                    // The last one goes through with the step that picks the next.
                    run.end = run.end.min(len - 1);
                    let last = &request.sequence.tokens()[len - 1..];
                    write_history(&mut self.linked, request.slot, len - 1, last)?;
                }
                let table = if sampled {
                    self.step_table(run.len()).table
                } else {
                    batch
                };
                (table, run)
            }
        };
        let last = run.end == len;
        let table_facts = &self.linked.tables[table];
        let end = if table == batch && !last {
            table_facts.head
        } else {
            table_facts.body().end
        };
        // Tables for steps of several rows leave the logits of each, others those of the last.
        let per_row = table != batch && table_facts.tokens > 1;
        let place = if per_row {
            BufferId::Scores
        } else {
            BufferId::Logits
        };
        self.make_writable(request.slot, run.start, run.end)?;
        let token_run = TokenRun {
            sequence: request.slot,
            start: run.start,
            tokens: &request.sequence.tokens()[run.clone()],
        };
        self.logits_of.clear();
        let cmds = (0..end).into();
        pass(&mut self.linked, &mut self.state, (table, cmds), &token_run)?;
        wait(&mut self.linked)?;
        request.cached = run.end;
        request.computed += run.len();
        if table == batch && last {
            let step_bits = self.step_bits();
            request
                .sequence
                .token_ids(len, step_bits, &mut self.logits_of);
        }
        self.read_output(request, run, place)
    }

    /// Reads what is wanted of a pass of these tokens, whose logits are in this place.
    fn read_output(
        &mut self,
        request: &mut Request,
        run: Range<usize>,
        place: BufferId,
    ) -> Result<()> {
        let last = run.end == request.sequence.len();
        let vocab = self.linked.facts.vocab as usize;
        let (place, first, out) = match &mut request.output {
            OutputRequest::Hidden(out) => {
                let dim = self.linked.facts.dim as usize;
                let rows = run.start * dim..run.end * dim;
                (BufferId::Hidden, 0, &mut out[rows])
            }
            OutputRequest::AllLogits(out) => {
                (place, 0, &mut out[run.start * vocab..run.end * vocab])
            }
            OutputRequest::LogProbs(targets) if run.start >= targets.first => {
                (place, 0, targets.logits_buffer(run.len(), vocab))
            }
            OutputRequest::Logits(out) if last && place == BufferId::Scores => {
                (place, run.len() - 1, &mut out[..])
            }
            OutputRequest::Logits(out) if last => (place, 0, &mut out[..]),
            _ => return Ok(()),
        };
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(out);
        let offset = first * bytes.len();
        self.linked.executor.read(place, offset, bytes)?;
        if let OutputRequest::LogProbs(targets) = &mut request.output {
            targets.compute(run, vocab);
        }
        Ok(())
    }

    /// The last layer's rows of some texts of an encoder, which fit a pass together.
    pub(super) fn embed(&mut self, rows: &[Row], mut hidden: Vec<f32>) -> Result<Vec<f32>> {
        let table = self.linked.at(TableId::Embed)?;
        write_rows(&mut self.linked, &mut self.state, rows.iter().copied())?;
        let all = 0..self.linked.tables[table].cmds.len();
        self.linked.executor.run(table, all.into(), 1)?;
        let bytes = bytemuck::cast_slice_mut(&mut hidden);
        self.linked.executor.read(BufferId::Hidden, 0, bytes)?;
        Ok(hidden)
    }

    /// The narrowest table for so many rows.
    fn step_table(&self, rows: usize) -> Step {
        let wide = self.steps.iter().find(|step| step.rows >= rows);
        *wide.unwrap_or(&self.steps[self.steps.len() - 1])
    }

    /// Rows that go together at most.
    pub(super) fn max_rows(&self) -> usize {
        self.steps.last().map_or(1, |step| step.rows)
    }

    /// Tokens of a chain at most.
    pub(super) fn max_burst(&self) -> u32 {
        self.linked.executor.profile().chain_tokens.min(BURST_MAX)
    }

    /// PendingTokens the token behind the logits that feeding a request has left.
    pub(super) fn sample_first(&mut self, request: &mut Request) -> Result<PendingTokens> {
        let since = Instant::now();
        let stage = request.stage();
        let log_probs = request.log_probs_mode();
        let row = row_of(request, request.cached - 1);
        write_rows(&mut self.linked, &mut self.state, [row].into_iter())?;
        let table = self.linked.at(TableId::Step)?;
        let cmds = self.linked.tables[table].tails[stage as usize].clone();
        self.linked.executor.run(table, cmds.into(), 1)?;
        let from = [(request.slot, request.sequence.len())].into_iter();
        let steps = 1;
        let pending = PendingTokens::request(
            &mut self.linked,
            from,
            Submission {
                stage,
                steps,
                log_probs,
            },
        )?;
        request.submitting += since.elapsed();
        Ok(pending)
    }

    /// LogProbsMode the device where sequences are that go on together. It moves them on by itself, chain by
    /// chain.
    pub(super) fn begin_steps(&mut self, rows: impl Iterator<Item = Row>) -> Result<()> {
        write_rows(&mut self.linked, &mut self.state, rows)?;
        Ok(())
    }

    /// Steps of so many rows behind those that were submitted since they were told. What is picked
    /// of each sequence comes with the picks: its seat, and where its first token is.
    pub(super) fn steps(
        &mut self,
        rows: usize,
        submission: Submission,
        sequences: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<PendingTokens> {
        let table = self.step_table(rows).table;
        if self.linked.tables[table].tokens == 1 {
            self.logits_of.clear();
        }
        let cmds = self.linked.tables[table].pass(submission.stage);
        self.linked.executor.run(table, cmds, submission.steps)?;
        PendingTokens::request(&mut self.linked, sequences, submission)
    }

    /// The first part of a step of so many rows: their logits.
    pub(super) fn step_logits(&mut self, rows: usize) -> Result<()> {
        self.logits_of.clear();
        let table = self.step_table(rows).table;
        let cmds = self.linked.tables[table].body();
        self.linked.executor.run(table, cmds.into(), 1)
    }

    /// Says which tokens may come next of a sequence.
    pub(super) fn mask(&mut self, slot: u32, mask: &[u32]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(mask);
        let offset = slot as usize * bytes.len();
        self.linked.executor.write(BufferId::Masks, offset, bytes)
    }

    /// The second part: what is picked from the logits, as for [`Engine::steps`].
    pub(super) fn step_sample(
        &mut self,
        rows: usize,
        submission: Submission,
        sequences: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<PendingTokens> {
        let table = self.step_table(rows).table;
        let cmds = self.linked.tables[table].tails[submission.stage as usize].clone();
        self.linked.executor.run(table, cmds.into(), 1)?;
        PendingTokens::request(&mut self.linked, sequences, submission)
    }

    /// One pass of the last token of a request and of guesses at what follows it, which stand behind it
    /// in `tokens`. What is picked behind each of them comes in their order, with its row's `done`.
    pub(super) fn check_draft(
        &mut self,
        request: &Request,
        tokens: &[u32],
    ) -> Result<[(u32, u32); STEP_ROWS_MAX as usize]> {
        let start = request.cached;
        let stage = request.stage();
        self.make_writable(request.slot, start, start + tokens.len())?;
        let table = self.step_table(tokens.len()).table;
        let token_run = TokenRun {
            sequence: request.slot,
            start,
            tokens,
        };
        let cmds = self.linked.tables[table].pass(stage);
        pass(&mut self.linked, &mut self.state, (table, cmds), &token_run)?;
        read_sampled(&mut self.linked, tokens.len(), start)
    }

    /// Waits for what was picked.
    pub(super) fn wait(&mut self, pending: PendingTokens) -> Result<SampledTokens> {
        pending.wait(&mut self.linked)
    }
}

/// The row of a request whose token at this place is picked from, or goes through the model.
pub(super) fn row_of(request: &Request, at: usize) -> Row {
    Row {
        token: request.sequence.tokens()[at],
        position: u32::try_from(at).expect("a position is under the context"),
        sequence: request.slot,
        done: RUNNING,
    }
}
