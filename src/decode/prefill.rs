//! Prefill: many tokens in few passes, in chunks.

use super::Session;
use crate::error::{Result, bail};
use crate::exec::state::{Row, State};
use crate::model::TableId;
use crate::op::table::Place;

impl Session {
    /// Appends tokens to the sequence and runs them through the model, so that the next token
    /// can be picked. `progress` hears how many of how many tokens are done.
    ///
    /// # Errors
    ///
    /// `TooLarge` where they do not fit the context, `Argument` for an id outside the
    /// vocabulary; nothing is appended then. `Cancelled` after [`Cancel::cancel`](super::Cancel),
    /// with the chunks that were done.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.append(tokens)?;
        self.begin()?;
        self.feed(progress)
    }

    /// Appends tokens and writes the logits after each of them into `out`,
    /// `[tokens, vocab]`.
    ///
    /// # Errors
    ///
    /// As [`Session::prefill`], and `Argument` for a slice of another length.
    pub fn score(&mut self, tokens: &[u32], out: &mut [f32]) -> Result<()> {
        let vocab = self.model.facts.vocab as usize;
        if out.len() != tokens.len() * vocab {
            bail!(
                Argument,
                "logits of {} tokens are {} numbers, not {}",
                tokens.len(),
                tokens.len() * vocab,
                out.len()
            );
        }
        let before = self.tokens.len();
        if before > 0 {
            self.feed(&mut |_, _| {})?;
        }
        self.append(tokens)?;
        let table = &self.model.tables[TableId::Score as usize];
        let (rows, end) = (table.tokens as usize, table.cmds.len());
        let mut done = before;
        for chunk in out.chunks_mut(rows * vocab) {
            let live = chunk.len() / vocab;
            self.pass(TableId::Score, done, live, end)?;
            self.model
                .executor
                .read(Place::Scores, 0, bytemuck::cast_slice_mut(chunk))?;
            done += live;
        }
        // The head of this table leaves the last row's logits elsewhere: feed that row again.
        self.fed = done - usize::from(done > before);
        Ok(())
    }

    /// Checks tokens and appends them.
    fn append(&mut self, tokens: &[u32]) -> Result<()> {
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

    /// Runs every token that the cache lacks through the batch table. Only the last chunk goes
    /// on to the head.
    pub(super) fn feed(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let (from, total) = (self.fed, self.tokens.len());
        let rows = self.batch_rows();
        let table = &self.model.tables[TableId::Batch as usize];
        let (head, end) = (table.head, table.cmds.len());
        while self.fed < total {
            if self.cancelled() {
                self.truncate(self.fed);
                bail!(Cancelled, "cancelled after {} of {total} tokens", self.fed);
            }
            let live = rows.min(total - self.fed);
            let last = self.fed + live == total;
            self.pass(
                TableId::Batch,
                self.fed,
                live,
                if last { end } else { head },
            )?;
            self.fed += live;
            progress(self.fed - from, total - from);
        }
        Ok(())
    }

    /// One pass of `live` tokens of the sequence, from `start`, through the first `end` commands.
    fn pass(&mut self, table: TableId, start: usize, live: usize, end: usize) -> Result<()> {
        let row = |at: usize| Row {
            token: self.tokens[at],
            position: u32::try_from(at).expect("a position is under the context"),
        };
        let rows: Vec<Row> = (start..start + live).map(row).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&self.tokens[start..start + live]);
        self.model
            .executor
            .write(Place::History, start * size_of::<u32>(), bytes)?;
        let live = u32::try_from(live).expect("a chunk is small");
        let context = self.model.facts.context;
        let state = State {
            live,
            context,
            ..State::default()
        };
        self.write_state(&state, &rows)?;
        self.model.executor.run(table as usize, 0..end, 1)
    }
}
