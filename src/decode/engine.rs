//! The engine: the device, the KV cache, and the passes of sequences through the model.

use super::hooks::{AdapterScales, Hooks};
use super::kv::{Edits, Kv, PrefixKey, PromptBorders};
use super::output_request::OutputRequest;
use super::request::Request;
use super::reuse::{EndLogits, LastToken, reused};
use super::rows::{
    BURST_MAX, PendingTokens, SampledTokens, Submission, TokenRun, pass, read_mirostat, wait,
    write_history, write_rows, write_sampler, zeroed,
};
use super::sequence::StepBits;
use super::speech::WindowBatch;
use super::table_set::TableSet;
use crate::error::Result;
use crate::exec::Program;
use crate::exec::state::{RUNNING, state_bytes};
use crate::model::{LinkedTables, TableId, paged_slots};
use crate::op::params::{Row, STATE_BLOCK};
use crate::op::table::BufferId;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The device with the tables of the model, and the KV cache.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) linked: LinkedTables,
    pub(super) kv: Kv,
    /// Windows of recordings that a speech model decodes.
    pub(super) windows: WindowBatch,
    /// Pending edits of the page table, reused to avoid allocations.
    edits: Edits,
    /// Token IDs of a sequence, reused to avoid allocations.
    token_ids: Vec<u32>,
    /// The tables of the model.
    pub(super) tables: Arc<TableSet>,
    /// The tables of the last [`Engine::begin_steps`].
    step_tables: Arc<TableSet>,
    /// Host copy of the step state and its rows.
    pub(super) state: Vec<u8>,
    /// Token IDs of the sequence whose logits are on the device; empty if there are none.
    pub(super) logits_of: Vec<u32>,
    /// Number of the hooks that the logits were computed with.
    logits_hooks: u32,
}

impl Engine {
    pub(super) fn new(linked: LinkedTables) -> Self {
        let rows = linked.tables.iter().map(|t| t.tokens).max().unwrap_or(1);
        let context = linked.facts.context as usize;
        let sequences = linked.facts.sequences;
        let tables = Arc::new(TableSet::of_model(&linked));
        Self {
            kv: Kv::new(sequences as usize, linked.pages),
            windows: WindowBatch::new(&linked),
            edits: Edits::new(),
            token_ids: Vec::with_capacity(context + 1),
            step_tables: Arc::clone(&tables),
            tables,
            state: vec![0; state_bytes(rows as usize)],
            logits_of: Vec::with_capacity(context + 1),
            logits_hooks: 0,
            linked,
        }
    }

    /// Returns whether step tables and chunk tables write different bits to the KV cache.
    pub(super) fn step_bits(&self) -> StepBits {
        if self.linked.step_bits_differ() {
            StepBits::Distinct
        } else {
            StepBits::SameAsChunk
        }
    }

    /// Returns whether the model has recurrent layers.
    pub(super) fn is_recurrent(&self) -> bool {
        self.linked.pages.states > 0
    }

    /// Returns the maximum number of draft tokens after the token at this position. The state can return
    /// to any position of a block, so draft tokens of recurrent models do not leave it.
    pub(super) fn max_drafts(&self, position: usize) -> usize {
        let rows = match self.is_recurrent() {
            true => STATE_BLOCK as usize - position % STATE_BLOCK as usize,
            false => usize::MAX,
        };
        rows.min(self.max_rows()) - 1
    }

    /// Returns the maximum number of rows of a pass over sampled tokens and over prompt tokens of
    /// one sequence. Models that cannot check draft tokens compute sampled tokens one by one.
    fn max_run_rows(&self, tables: &TableSet) -> Result<[usize; 2]> {
        let batch = tables.index(TableId::Batch)?;
        let multi_row = self.linked.facts.speculates;
        let steps = if multi_row { self.max_rows() } else { 1 };
        Ok([steps, tables.table(batch).tokens as usize])
    }

    /// Returns the tables that compute a request.
    pub(super) fn tables_of(&self, request: &Request) -> Arc<TableSet> {
        let hooks = request.hooks.as_ref().map(Hooks::tables);
        Arc::clone(hooks.unwrap_or(&self.tables))
    }

