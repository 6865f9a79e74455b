//! What sessions and batches share: tokens of sequences to the device, and picked ones back.

use super::sampling_request::{LogProbsMode, SamplingRequest};
use crate::error::Result;
use crate::exec::state::{Bias, LogProbs, ROWS_OFFSET, Row, Sampler, State, state_bytes};
use crate::exec::{COPY_BYTES_MAX, Copying, Span};
use crate::model::{LinkedTables, STEP_ROWS_MAX};
use crate::op::table::{BIASES_MAX, BufferId, Cmds, SamplingStage};

/// Tokens that stand one behind the other in a sequence.
pub(super) struct TokenRun<'a> {
    /// Whose they are.
    pub(super) sequence: u32,
    /// The position of the first.
    pub(super) start: usize,
    pub(super) tokens: &'a [u32],
}

/// One pass of tokens through commands of a table. `state` is as for [`write_rows`].
pub(super) fn pass(
    model: &mut LinkedTables,
    state: &mut [u8],
    (table, cmds): (usize, Cmds),
    token_run: &TokenRun<'_>,
) -> Result<()> {
    let &TokenRun {
        sequence,
        start,
        tokens,
    } = token_run;
    write_history(model, sequence, start, tokens)?;
    let first = u32::try_from(start).expect("positions are under the context");
    let rows = (first..).zip(tokens).map(|(position, &token)| Row {
        token,
        position,
        sequence,
        ..Row::default()
    });
    write_rows(model, state, rows)?;
    model.executor.run(table, cmds, 1)
}

/// Waits until the device has done what it was given: an error is then of just that.
pub(super) fn wait(model: &mut LinkedTables) -> Result<()> {
    let mut live = [0; size_of::<u32>()];
    model.executor.read(BufferId::State, 0, &mut live)
}

/// Writes the step state of a pass of these rows, and counts them. `state` is the host's copy,
/// with room for as many as the widest table has.
pub(super) fn write_rows(
    model: &mut LinkedTables,
    state: &mut [u8],
    rows: impl Iterator<Item = Row>,
) -> Result<usize> {
    let (head_bytes, room) = state.split_at_mut(ROWS_OFFSET);
    let mut live = 0;
    for (out, row) in room.chunks_exact_mut(size_of::<Row>()).zip(rows) {
        out.copy_from_slice(bytemuck::bytes_of(&row));
        live += 1;
    }
    head_bytes.copy_from_slice(bytemuck::bytes_of(&State {
        live: u32::try_from(live).expect("a table has fewer rows"),
        context: model.facts.context,
        ..State::default()
    }));
    let bytes = &state[..state_bytes(live)];
    model.executor.write(BufferId::State, 0, bytes)?;
    Ok(live)
}

/// Reads what a pass of `count` tokens of one sequence from position `start` on has picked behind each,
/// and each row's `done`.
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
        // Those that are done have changed places.
        let row: Row = bytemuck::pod_read_unaligned(row);
        sampled[row.position as usize - start - 1] = (row.token, row.done);
    }
    Ok(sampled)
}

/// Steps that are submitted together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission {
    pub(super) stage: SamplingStage,
    /// How many: a place has the probabilities of one step, so that those that tell them are alone.
    pub(super) steps: u32,
    pub(super) log_probs: LogProbsMode,
}

/// What a chain picks for the rows of the step state, on its way here.
pub(super) struct PendingTokens {
    copying: Copying,
    rows: usize,
    /// Tokens that come for each.
    steps: usize,
    /// Probabilities that come: of each row, or none.
    log_probs: usize,
}

/// Tokens of one chain at most: those of all its rows are one copy.
pub(super) const BURST_MAX: u32 = 60;
const _: () = assert!(token_bytes(STEP_ROWS_MAX as usize, BURST_MAX as usize) <= COPY_BYTES_MAX);
const _: () = assert!(bytes_with_log_probs(STEP_ROWS_MAX as usize) <= COPY_BYTES_MAX);

/// Bytes of rows and of so many tokens for each.
const fn token_bytes(rows: usize, steps: usize) -> usize {
    rows * (size_of::<Row>() + steps * size_of::<u32>())
}

/// Bytes of rows and of a token for each, with its probabilities.
const fn bytes_with_log_probs(rows: usize) -> usize {
    token_bytes(rows, 1) + rows * size_of::<LogProbs>()
}

