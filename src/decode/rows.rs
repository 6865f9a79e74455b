//! Transfers between host and device: rows of tokens to the device, sampled tokens to the host, and the
//! memory of the host for results.

use super::sampling_request::{LogprobsMode, SamplingRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::state::{NOT_FINITE, ROWS_OFFSET, state_bytes};
use crate::exec::{COPY_BYTES_MAX, Copying, Span};
use crate::model::{LinkedTables, STEP_ROWS_MAX};
use crate::op::params::{Bias, Logprobs, Row, Sampler, State};
use crate::op::table::{BIASES_MAX, BufferId, Cmds, SamplingStage, Table};

/// Consecutive tokens of a sequence.
pub(super) struct TokenRun<'a> {
    /// Slot of the sequence.
    pub(super) sequence: u32,
    /// Position of the first token.
    pub(super) start: usize,
    pub(super) tokens: &'a [u32],
}

/// Runs a pass of tokens through commands of a table. `state` as in [`write_rows`].
pub(super) fn pass(
    model: &mut LinkedTables,
    state: &mut [u8],
    table: usize,
    cmds: Cmds,
    token_run: &TokenRun<'_>,
) -> Result<()> {
    let &TokenRun {
        sequence,
        start,
        tokens,
    } = token_run;
    write_history(model, sequence, start, tokens)?;
    let first = u32::try_from(start).expect("positions are less than the context");
    let rows = (first..).zip(tokens).map(|(position, &token)| Row {
        token,
        position,
        sequence,
        ..Row::default()
    });
    write_rows(model, state, rows)?;
    model.executor.run(table, cmds, 1)
}

/// Waits until the device is idle, so that an error is attributed to the pass that caused it.
pub(super) fn wait(model: &mut LinkedTables) -> Result<()> {
    let mut bytes = [0; size_of::<u32>()];
    model.executor.read(BufferId::State, 0, &mut bytes)
}

/// Writes the step state of a pass and returns the number of rows. `state` is the host copy, with
/// space for the rows of the widest table.
pub(super) fn write_rows(
    model: &mut LinkedTables,
    state: &mut [u8],
    rows: impl Iterator<Item = Row>,
) -> Result<usize> {
    let (header, rows_bytes) = state.split_at_mut(ROWS_OFFSET);
    let mut active = 0;
    for (out, row) in rows_bytes.chunks_exact_mut(size_of::<Row>()).zip(rows) {
        out.copy_from_slice(bytemuck::bytes_of(&row));
        active += 1;
    }
    header.copy_from_slice(bytemuck::bytes_of(&State {
        active_rows: u32::try_from(active).expect("a table has fewer rows"),
        context: model.facts.context,
        ..State::default()
    }));
    let bytes = &state[..state_bytes(active)];
    model.executor.write(BufferId::State, 0, bytes)?;
    Ok(active)
}

/// Reads the token sampled after each of `count` tokens of one sequence from position `start` on,
/// and the `done` of its row.
pub(super) fn read_sampled(
    model: &mut LinkedTables,
    count: usize,
    start: usize,
) -> Result<[(u32, u32); STEP_ROWS_MAX as usize]> {
    let mut bytes = [0; STEP_ROWS_MAX as usize * size_of::<Row>()];
    let bytes = &mut bytes[..count * size_of::<Row>()];
    model.executor.read(BufferId::State, ROWS_OFFSET, bytes)?;
    let mut sampled = [(0, 0); STEP_ROWS_MAX as usize];
    for row in bytes.chunks_exact(size_of::<Row>()) {
        // Finished rows have been moved.
        let row: Row = bytemuck::pod_read_unaligned(row);
        // A row without a token stays at its position.
        let moved = usize::from(row.done != NOT_FINITE);
        sampled[row.position as usize - start - moved] = (row.token, row.done);
    }
    Ok(sampled)
}

/// A burst of steps that is submitted at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    pub(super) stage: SamplingStage,
    /// Number of steps. 1 with log-probabilities, whose buffer only stores one step.
    pub(super) steps: u32,
    pub(super) logprobs: LogprobsMode,
}

/// Tokens that a submitted burst samples, before they are read.
pub(super) struct PendingTokens {
    copying: Copying,
    rows: usize,
    /// Number of tokens per row.
    steps: usize,
    /// Number of rows with log-probabilities: all or 0.
    logprobs: usize,
}