    /// Assigns a slot to a request and reuses the cached prefix of its sequence.
    pub(super) fn assign_slot(&mut self, request: &mut Request, slot: u32) -> Result<()> {
        request.slot = slot;
        let step_bits = self.step_bits();
        let len = request.sequence.len();
        request.sequence.token_ids(
            len.min(self.linked.facts.context as usize),
            step_bits,
            &mut self.token_ids,
        );
        let sequence = &request.sequence;
        let tables = self.tables_of(request);
        let chunk = tables.table(tables.index(TableId::Batch)?).tokens as usize;
        // On a GPU, the bits of a row may depend on the other rows of its chunk, so a prefix must
        // not end inside a chunk of prompt tokens.
        let splits_chunk = |cached: usize| {
            let is_prompt = |at: usize| !sequence.is_sampled(at);
            (1..len).contains(&cached) && is_prompt(cached - 1) && is_prompt(cached)
        };
        let fits = |cached: usize| match step_bits {
            StepBits::Distinct if splits_chunk(cached) => sequence.aligned(cached, chunk),
            _ => cached,
        };
        // A preempted request keeps the tokens that were computed for it.
        let reusable = request.reusable.max(request.cached);
        let captured = request.captured.as_ref();
        let complete = captured.map_or(len, |captured| captured.missing_from(len));
        let shared = request.output.recompute_from().min(reusable).min(complete);
        let hooks = request.prefix_id();
        let token_ids = &self.token_ids[..shared.min(self.token_ids.len())];
        let key = PrefixKey { hooks, token_ids };
        let prompt = PromptBorders {
            end: sequence.prompt_len(),
            unit: match step_bits {
                StepBits::Distinct => chunk,
                StepBits::SameAsChunk => 1,
            },
        };
        self.kv.set_prompt(slot as usize, prompt);
        let mut prefix = self
            .kv
            .attach_prefix(slot as usize, key, fits, &mut self.edits);
        let reads_logits = matches!(request.output, OutputRequest::Logits(_));
        let last = match len > 0 && sequence.is_sampled(len - 1) {
            true => LastToken::Sampled,
            false => LastToken::Prompt,
        };
        let on_device = (&self.logits_of, self.logits_hooks) == (&self.token_ids, hooks);
        let logits = match (&request.sampling, &request.output) {
            (None, OutputRequest::Nothing) => EndLogits::Unread,
            (Some(_), _) | (None, OutputRequest::Logits(_)) if on_device => EndLogits::OnDevice,
            _ => EndLogits::Overwritten,
        };
        let reused = reused(prefix.tokens, len, last, logits);
        if reused < prefix.tokens {
            self.kv.release_pages_after(slot as usize, 0);
            let token_ids = &self.token_ids[..reused];
            let key = PrefixKey { hooks, token_ids };
            let all = |cached| cached;
            prefix = self
                .kv
                .attach_prefix(slot as usize, key, all, &mut self.edits);
        }
        (request.cached, request.head_keys) = (prefix.tokens, prefix.head_keys);
        self.apply_edits(slot)?;
        if reads_logits && len > 0 && request.cached == len {
            // No pass follows: the last one was over these tokens.
            self.read_output(request, len - 1..len, BufferId::Logits)?;
        }
        self.write_inputs(request)
    }

    /// Writes the tokens of a request, its sampling parameters and the scales of its adapters.
    fn write_inputs(&mut self, request: &Request) -> Result<()> {
        let (slot, context) = (request.slot, self.linked.facts.context as usize);
        let history = request.sequence.tokens();
        let history = &history[..history.len().min(context)];
        let offset = slot as usize * context * size_of::<u32>();
        let bytes = bytemuck::cast_slice(history);
        self.linked
            .executor
            .write(BufferId::History, offset, bytes)?;
        if let Some(sampling) = &request.sampling {
            write_sampler(&mut self.linked, slot, sampling)?;
        }
        let adapters = request.adapters.as_ref();
        self.write_scales(request.hooks_id(), slot, adapters)
    }

    /// Writes the scales of the adapters of a sequence.
    fn write_scales(
        &mut self,
        hooks: u32,
        slot: u32,
        adapters: Option<&AdapterScales>,
    ) -> Result<()> {
        let Some(AdapterScales { scales, .. }) = adapters.filter(|a| !a.scales.is_empty()) else {
            return Ok(());
        };
        let bytes: &[u8] = bytemuck::cast_slice(scales);
        let offset = slot as usize * bytes.len();
        let buffer = BufferId::AdapterScales(hooks);
        self.linked.executor.write(buffer, offset, bytes)
    }

    /// Reads back the state of the sampler of a request.
    pub(super) fn read_sampler_state(&mut self, request: &mut Request) -> Result<()> {
        match &mut request.sampling {
            Some(sampling) => read_mirostat(&mut self.linked, request.slot, sampling),
            None => Ok(()),
        }
    }