impl PendingTokens {
    /// Has them copied as they are once the chain is done that was submitted last. It picks so many
    /// tokens at most for each of its sequences, which have so many in front of it.
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
        let mut log_probs = 0;
        let sequences = sequences.filter(|_| submission.log_probs == LogProbsMode::On);
        for (span, (sequence, _)) in spans[1 + rows..].iter_mut().zip(sequences) {
            let bytes = size_of::<LogProbs>();
            *span = Span::new(BufferId::LogProbs, sequence as usize * bytes, bytes);
            log_probs += 1;
        }
        Ok(Self {
            copying: model.executor.copy(&spans[..=rows + log_probs])?,
            rows,
            steps,
            log_probs,
        })
    }

    /// Waits for them.
    pub(super) fn wait(self, model: &mut LinkedTables) -> Result<SampledTokens> {
        let Self {
            copying,
            rows,
            steps,
            log_probs,
        } = self;
        let mut bytes = [0; COPY_BYTES_MAX];
        let copied = token_bytes(rows, steps) + log_probs * size_of::<LogProbs>();
        let copied = &mut bytes[..copied];
        model.executor.take(copying, copied)?;
        Ok(SampledTokens {
            bytes,
            rows,
            steps,
            log_probs,
            context: model.facts.context as usize,
        })
    }
}

/// The position of the first token that comes of a sequence: as many come of one that is about to
/// be full.
fn first_copied(first: usize, context: usize, steps: usize) -> usize {
    first.min(context - steps)
}

/// What a chain picked.
pub(super) struct SampledTokens {
    bytes: [u8; COPY_BYTES_MAX],
    rows: usize,
    steps: usize,
    log_probs: usize,
    context: usize,
}

impl SampledTokens {
    /// Hands out what was picked for a sequence of `first` tokens, the `at`th of those that were asked
    /// for. Returns its row's `done`.
    pub(super) fn for_each_token(
        &self,
        at: usize,
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
        let row = row.expect("rows change places and no more");
        let position = row.position as usize;
        let skipped = first - first_copied(first, self.context, self.steps);
        let sampled = sampled.chunks_exact(size_of::<u32>());
        let sampled = sampled.skip(at * self.steps + skipped);
        // A chain behind one that ended the sequence has picked nothing.
        let count = (position.min(self.context - 1) + 1).saturating_sub(first);
        sampled
            .take(count)
            .for_each(|token| each(bytemuck::pod_read_unaligned(token)));
        if position == self.context && first <= self.context {
            // The history has no place for it.
            each(row.token);
        }
        row.done
    }

    /// The probabilities that the `at`th of the sequences was told, where any were.
    pub(super) fn log_probs(&self, at: usize) -> Option<LogProbs> {
        let log_probs = &self.bytes[token_bytes(self.rows, self.steps)..];
        let mut log_probs = log_probs
            .chunks_exact(size_of::<LogProbs>())
            .take(self.log_probs);
        log_probs.nth(at).map(bytemuck::pod_read_unaligned)
    }
}

/// Writes tokens of a sequence from this position on.
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

/// Where the token of a position lies in the history, in bytes.
fn history_offset(model: &LinkedTables, sequence: u32, position: usize) -> usize {
    let first = sequence as usize * model.facts.context as usize;
    (first + position) * size_of::<u32>()
}

/// Writes how a sequence picks its tokens.
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
    write_some(model, BufferId::Biases, offset, bytes)?;
    let bytes = bytemuck::cast_slice(&sampling.logit_biases.breakers);
    write_some(model, BufferId::Breakers, sequence * bytes.len(), bytes)
}

/// Takes back what Mirostat has learned of a sequence, which goes on in another seat.
pub(super) fn read_mirostat(
    model: &mut LinkedTables,
    sequence: u32,
    sampling: &mut SamplingRequest,
) -> Result<()> {
    if sampling.sampler.mirostat_tau > 0.0 {
        let mut live = Sampler::default();
        let offset = sequence as usize * size_of::<Sampler>();
        let bytes = bytemuck::bytes_of_mut(&mut live);
        model.executor.read(BufferId::Samplers, offset, bytes)?;
        sampling.sampler.mirostat_mu = live.mirostat_mu;
    }
    Ok(())
}

/// Writes to a place that tables have which were loaded with the sampler that reads it.
fn write_some(
    model: &mut LinkedTables,
    place: BufferId,
    offset: usize,
    bytes: &[u8],
) -> Result<()> {
    let mut slots = model.tables.iter().flat_map(|table| &table.slots);
    if bytes.is_empty() || !slots.any(|slot| slot.place == place) {
        return Ok(());
    }
    model.executor.write(place, offset, bytes)
}
