//! Passes of draft tokens: by the drafting head of the model, and their check.

use super::engine::{Engine, row_of};
use super::request::Request;
use super::rows::{
    BURST_MAX, PendingTokens, Submission, TokenRun, pass, read_sampled, wait, write_rows,
};
use super::sampling_request::LogprobsMode;
use crate::error::Result;
use crate::model::{STEP_ROWS_MAX, TableId};

impl Engine {
    /// Computes the keys and values of the drafting head for the tokens of a request from `done` up to `end`, which must
    /// have passed through the model. Steps do not compute them, because most requests draft at few positions.
    pub(super) fn compute_head_keys(
        &mut self,
        request: &Request,
        done: &mut usize,
        end: usize,
    ) -> Result<()> {
        if self.linked.facts.drafting_head.is_none() {
            return Ok(());
        }
        let table = self.tables.index(TableId::HeadKeys)?;
        let rows = self.tables.table(table).tokens as usize;
        while *done < end {
            let run = *done..end.min(*done + rows);
            let token_run = TokenRun {
                sequence: request.slot,
                start: run.start,
                tokens: &request.sequence.tokens()[run.clone()],
            };
            let cmds = self.tables.table(table).body().into();
            pass(&mut self.linked, &mut self.state, table, cmds, &token_run)?;
            *done = run.end;
        }
        Ok(())
    }

    /// Computes the keys and values of the drafting head for the tokens before the first sampled one of a request, and
    /// waits for them. `head_keys` as in the request.
    pub(super) fn compute_prompt_head_keys(
        &mut self,
        request: &Request,
        head_keys: &mut usize,
    ) -> Result<()> {
        let prompt = request.sequence.len() - request.sampled;
        let prompt = prompt.min(request.cached);
        if *head_keys < prompt {
            self.compute_head_keys(request, head_keys, prompt)?;
            wait(&mut self.linked)?;
        }
        Ok(())
    }

    /// Appends at most `count` tokens that the drafting head of the model samples after the last token of a request.
    /// `head_keys` as in the request.
    pub(super) fn draft(
        &mut self,
        request: &Request,
        head_keys: &mut usize,
        count: usize,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let (start, stage) = (request.cached, request.stage());
        self.make_writable(request.slot, start, start + count)?;
        // The head has no recurrent layers. The check starts at the same position, which may begin a block of the
        // state.
        self.kv.settle_state(request.slot as usize, start);
        self.compute_head_keys(request, head_keys, start)?;
        // Those of further draft tokens depend on the head, not on the model.
        *head_keys = start + 1;
        let table = self.tables.index(TableId::Draft)?;
        let row = [row_of(request, start)].into_iter();
        write_rows(&mut self.linked, &mut self.state, row)?;
        self.logits_of.clear();
        let cmds = self.tables.table(table).pass(stage);
        let steps = u32::try_from(count).map_or(BURST_MAX, |count| count.min(BURST_MAX));
        self.linked.executor.run(table, cmds, steps)?;
        let submission = Submission {
            stage,
            steps,
            logprobs: LogprobsMode::Off,
        };
        let sequences = [(request.slot, start + 1)].into_iter();
        let pending = PendingTokens::request(&mut self.linked, sequences, submission)?;
        let sampled = pending.wait(&mut self.linked)?;
        sampled.for_each_token(0, request.slot, start + 1, |token| out.push(token));
        Ok(())
    }

    /// Runs one pass over `tokens`: the last token of a request and draft tokens. Returns for each
    /// of them the token sampled after it and the `done` of its row.
    pub(super) fn check_draft(
        &mut self,
        request: &Request,
        tokens: &[u32],
    ) -> Result<[(u32, u32); STEP_ROWS_MAX as usize]> {
        let start = request.cached;
        let stage = request.stage();
        self.make_writable(request.slot, start, start + tokens.len())?;
        let tables = self.tables_of(request);
        let table = tables.with_rows(tokens.len()).table;
        let token_run = TokenRun {
            sequence: request.slot,
            start,
            tokens,
        };
        let cmds = tables.table(table).pass(stage);
        pass(&mut self.linked, &mut self.state, table, cmds, &token_run)?;
        read_sampled(&mut self.linked, tokens.len(), start)
    }
}