/// Maximum number of steps of a burst. The tokens of all rows must fit one copy.
pub(super) const BURST_MAX: u32 = 60;
const _: () = assert!(token_bytes(STEP_ROWS_MAX as usize, BURST_MAX as usize) <= COPY_BYTES_MAX);
const _: () = assert!(bytes_with_logprobs(STEP_ROWS_MAX as usize) <= COPY_BYTES_MAX);

/// Returns the size of `rows` rows with `steps` tokens each, in bytes.
const fn token_bytes(rows: usize, steps: usize) -> usize {
    rows * (size_of::<Row>() + steps * size_of::<u32>())
}

/// Returns the size of `rows` rows with one token and its log-probabilities each, in bytes.
const fn bytes_with_logprobs(rows: usize) -> usize {
    token_bytes(rows, 1) + rows * size_of::<Logprobs>()
}

impl PendingTokens {
    /// Requests a copy of the tokens of the burst that was submitted last. `sequences` contains the
    /// slot and the position of the first new token of each row.
    pub(super) fn request(
        model: &mut LinkedTables,
        sequences: impl Iterator<Item = (u32, usize)> + Clone,
        submission: Submission,
    ) -> Result<Self> {
        let context = model.facts.context as usize;
        let steps = (submission.steps as usize).min(context);
        let mut spans =
            [Span::new(BufferId::State, ROWS_OFFSET, 0); 1 + 2 * STEP_ROWS_MAX as usize];
        let mut rows = 0;
        for (span, (sequence, first)) in spans[1..].iter_mut().zip(sequences.clone()) {
            let offset = history_offset(model, sequence, first_copied(first, context, steps));
            *span = Span::new(BufferId::History, offset, steps * size_of::<u32>());
            rows += 1;
        }
        spans[0].bytes = rows * size_of::<Row>();
        let mut logprobs = 0;
        let sequences = sequences.filter(|_| submission.logprobs == LogprobsMode::On);
        for (span, (sequence, _)) in spans[1 + rows..].iter_mut().zip(sequences) {
            let bytes = size_of::<Logprobs>();
            *span = Span::new(BufferId::Logprobs, sequence as usize * bytes, bytes);
            logprobs += 1;
        }
        Ok(Self {
            copying: model.executor.copy(&spans[..=rows + logprobs])?,
            rows,
            steps,
            logprobs,
        })
    }

    /// Waits for the tokens.
    pub(super) fn wait(self, model: &mut LinkedTables) -> Result<SampledTokens> {
        let Self {
            copying,
            rows,
            steps,
            logprobs,
        } = self;
        let mut bytes = [0; COPY_BYTES_MAX];
        let copied = token_bytes(rows, steps) + logprobs * size_of::<Logprobs>();
        let copied = &mut bytes[..copied];
        model.executor.take(copying, copied)?;
        Ok(SampledTokens {
            bytes,
            rows,
            steps,
            logprobs,
            context: model.facts.context as usize,
        })
    }
}

/// Returns the position of the first copied token. The number of copied tokens is the same for a
/// sequence near the end of the context.
fn first_copied(first: usize, context: usize, steps: usize) -> usize {
    first.min(context - steps)
}

/// Tokens that a burst sampled.
pub(super) struct SampledTokens {
    bytes: [u8; COPY_BYTES_MAX],
    rows: usize,
    steps: usize,
    logprobs: usize,
    context: usize,
}

impl SampledTokens {
    /// Passes the tokens sampled for the sequence at `index`, which had `first` tokens, to `each`.
    /// Returns the `done` of its row.
    pub(super) fn for_each_token(
        &self,
        index: usize,
        sequence: u32,
        first: usize,
        mut each: impl FnMut(u32),
    ) -> u32 {
        let (rows, sampled) = self.bytes.split_at(self.rows * size_of::<Row>());
        let mut rows = rows.chunks_exact(size_of::<Row>());
        let row = rows.find_map(|row| {
            let row: Row = bytemuck::pod_read_unaligned(row);
            (row.sequence == sequence).then_some(row)
        });
        let row = row.expect("rows are only reordered");
        let position = row.position as usize;
        let skipped = first - first_copied(first, self.context, self.steps);
        let sampled = sampled.chunks_exact(size_of::<u32>());
        let sampled = sampled.skip(index * self.steps + skipped);
        // A burst after the end of the sequence samples nothing.
        let count = (position.min(self.context - 1) + 1).saturating_sub(first);
        sampled
            .take(count)
            .for_each(|token| each(bytemuck::pod_read_unaligned(token)));
        if position == self.context && first <= self.context {
            // The history has no space for the token.
            each(row.token);
        }
        row.done
    }

