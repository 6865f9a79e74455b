//! Prefill: many tokens in few passes, in chunks.

use super::Session;
use super::rows::{Stretch, append, pass, wait};
use super::session::SEQUENCE;
use crate::error::{ErrorKind, Result, bail};
use crate::model::{SCORE_TOKENS, TableId};
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
        // The passes below write the cache anew, with the same numbers but for what kernels of few
        // tokens round otherwise, and leave the logits that the next token is picked from alone.
        self.feed(&mut |_, _| {})?;
        let score = self.model.step(SCORE_TOKENS as usize)?;
        let table = &self.model.tables[score];
        let (rows, end) = (table.tokens as usize, table.body().end);
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
        append(&self.model, &mut self.tokens, tokens)
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
            wait(&mut self.model)?;
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
        let stretch = Stretch {
            sequence: SEQUENCE,
            start,
            tokens: &self.tokens[start..start + live],
        };
        pass(&mut self.model, &mut self.state, (table, 0..end), &stretch)
    }
}
