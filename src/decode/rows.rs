//! What sessions and batches share: tokens of sequences to the device, and picked ones back.

use crate::error::{Result, bail};
use crate::exec::state::{ROWS_OFFSET, Row, State, state_bytes};
use crate::exec::{COPY_BYTES_MAX, Copying, Span};
use crate::model::{Model, TableId};
use crate::op::table::Place;
use std::ops::Range;

/// Tokens that stand one behind the other in a sequence.
pub(super) struct Stretch<'a> {
    /// Whose they are.
    pub(super) sequence: u32,
    /// The position of the first.
    pub(super) start: usize,
    pub(super) tokens: &'a [u32],
}

/// Checks tokens and appends them to a sequence.
pub(super) fn append(model: &Model, sequence: &mut Vec<u32>, tokens: &[u32]) -> Result<()> {
    model.at(TableId::Batch)?;
    let facts = &model.facts;
    if let Some(bad) = tokens.iter().find(|t| **t >= facts.vocab) {
        bail!(
            Argument,
            "token {bad} is outside the vocabulary of {}",
            facts.vocab
        );
    }
    let wanted = sequence.len() + tokens.len();
    if wanted > facts.context as usize {
        bail!(
            TooLarge,
            "{wanted} tokens do not fit the context of {} positions",
            facts.context
        );
    }
    sequence.extend_from_slice(tokens);
    Ok(())
}

/// One pass of tokens through commands of a table. `state` is as for [`write_rows`].
pub(super) fn pass(
    model: &mut Model,
    state: &mut [u8],
    (table, cmds): (usize, Range<usize>),
    stretch: &Stretch<'_>,
) -> Result<()> {
    let &Stretch {
        sequence,
        start,
        tokens,
    } = stretch;
    let offset = history_offset(model, sequence, start);
    let history = bytemuck::cast_slice(tokens);
    model.executor.write(Place::History, offset, history)?;
    let first = u32::try_from(start).expect("positions are under the context");
    let rows = (first..).zip(tokens).map(|(position, &token)| Row {
        token,
        position,
        sequence,
        ..Row::default()
    });
    write_rows(model, state, State::default(), rows)?;
    model.executor.run(table, cmds, 1)
}

/// Waits until the device has done what it was given: an error is then of just that.
pub(super) fn wait(model: &mut Model) -> Result<()> {
    let mut live = [0; size_of::<u32>()];
    model.executor.read(Place::State, 0, &mut live)
}

/// Writes the step state of a pass of these rows, and counts them. `state` is the host's copy,
/// with room for as many as the widest table has.
pub(super) fn write_rows(
    model: &mut Model,
    state: &mut [u8],
    head: State,
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
        ..head
    }));
    let bytes = &state[..state_bytes(live)];
    model.executor.write(Place::State, 0, bytes)?;
    Ok(live)
}

/// Reads back the first `count` rows of the step state.
pub(super) fn read_rows<'a>(
    model: &mut Model,
    state: &'a mut [u8],
    count: usize,
) -> Result<impl Iterator<Item = Row> + use<'a>> {
    let bytes = &mut state[..state_bytes(count)];
    model.executor.read(Place::State, 0, bytes)?;
    let rows = bytes[ROWS_OFFSET..].chunks_exact(size_of::<Row>());
    Ok(rows.map(bytemuck::pod_read_unaligned))
}

/// Appends what was picked for a row to its sequence, which had the row's first token last.
pub(super) fn collect(model: &mut Model, row: Row, sequence: &mut Vec<u32>) -> Result<()> {
    let context = model.facts.context as usize;
    let (before, position) = (sequence.len(), row.position as usize);
    sequence.resize(position.min(context - 1) + 1, 0);
    let offset = history_offset(model, row.sequence, before);
    let new = bytemuck::cast_slice_mut(&mut sequence[before..]);
    model.executor.read(Place::History, offset, new)?;
    if position == context {
        // The history has no place for it.
        sequence.push(row.token);
    }
    Ok(())
}

/// What a chain picks for a sequence that has the first row of the step state, on its way here.
pub(super) struct Picks {
    copying: Copying,
    /// Tokens of the sequence in front of it.
    first: usize,
    /// Those that come, at most; the context has no place for a last one beyond.
    most: usize,
}

/// Tokens of one chain at most: they and the row are one copy.
pub(super) const PICKS_MAX: u32 = 252;
const _: () = assert!(PICKS_MAX as usize * size_of::<u32>() + size_of::<Row>() <= COPY_BYTES_MAX);

impl Picks {
    /// Has them copied as they are once the chain is done that was submitted last, which had so many
    /// tokens in front of it and picks `times` at most.
    pub(super) fn ask(model: &mut Model, sequence: u32, first: usize, times: u32) -> Result<Self> {
        let context = model.facts.context as usize;
        let most = (times as usize).min(context - first);
        let offset = history_offset(model, sequence, first);
        let spans = [
            Span::new(Place::State, ROWS_OFFSET, size_of::<Row>()),
            Span::new(Place::History, offset, most * size_of::<u32>()),
        ];
        let some = if most == 0 { &spans[..1] } else { &spans };
        Ok(Self {
            copying: model.executor.copy(some)?,
            first,
            most,
        })
    }

    /// Waits for them and appends them to the sequence. Returns the row's `done`.
    pub(super) fn take(self, model: &mut Model, sequence: &mut Vec<u32>) -> Result<u32> {
        let mut bytes = [0; COPY_BYTES_MAX];
        let copied = &mut bytes[..size_of::<Row>() + self.most * size_of::<u32>()];
        model.executor.take(self.copying, copied)?;
        let (row, picked) = copied.split_at(size_of::<Row>());
        let row: Row = bytemuck::pod_read_unaligned(row);
        let context = model.facts.context as usize;
        let position = row.position as usize;
        // A chain behind one that ended the sequence has picked nothing.
        let count = (position.min(context - 1) + 1).saturating_sub(self.first);
        let picked = picked.chunks_exact(size_of::<u32>()).take(count);
        sequence.extend(picked.map(bytemuck::pod_read_unaligned::<u32>));
        if position == context {
            // The history has no place for it.
            sequence.push(row.token);
        }
        Ok(row.done)
    }
}

/// Where the token of a position lies in the history, in bytes.
fn history_offset(model: &Model, sequence: u32, position: usize) -> usize {
    let first = sequence as usize * model.facts.context as usize;
    (first + position) * size_of::<u32>()
}

/// Writes the tokens that end a sequence into the step state, as many as have room there.
pub(super) fn write_stops(state: &mut State, stops: &[u32]) {
    let count = stops.len().min(state.stops.len());
    state.stops[..count].copy_from_slice(&stops[..count]);
    state.stop_count = u32::try_from(count).expect("a small array");
}