    /// Returns the log-probabilities of the sequence at `index`, if requested.
    pub(super) fn logprobs(&self, index: usize) -> Option<Logprobs> {
        let logprobs = &self.bytes[token_bytes(self.rows, self.steps)..];
        let mut logprobs = logprobs
            .chunks_exact(size_of::<Logprobs>())
            .take(self.logprobs);
        logprobs.nth(index).map(bytemuck::pod_read_unaligned)
    }
}

/// Writes tokens of a sequence to the history from position `start` on.
pub(super) fn write_history(
    model: &mut LinkedTables,
    sequence: u32,
    start: usize,
    tokens: &[u32],
) -> Result<()> {
    let offset = history_offset(model, sequence, start);
    let bytes = bytemuck::cast_slice(tokens);
    model.executor.write(BufferId::History, offset, bytes)
}

/// Returns the offset of a position in the history buffer, in bytes.
fn history_offset(model: &LinkedTables, sequence: u32, position: usize) -> usize {
    let first = sequence as usize * model.facts.context as usize;
    (first + position) * size_of::<u32>()
}

/// Writes the sampler of a sequence.
pub(super) fn write_sampler(
    model: &mut LinkedTables,
    sequence: u32,
    sampling: &SamplingRequest,
) -> Result<()> {
    let sequence = sequence as usize;
    let bytes = bytemuck::bytes_of(&sampling.sampler);
    let offset = sequence * size_of::<Sampler>();
    model.executor.write(BufferId::Samplers, offset, bytes)?;
    let bytes = bytemuck::cast_slice(&sampling.logit_biases.biases);
    let offset = sequence * BIASES_MAX as usize * size_of::<Bias>();
    write_optional(model, BufferId::Biases, offset, bytes)?;
    let bytes = bytemuck::cast_slice(&sampling.logit_biases.breakers);
    write_optional(model, BufferId::Breakers, sequence * bytes.len(), bytes)
}

/// Reads back the Mirostat state of a sequence, which is needed if it continues in another slot.
pub(super) fn read_mirostat(
    model: &mut LinkedTables,
    sequence: u32,
    sampling: &mut SamplingRequest,
) -> Result<()> {
    if sampling.sampler.mirostat_tau > 0.0 {
        let mut current = Sampler::default();
        let offset = sequence as usize * size_of::<Sampler>();
        let bytes = bytemuck::bytes_of_mut(&mut current);
        model.executor.read(BufferId::Samplers, offset, bytes)?;
        sampling.sampler.mirostat_mu = current.mirostat_mu;
    }
    Ok(())
}

/// Writes to a buffer that only exists if the model was loaded with the sampler that reads it.
fn write_optional(
    model: &mut LinkedTables,
    buffer: BufferId,
    offset: usize,
    bytes: &[u8],
) -> Result<()> {
    let mut slots = model.tables.iter().flat_map(|table| &table.slots);
    if bytes.is_empty() || !slots.any(|slot| slot.buffer == buffer) {
        return Ok(());
    }
    model.executor.write(buffer, offset, bytes)
}

/// Returns the number of columns of the rows that a table outputs.
pub(super) fn output_width(table: &Table) -> usize {
    let mut slots = table.slots.iter();
    let output = slots.find(|slot| slot.buffer == BufferId::Hidden);
    output.map_or(0, |slot| slot.cols as usize)
}

/// Allocates a zeroed vector.
pub(super) fn zeroed(numbers: usize) -> Result<Vec<f32>> {
    filled(numbers, 0.0)
}

/// Allocates a vector of `count` equal values.
///
/// # Errors
///
/// `Memory`.
pub(super) fn filled<T: Clone>(count: usize, value: T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let failed = |e| {
        let message = format_args!("out of memory: cannot allocate {count} numbers");
        Error::new(ErrorKind::Memory, message).caused_by(e)
    };
    values.try_reserve_exact(count).map_err(failed)?;
    values.resize(count, value);
    Ok(values)
}
