//! The engine: the device, the pages of its cache, and the passes that sequences go through.

use super::kv::{Edits, Kind, Kv};
use super::output_request::OutputRequest;
use super::request::Request;
use super::rows::{
    PICKS_MAX, PendingTokens, SampledTokens, Stretch, Submission, pass, read_learned, read_picked,
    wait, write_history, write_picking, write_rows,
};
use super::sequence::Apart;
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
            .map(|(table, found)| Step {
                table,
                rows: found.tokens as usize,
            })
            .collect();
        if linked.apart() && linked.facts.speculates && steps.len() > 1 {
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
    pub(super) fn apart(&self) -> Apart {
        if self.linked.apart() {
            Apart::Yes
        } else {
            Apart::No
        }
    }

    /// Rows of a pass of tokens of one sequence: of picked ones, of given ones. A lone row of a model
    /// for one sequence is not computed as several are.
    fn rows_of_runs(&self) -> Result<[usize; 2]> {
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
    pub(super) fn seat(&mut self, request: &mut Request, seat: u32) -> Result<()> {
        request.seat = seat;
        let apart = self.apart();
        let len = request.sequence.len();
        request.sequence.keys(
            len.min(self.linked.facts.context as usize),
            apart,
            &mut self.keys,
        );
        let sequence = &request.sequence;
        let chunk = self.linked.tables[self.linked.at(TableId::Batch)?].tokens as usize;
        // Where a chunk's rows may see each other in the bits, what begins inside of one does not.
        let inside = |known: usize| {
            let given = |at: usize| !sequence.was_picked(at);
            (1..len).contains(&known) && given(known - 1) && given(known)
        };
        let fits = |known: usize| match apart {
            Apart::Yes if inside(known) => sequence.aligned(known, chunk),
            _ => known,
        };
        // A request that loses its slot and gets another one keeps what was computed for it.
        let reusable = request.reusable.max(request.fed);
        let shared = request.wanted.each_from().min(reusable);
        let keys = &self.keys[..shared.min(self.keys.len())];
        request.fed = self.kv.begin(seat as usize, keys, fits, &mut self.edits);
        self.apply(seat)?;
        let known = request.picking.is_some() && self.logits_of == self.keys;
        let silent = request.picking.is_none() && matches!(request.wanted, OutputRequest::Nothing);
        if request.fed == len && len > 0 && !silent && (sequence.was_picked(len - 1) || !known) {
            // The logits behind the last token are gone: it goes through the model once more.
            request.fed -= 1;
        }
        let history = request.sequence.tokens();
        let history = &history[..len.min(self.linked.facts.context as usize)];
        let offset = seat as usize * self.linked.facts.context as usize * size_of::<u32>();
        let bytes = bytemuck::cast_slice(history);
        self.linked
            .executor
            .write(BufferId::History, offset, bytes)?;
        if let Some(picking) = &request.picking {
            write_picking(&mut self.linked, seat, picking)?;
        }
        Ok(())
    }

    /// Takes back what was learned of a request in its seat.
    pub(super) fn learn(&mut self, request: &mut Request) -> Result<()> {
        match &mut request.picking {
            Some(picking) => read_learned(&mut self.linked, request.seat, picking),
            None => Ok(()),
        }
    }

    /// Takes the seat of a request, and keeps what was computed for it.
    pub(super) fn unseat(&mut self, request: &mut Request) {
        let fed = request.fed.min(request.sequence.len());
        let fed = fed.min(request.wanted.each_from());
        if fed > 0 {
            let apart = self.apart();
            request.sequence.keys(fed, apart, &mut self.keys);
            self.kv.keep(request.seat as usize, &self.keys);
        }
        self.kv.trim(request.seat as usize, 0);
    }

    /// Takes the seat of a request whose pages hold who knows what.
    pub(super) fn drop_seat(&mut self, request: &Request) {
        self.kv.trim(request.seat as usize, 0);
    }

    /// Makes positions of a seat writable.
    pub(super) fn grow(&mut self, seat: u32, from: usize, to: usize) -> Result<()> {
        let to = to.min(self.linked.facts.context as usize);
        self.kv.grow(seat as usize, from..to, &mut self.edits);
        self.apply(seat)
    }

    /// Does what the cache's bookkeeping wants done.
    fn apply(&mut self, seat: u32) -> Result<()> {
        let Self {
            linked, kv, edits, ..
        } = self;
        let tables = Arc::clone(&linked.tables);
        for copy in edits.copies.drain(..) {
            for slot in &tables[0].slots {
                let Some((bytes, ringed)) = linked.page_of(slot) else {
                    continue;
                };
                if ringed == (copy.kind == Kind::Ringed) {
                    let [from, to] = [copy.from, copy.to].map(|page| page as usize * bytes);
                    linked.executor.duplicate(slot.place, from, to, bytes)?;
                }
            }
        }
        if std::mem::take(&mut edits.entries) {
            let row = kv.row(seat as usize);
            let bytes: &[u8] = bytemuck::cast_slice(row);
            let offset = seat as usize * bytes.len();
            linked.executor.write(BufferId::Pages, offset, bytes)?;
        }
        Ok(())
    }

    /// One pass of tokens that a request's cache lacks: a chunk of given ones, or some picked ones.
    /// What is wanted of them is read back.
    pub(super) fn feed(&mut self, request: &mut Request) -> Result<()> {
        let batch = self.linked.at(TableId::Batch)?;
        let len = request.sequence.len();
        let (table, run) = match request.wanted {
            OutputRequest::Hidden(_) => {
                let table = self.linked.at(TableId::EmbedOptions)?;
                let rows = self.linked.tables[table].tokens as usize;
                (table, request.fed..len.min(request.fed + rows))
            }
            OutputRequest::Scores(_) | OutputRequest::Likelihoods(_)
                if request.fed >= request.wanted.each_from() =>
            {
                let run = request.fed..len.min(request.fed + self.widest());
                (self.step_for(run.len()).table, run)
            }
            _ => {
                let mut run = request.sequence.run(request.fed, self.rows_of_runs()?);
                run.end = run.end.min(request.wanted.each_from());
                let picked = request.sequence.was_picked(run.start);
                if picked && request.picking.is_some() {
                    // The last one goes through with the step that picks the next.
                    run.end = run.end.min(len - 1);
                    let last = &request.sequence.tokens()[len - 1..];
                    write_history(&mut self.linked, request.seat, len - 1, last)?;
                }
                let table = if picked {
                    self.step_for(run.len()).table
                } else {
                    batch
                };
                (table, run)
            }
        };
        let last = run.end == len;
        let found = &self.linked.tables[table];
        let end = if table == batch && !last {
            found.head
        } else {
            found.body().end
        };
        // Tables for steps of several rows leave the logits of each, others those of the last.
        let each = table != batch && found.tokens > 1;
        let place = if each {
            BufferId::Scores
        } else {
            BufferId::Logits
        };
        self.grow(request.seat, run.start, run.end)?;
        let stretch = Stretch {
            sequence: request.seat,
            start: run.start,
            tokens: &request.sequence.tokens()[run.clone()],
        };
        self.logits_of.clear();
        let cmds = (0..end).into();
        pass(&mut self.linked, &mut self.state, (table, cmds), &stretch)?;
        wait(&mut self.linked)?;
        request.fed = run.end;
        request.computed += run.len();
        if table == batch && last {
            let apart = self.apart();
            request.sequence.keys(len, apart, &mut self.logits_of);
        }
        self.read(request, run, place)
    }

    /// Reads what is wanted of a pass of these tokens, whose logits are in this place.
    fn read(&mut self, request: &mut Request, run: Range<usize>, place: BufferId) -> Result<()> {
        let last = run.end == request.sequence.len();
        let vocab = self.linked.facts.vocab as usize;
        let (place, first, out) = match &mut request.wanted {
            OutputRequest::Hidden(out) => {
                let dim = self.linked.facts.dim as usize;
                let rows = run.start * dim..run.end * dim;
                (BufferId::Hidden, 0, &mut out[rows])
            }
            OutputRequest::Scores(out) => (place, 0, &mut out[run.start * vocab..run.end * vocab]),
            OutputRequest::Likelihoods(wanted) if run.start >= wanted.first => {
                (place, 0, wanted.room(run.len(), vocab))
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
        if let OutputRequest::Likelihoods(wanted) = &mut request.wanted {
            wanted.take(run, vocab);
        }
        Ok(())
    }

    /// The last layer's rows of some texts of an encoder, which fit a pass together.
    pub(super) fn embed(&mut self, rows: &[Row], mut hidden: Vec<f32>) -> Result<Vec<f32>> {
        let table = self.linked.at(TableId::EmbedOptions)?;
        write_rows(&mut self.linked, &mut self.state, rows.iter().copied())?;
        let all = 0..self.linked.tables[table].cmds.len();
        self.linked.executor.run(table, all.into(), 1)?;
        let bytes = bytemuck::cast_slice_mut(&mut hidden);
        self.linked.executor.read(BufferId::Hidden, 0, bytes)?;
        Ok(hidden)
    }

    /// The narrowest table for so many rows.
    fn step_for(&self, rows: usize) -> Step {
        let wide = self.steps.iter().find(|step| step.rows >= rows);
        *wide.unwrap_or(&self.steps[self.steps.len() - 1])
    }

    /// Rows that go together at most.
    pub(super) fn widest(&self) -> usize {
        self.steps.last().map_or(1, |step| step.rows)
    }

    /// Tokens of a chain at most.
    pub(super) fn longest_chain(&self) -> u32 {
        self.linked.executor.profile().burst_tokens.min(PICKS_MAX)
    }

    /// PendingTokens the token behind the logits that feeding a request has left.
    pub(super) fn pick_first(&mut self, request: &mut Request) -> Result<PendingTokens> {
        let since = Instant::now();
        let tail = request.tail();
        let tells = request.tells();
        let row = row_of(request, request.fed - 1);
        write_rows(&mut self.linked, &mut self.state, [row].into_iter())?;
        let table = self.linked.at(TableId::Step)?;
        let cmds = self.linked.tables[table].stages[tail as usize].clone();
        self.linked.executor.run(table, cmds.into(), 1)?;
        let from = [(request.seat, request.sequence.len())].into_iter();
        let times = 1;
        let picks = PendingTokens::ask(&mut self.linked, from, Submission { tail, times, tells })?;
        request.submitting += since.elapsed();
        Ok(picks)
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
        steps: Submission,
        sequences: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<PendingTokens> {
        let table = self.step_for(rows).table;
        if self.linked.tables[table].tokens == 1 {
            self.logits_of.clear();
        }
        let cmds = self.linked.tables[table].pass(steps.tail);
        self.linked.executor.run(table, cmds, steps.times)?;
        PendingTokens::ask(&mut self.linked, sequences, steps)
    }

    /// The first part of a step of so many rows: their logits.
    pub(super) fn step_logits(&mut self, rows: usize) -> Result<()> {
        self.logits_of.clear();
        let table = self.step_for(rows).table;
        let cmds = self.linked.tables[table].body();
        self.linked.executor.run(table, cmds.into(), 1)
    }

    /// Says which tokens may come next of a sequence.
    pub(super) fn mask(&mut self, seat: u32, mask: &[u32]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(mask);
        let offset = seat as usize * bytes.len();
        self.linked.executor.write(BufferId::Masks, offset, bytes)
    }

    /// The second part: what is picked from the logits, as for [`Engine::steps`].
    pub(super) fn step_picks(
        &mut self,
        rows: usize,
        steps: Submission,
        sequences: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<PendingTokens> {
        let table = self.step_for(rows).table;
        let tail = self.linked.tables[table].stages[steps.tail as usize].clone();
        self.linked.executor.run(table, tail.into(), 1)?;
        PendingTokens::ask(&mut self.linked, sequences, steps)
    }

    /// One pass of the last token of a request and of guesses at what follows it, which stand behind it
    /// in `tokens`. What is picked behind each of them comes in their order, with its row's `done`.
    pub(super) fn check(
        &mut self,
        request: &Request,
        tokens: &[u32],
    ) -> Result<[(u32, u32); STEP_ROWS_MAX as usize]> {
        let start = request.fed;
        let tail = request.tail();
        self.grow(request.seat, start, start + tokens.len())?;
        let table = self.step_for(tokens.len()).table;
        let stretch = Stretch {
            sequence: request.seat,
            start,
            tokens,
        };
        let cmds = self.linked.tables[table].pass(tail);
        pass(&mut self.linked, &mut self.state, (table, cmds), &stretch)?;
        read_picked(&mut self.linked, tokens.len(), start)
    }

    /// Waits for what was picked.
    pub(super) fn take(&mut self, picks: PendingTokens) -> Result<SampledTokens> {
        picks.take(&mut self.linked)
    }
}

/// The row of a request whose token at this place is picked from, or goes through the model.
pub(super) fn row_of(request: &Request, at: usize) -> Row {
    Row {
        token: request.sequence.tokens()[at],
        position: u32::try_from(at).expect("a position is under the context"),
        sequence: request.seat,
        done: RUNNING,
    }
}
