//! Prefill: many tokens in few passes, in chunks.

use super::Session;
use crate::error::{ErrorKind, Result, bail};
use crate::exec::state::{ROWS_OFFSET, Row, State, state_bytes};
use crate::model::{Model, TableId};
use crate::op::table::Place;

impl Session {
    /// Appends tokens to the sequence and runs them through the model, so that the next token
    /// can be picked. `progress` hears how many of how many tokens are done.
    ///
    /// # Errors
    ///
    /// `TooLarge` where they do not fit the context, `Argument` for an id outside the
    /// vocabulary; nothing is appended then. `Cancelled` after [`Cancel::cancel`](super::Cancel):
    /// of these tokens, those of the chunks that were done stay.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let before = self.tokens.len();
        self.append(tokens)?;
        self.check_sequence()?;
        let done = self.feed(progress);
        if matches!(&done, Err(e) if e.kind() == ErrorKind::Cancelled) {
            // A shift or a step back may have left earlier tokens to be computed, too: they stay.
            self.truncate(before.max(self.fed));
        }
        done
    }

    /// The logits after every token of the sequence, `[tokens, vocab]`.
    ///
    /// # Errors
    ///
    /// `State` for an empty sequence, `Argument` for a slice of another length.
    pub fn logits_all(&mut self, out: &mut [f32]) -> Result<()> {
        self.check_sequence()?;
        let (vocab, total) = (self.model.facts.vocab as usize, self.tokens.len());
        if out.len() != total * vocab {
            bail!(
                Argument,
                "logits of {total} tokens are {} numbers, not {}",
                total * vocab,
                out.len()
            );
        }
        // The passes below write the cache anew, with the same numbers, and leave the logits
        // that the next token is picked from alone.
        self.feed(&mut |_, _| {})?;
        let score = self.model.at(TableId::Score)?;
        let table = &self.model.tables[score];
        let (rows, end) = (table.tokens as usize, table.cmds.len());
        for (at, chunk) in out.chunks_mut(rows * vocab).enumerate() {
            if self.cancelled() {
                // Rings of layers with a window hold what was computed last.
                self.rewind(0);
                self.hold(at * rows);
                bail!(Cancelled, "cancelled after {} of {total} tokens", at * rows);
            }
            let live = chunk.len() / vocab;
            self.pass(score, at * rows, live, end)?;
            self.model
                .executor
                .read(Place::Scores, 0, bytemuck::cast_slice_mut(chunk))?;
        }
        Ok(())
    }

    /// Checks tokens and appends them.
    pub(super) fn append(&mut self, tokens: &[u32]) -> Result<()> {
        self.model.at(TableId::Batch)?;
        let facts = &self.model.facts;
        if let Some(bad) = tokens.iter().find(|t| **t >= facts.vocab) {
            bail!(
                Argument,
                "token {bad} is outside the vocabulary of {}",
                facts.vocab
            );
        }
        let wanted = self.tokens.len() + tokens.len();
        if wanted > facts.context as usize {
            bail!(
                TooLarge,
                "{wanted} tokens do not fit the context of {} positions",
                facts.context
            );
        }
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Runs what the cache lacks but for the last token, which the next submission takes along.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        if self.fed + 1 < self.tokens.len() {
            self.feed(&mut |_, _| {})?;
        }
        Ok(())
    }

    /// Runs every token that the cache lacks through the batch table. Only the last chunk goes
    /// on to the head.
    pub(super) fn feed(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let (from, total) = (self.fed, self.tokens.len());
        let batch = self.model.at(TableId::Batch)?;
        let table = &self.model.tables[batch];
        let rows = table.tokens as usize;
        let (head, end) = (table.head, table.cmds.len());
        while self.fed < total {
            if self.cancelled() {
                bail!(Cancelled, "cancelled after {} of {total} tokens", self.fed);
            }
            let live = rows.min(total - self.fed);
            let last = self.fed + live == total;
            self.pass(batch, self.fed, live, if last { end } else { head })?;
            // A device works on while its host goes on: wait, so that progress is true and an
            // error is this chunk's.
            let mut state = [0; size_of::<u32>()];
            self.model.executor.read(Place::State, 0, &mut state)?;
            self.hold(self.fed + live);
            progress(self.fed - from, total - from);
        }
        Ok(())
    }

    /// One pass of `live` tokens of the sequence, from `start`, through the first `end` commands.
    pub(super) fn pass(
        &mut self,
        table: usize,
        start: usize,
        live: usize,
        end: usize,
    ) -> Result<()> {
        let tokens = &self.tokens[start..start + live];
        let history = bytemuck::cast_slice(tokens);
        self.model
            .executor
            .write(Place::History, start * size_of::<u32>(), history)?;
        let first = u32::try_from(start).expect("positions are under the context");
        let rows = (first..).zip(tokens);
        let rows = rows.map(|(position, &token)| Row { token, position });
        write_rows(&mut self.model, &mut self.state, rows)?;
        self.model.executor.run(table, 0..end, 1)
    }
}

/// Writes the step state of a pass of these rows, and counts them. `state` is the host's copy,
/// with room for as many as the widest table has.
pub(super) fn write_rows(
    model: &mut Model,
    state: &mut [u8],
    rows: impl Iterator<Item = Row>,
) -> Result<usize> {
    let (head, room) = state.split_at_mut(ROWS_OFFSET);
    let mut live = 0;
    for (out, row) in room.chunks_exact_mut(size_of::<Row>()).zip(rows) {
        out.copy_from_slice(bytemuck::bytes_of(&row));
        live += 1;
    }
    head.copy_from_slice(bytemuck::bytes_of(&State {
        live: u32::try_from(live).expect("a table has fewer rows"),
        context: model.facts.context,
        ..State::default()
    }));
    let bytes = &state[..state_bytes(live)];
    model.executor.write(Place::State, 0, bytes)?;
    Ok(live)
}