    /// Releases the slot of a request and adds its tokens to the prefix cache. No pass of a recurrent model
    /// may be in flight for it.
    pub(super) fn release_slot(&mut self, request: &mut Request) {
        let cached = request.cached.min(request.sequence.len());
        let cached = cached.min(request.output.recompute_from());
        if cached > 0 {
            let step_bits = self.step_bits();
            request
                .sequence
                .token_ids(cached, step_bits, &mut self.token_ids);
            let key = PrefixKey {
                hooks: request.prefix_id(),
                token_ids: &self.token_ids,
            };
            self.kv.settle_state(request.slot as usize, request.cached);
            self.kv
                .insert_prefix(request.slot as usize, key, request.head_keys);
        }
        self.kv.release_pages_after(request.slot as usize, 0);
    }

    /// Releases the slot of a request whose pages have undefined content.
    pub(super) fn discard_slot(&mut self, request: &Request) {
        self.kv.release_pages_after(request.slot as usize, 0);
    }

    /// Makes positions of a slot writable.
    pub(super) fn make_writable(&mut self, slot: u32, from: usize, to: usize) -> Result<()> {
        let to = to.min(self.linked.facts.context as usize);
        self.kv
            .make_writable(slot as usize, from..to, &mut self.edits);
        self.apply_edits(slot)
    }

    /// Applies pending edits to the device.
    fn apply_edits(&mut self, slot: u32) -> Result<()> {
        let Self {
            linked, kv, edits, ..
        } = self;
        let tables = Arc::clone(&linked.tables);
        for copy in edits.copies.drain(..) {
            for (slot, bytes, kind) in paged_slots(&tables, linked.pages) {
                if kind == copy.kind {
                    let [from, to] = [copy.from, copy.to].map(|page| page as usize * bytes);
                    linked.executor.duplicate(slot.buffer, from, to, bytes)?;
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

    /// Computes one pass of tokens that are not cached: a chunk of at most `max_tokens` prompt
    /// tokens, or several sampled tokens. Reads back the requested output.
    pub(super) fn prefill(&mut self, request: &mut Request, max_tokens: usize) -> Result<()> {
        let tables = self.tables_of(request);
        let batch = tables.index(TableId::Batch)?;
        let len = request.sequence.len();
        let (table, run) = match request.output {
            OutputRequest::Hidden(_) => {
                let table = tables.index(TableId::Embed)?;
                let rows = tables.table(table).tokens as usize;
                (table, request.cached..len.min(request.cached + rows))
            }
            OutputRequest::AllLogits(_) | OutputRequest::Logprobs(_)
                if request.cached >= request.output.recompute_from() =>
            {
                let run = request.cached..len.min(request.cached + self.max_rows());
                (tables.with_rows(run.len()).table, run)
            }
            _ => {
                let max_rows = self.max_run_rows(&tables)?;
                let mut run = request.sequence.run(request.cached, max_rows);
                run.end = run.end.min(run.start.saturating_add(max_tokens));
                run.end = run.end.min(request.output.recompute_from());
                let sampled = request.sequence.is_sampled(run.start);
                if sampled && request.sampling.is_some() {
                    // The last token is computed in the step that samples the next one.
                    run.end = run.end.min(len - 1);
                    let last = &request.sequence.tokens()[len - 1..];
                    write_history(&mut self.linked, request.slot, len - 1, last)?;
                }
                let table = if sampled {
                    tables.with_rows(run.len()).table
                } else {
                    batch
                };
                (table, run)
            }
        };
        let last = run.end == len;
        let current = tables.table(table);
        let end = if table == batch && !last {
            current.head
        } else {
            current.body().end
        };
        // Multi-row step tables output the logits of every row, other tables those of the last row.
        let per_row = table != batch && current.tokens > 1;
        let buffer = if per_row {
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
        pass(&mut self.linked, &mut self.state, table, cmds, &token_run)?;
        wait(&mut self.linked)?;
        request.cached = run.end;
        request.computed += run.len();
        if table == batch && last {
            let step_bits = self.step_bits();
            request
                .sequence
                .token_ids(len, step_bits, &mut self.logits_of);
            self.logits_hooks = request.prefix_id();
        }
        self.read_captured(request, &run, 0)?;
        self.read_output(request, run, buffer)
    }

    /// Reads the captured values of the tokens of `run`, which are consecutive rows from `first` on of
    /// the last pass.
    pub(super) fn read_captured(
        &mut self,
        request: &mut Request,
        run: &Range<usize>,
        first: usize,
    ) -> Result<()> {
        let buffer = BufferId::Captured(request.hooks_id());
        // A step computes the token before the sampled one.
        let last = match request.sampling {
            Some(_) if request.is_prefilled() => run.end - 1,
            _ => request.sequence.len() - 1,
        };
        let Some(captured) = &mut request.captured else {
            return Ok(());
        };
        let row_bytes = captured.width() * size_of::<f32>();
        let executor = &mut self.linked.executor;
        captured.store(run, last, |rows, out| {
            let offset = (first + rows.start) * row_bytes;
            executor.read(buffer, offset, bytemuck::cast_slice_mut(out))
        })
    }

    /// Links tables with hooks.
    pub(super) fn link_hooks(&mut self, program: Program) -> Result<Arc<TableSet>> {
        let tables = Arc::clone(&program.tables);
        let first = self.linked.executor.add_tables(program)?;
        Ok(Arc::new(TableSet::new(&self.linked, tables, first)))
    }

    /// Frees the tables of hooks, whose first index is `first`. A lost device has freed them already.
    pub(super) fn unlink_hooks(&mut self, first: usize) {
        let _ = self.linked.executor.remove_tables(first);
    }

    /// Computes the logits of rows of the residual stream, `[rows, dim]`.
    pub(super) fn lens(&mut self, hooks: &Hooks, residual: &[f32]) -> Result<Vec<f32>> {
        let tables = hooks.tables();
        let table = tables.index(TableId::Lens)?;
        let [dim, vocab] = [self.linked.facts.dim, self.linked.facts.vocab].map(|n| n as usize);
        let mut logits = zeroed(residual.len() / dim * vocab)?;
        let lens = tables.table(table);
        let rows = lens.tokens as usize;
        let passes = residual.chunks(rows * dim);
        for (rows, out) in passes.zip(logits.chunks_mut(rows * vocab)) {
            let states = (0..rows.len() / dim).map(|_| Row::default());
            write_rows(&mut self.linked, &mut self.state, states)?;
            let executor = &mut self.linked.executor;
            let buffer = BufferId::Residual(hooks.id());
            executor.write(buffer, 0, bytemuck::cast_slice(rows))?;
            executor.run(table, lens.body().into(), 1)?;
            let buffer = BufferId::LensLogits(hooks.id());
            executor.read(buffer, 0, bytemuck::cast_slice_mut(out))?;
        }
        Ok(logits)
    }

    /// Reads the requested output of a pass over `run`, whose logits are in buffer `buffer`.
    fn read_output(
        &mut self,
        request: &mut Request,
        run: Range<usize>,
        buffer: BufferId,
    ) -> Result<()> {
        let last = run.end == request.sequence.len();
        let vocab = self.linked.facts.vocab as usize;
        let (buffer, first, out) = match &mut request.output {
            OutputRequest::Hidden(out) => {
                let width = out.len() / request.sequence.len();
                let rows = run.start * width..run.end * width;
                (BufferId::Hidden, 0, &mut out[rows])
            }
            OutputRequest::AllLogits(out) => {
                (buffer, 0, &mut out[run.start * vocab..run.end * vocab])
            }
            OutputRequest::Logprobs(targets) if run.start >= targets.first => {
                (buffer, 0, targets.logits_buffer(run.len(), vocab))
            }
            OutputRequest::Logits(out) if last && buffer == BufferId::Scores => {
                (buffer, run.len() - 1, &mut out[..])
            }
            OutputRequest::Logits(out) if last => (buffer, 0, &mut out[..]),
            _ => return Ok(()),
        };
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(out);
        let offset = first * bytes.len();
        self.linked.executor.read(buffer, offset, bytes)?;
        if let OutputRequest::Logprobs(targets) = &mut request.output {
            targets.compute(run, vocab);
        }
        Ok(())
    }

    /// Decodes a token of the windows of recordings. Returns whether there are any.
    pub(super) fn decode_windows(&mut self) -> bool {
        self.windows.run(&mut self.linked)
    }

    /// Ends the windows that are being decoded, before other work that uses the KV cache.
    pub(super) fn end_windows(&mut self) {
        self.windows.drain(&mut self.linked);
    }

    /// Computes the hidden states of texts that fit one pass of an encoder.
    pub(super) fn embed(
        &mut self,
        hooks: Option<&Hooks>,
        adapters: Option<&AdapterScales>,
        rows: &[Row],
        mut hidden: Vec<f32>,
    ) -> Result<Vec<f32>> {
        // All rows have sequence 0.
        self.write_scales(hooks.map_or(0, Hooks::id), 0, adapters)?;
        let tables = hooks.map_or(&self.tables, Hooks::tables);
        let table = tables.index(TableId::Classify);
        let table = table.or_else(|_| tables.index(TableId::Embed))?;
        let all = 0..tables.table(table).cmds.len();
        write_rows(&mut self.linked, &mut self.state, rows.iter().copied())?;
        self.linked.executor.run(table, all.into(), 1)?;
        let bytes = bytemuck::cast_slice_mut(&mut hidden);
        self.linked.executor.read(BufferId::Hidden, 0, bytes)?;
        Ok(hidden)
    }

    /// Returns the maximum number of rows of a step.
    pub(super) fn max_rows(&self) -> usize {
        self.tables.max_rows()
    }

    /// Returns the maximum number of steps of a burst.
    pub(super) fn max_burst(&self) -> u32 {
        self.linked.executor.profile().burst_tokens.min(BURST_MAX)
    }

    /// Samples a token from the logits of the last prefill pass.
    pub(super) fn sample_first(&mut self, request: &mut Request) -> Result<PendingTokens> {
        let start = Instant::now();
        let stage = request.stage();
        let logprobs = request.logprobs_mode();
        let row = row_of(request, request.cached - 1);
        write_rows(&mut self.linked, &mut self.state, [row].into_iter())?;
        let table = self.linked.table_index(TableId::Step)?;
        let cmds = self.linked.tables[table].stages[stage as usize].clone();
        self.linked.executor.run(table, cmds.into(), 1)?;
        let sequences = [(request.slot, request.sequence.len())].into_iter();
        let steps = 1;
        let pending = PendingTokens::request(
            &mut self.linked,
            sequences,
            Submission {
                stage,
                steps,
                logprobs,
            },
        )?;
        request.submitting += start.elapsed();
        Ok(pending)
    }

    /// Writes the rows of a batch to the device, whose requests have the hooks of `request`. Steps
    /// advance the rows on the device, so that bursts follow each other without further writes.
    pub(super) fn begin_steps(
        &mut self,
        request: &Request,
        rows: impl Iterator<Item = Row>,
    ) -> Result<()> {
        self.step_tables = self.tables_of(request);
        write_rows(&mut self.linked, &mut self.state, rows)?;
        Ok(())
    }

    /// Submits a burst of steps for the rows of the last [`Engine::begin_steps`]. `sequences`
    /// contains the slot and the position of the first new token of each row.
    pub(super) fn steps(
        &mut self,
        rows: usize,
        submission: Submission,
        sequences: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<PendingTokens> {
        let table = self.step_tables.with_rows(rows).table;
        let step = self.step_tables.table(table);
        if step.tokens == 1 {
            self.logits_of.clear();
        }
        let cmds = step.pass(submission.stage);
        self.linked.executor.run(table, cmds, submission.steps)?;
        PendingTokens::request(&mut self.linked, sequences, submission)
    }

    /// Submits the first part of a step, which computes the logits.
    pub(super) fn step_logits(&mut self, rows: usize) -> Result<()> {
        self.logits_of.clear();
        let table = self.step_tables.with_rows(rows).table;
        let cmds = self.step_tables.table(table).body();
        self.linked.executor.run(table, cmds.into(), 1)
    }

    /// Writes the mask of allowed tokens of a slot.
    pub(super) fn mask(&mut self, slot: u32, mask: &[u32]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(mask);
        let offset = slot as usize * bytes.len();
        self.linked.executor.write(BufferId::Masks, offset, bytes)
    }

    /// Submits the second part of a step, which samples from the logits; see [`Engine::steps`].
    pub(super) fn step_sample(
        &mut self,
        rows: usize,
        submission: Submission,
        sequences: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<PendingTokens> {
        let table = self.step_tables.with_rows(rows).table;
        let step = self.step_tables.table(table);
        let cmds = step.stages[submission.stage as usize].clone();
        self.linked.executor.run(table, cmds.into(), 1)?;
        PendingTokens::request(&mut self.linked, sequences, submission)
    }

    /// Waits for sampled tokens.
    pub(super) fn wait(&mut self, pending: PendingTokens) -> Result<SampledTokens> {
        pending.wait(&mut self.linked)
    }
}

/// Returns the row of the token at index `at` of a request.
pub(super) fn row_of(request: &Request, at: usize) -> Row {
    Row {
        token: request.sequence.tokens()[at],
        position: u32::try_from(at).expect("positions are less than the context"),
        sequence: request.slot,
        done: RUNNING,
        ..Row::default()
    }
}
