//! Passes of a speech model for one window: encoder, prompt, alignment, and the rows of its beams in a
//! step.

use super::pages::BeamPages;
use crate::cancel::Cancel;
use crate::decode::rows::{write_history, write_rows, zeroed};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::state::{ROWS_OFFSET, RUNNING, sampler_off, state_bytes};
use crate::model::{BEAMS_MAX, LinkedTables, SpeechModel, TableId, page_layout};
use crate::op::pages::PageKind;
use crate::op::params::{Logprobs, Row, Sampler, State};
use crate::op::table::{BufferId, SamplingStage};
use crate::speech::probability;
use bytemuck::Zeroable;
use std::ops::Range;
use std::sync::Arc;

/// How the tokens of a window are selected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// 0: the most likely token; otherwise a random one.
    pub(super) temperature: f32,
    /// Seed of the first beam; later ones count up.
    pub(super) seed: u64,
    /// Number of timestamps that may come first; 0: no timestamps.
    pub(super) initial_timestamps: u32,
}

/// Device and state of the decoding of windows.
#[derive(Debug)]
pub(super) struct Passes {
    pub(super) speech: Arc<SpeechModel>,
    encode: usize,
    batch: usize,
    align: usize,
    /// The step table with one row.
    step: usize,
    /// Sequence of the first beam in the KV cache.
    first: usize,
    state: Vec<u8>,
    pages: BeamPages,
    /// Tokens of each beam, prompt included.
    pub(super) beams: Vec<Vec<u32>>,
    /// The next tokens, while beams are reordered.
    next: Vec<Vec<u32>>,
    /// Results of the last step.
    pub(super) logprobs: Vec<Logprobs>,
    logits: Vec<f32>,
    cancel: Cancel,
}

impl Passes {
    /// Prepares the decoding of windows with up to `beams` beams.
    ///
    /// # Errors
    ///
    /// `State` if the model is no speech model.
    pub(super) fn new(linked: &LinkedTables, beams: usize, cancel: Cancel) -> Result<Self> {
        let encode = linked.table_index(TableId::Encode)?;
        let Some(speech) = linked.speech.clone() else {
            return Err(Error::new(ErrorKind::State, "the model is no speech model"));
        };
        let rows = linked.tables.iter().map(|table| table.tokens).max();
        let context = linked.facts.context as usize;
        let tokens = || Vec::with_capacity(context + 1);
        Ok(Self {
            encode,
            batch: linked.table_index(TableId::Batch)?,
            align: linked.table_index(TableId::Align)?,
            step: linked.table_index(TableId::Step)?,
            first: 0,
            state: vec![0; state_bytes(rows.unwrap_or(1) as usize)],
            pages: BeamPages::new(linked.pages, linked.facts.sequences),
            beams: (0..beams).map(|_| tokens()).collect(),
            next: (0..beams).map(|_| tokens()).collect(),
            logprobs: vec![Logprobs::zeroed(); beams],
            logits: vec![0.0; linked.facts.vocab as usize],
            speech,
            cancel,
        })
    }

    /// Moves to another window of the KV cache, whose content is undefined.
    pub(super) fn enter(&mut self, window: u32) {
        self.first = (window * BEAMS_MAX) as usize;
        self.pages.enter(window);
    }

    /// Computes the keys and values of cross-attention from the spectrogram of a window.
    ///
    /// # Errors
    ///
    /// `Cancelled` between two layers, and errors of the device.
    pub(super) fn encode(&mut self, linked: &mut LinkedTables, mel: &[f32]) -> Result<()> {
        self.pages.clear();
        self.write_pages(linked)?;
        let positions = self.speech.context;
        let sequence = self.sequence(0);
        // The rows after the output are only those of the first convolution.
        let rows = (0..2 * positions).map(|row| Row {
            position: row % positions,
            sequence,
            ..Row::default()
        });
        let (header, rows_bytes) = self.state.split_at_mut(ROWS_OFFSET);
        for (out, row) in rows_bytes.chunks_exact_mut(size_of::<Row>()).zip(rows) {
            out.copy_from_slice(bytemuck::bytes_of(&row));
        }
        header.copy_from_slice(bytemuck::bytes_of(&State {
            active_rows: 2 * positions,
            context: positions,
            ..State::default()
        }));
        linked.executor.write(
            BufferId::State,
            0,
            &self.state[..state_bytes(2 * positions as usize)],
        )?;
        linked
            .executor
            .write(BufferId::Mel, 0, bytemuck::cast_slice(mel))?;
        let tables = Arc::clone(&linked.tables);
        let table = &tables[self.encode];
        let ends = table.layers.iter().map(|layer| layer.cmd);
        let mut start = 0;
        for end in ends.chain([table.cmds.len()]) {
            self.check_cancelled()?;
            linked.executor.run(self.encode, (start..end).into(), 1)?;
            start = end;
        }
        Ok(())
    }

    /// Reads the output of the encoder, `[context, dim]`.
    pub(super) fn read_encoder(&self, linked: &mut LinkedTables, out: &mut [f32]) -> Result<()> {
        linked
            .executor
            .read(BufferId::Hidden, 0, bytemuck::cast_slice_mut(out))
    }

    /// Starts one beam with a prompt and computes it, so that [`Self::sample_first`] can follow.
    /// Returns the logits after the token at position `sot`.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and errors of the device.
    pub(super) fn prompt(
        &mut self,
        linked: &mut LinkedTables,
        prompt: &[u32],
        sot: usize,
    ) -> Result<&[f32]> {
        self.begin_sequence(linked, prompt)?;
        self.compute(linked, 0..sot + 1)?;
        let bytes = bytemuck::cast_slice_mut(&mut self.logits);
        linked.executor.read(BufferId::Logits, 0, bytes)?;
        self.compute(linked, sot + 1..prompt.len())?;
        Ok(&self.logits)
    }

    /// Computes the logits after each of `tokens`, one by one.
    pub(super) fn score(
        &mut self,
        linked: &mut LinkedTables,
        tokens: &[u32],
        out: &mut [f32],
    ) -> Result<()> {
        self.begin_sequence(linked, tokens)?;
        for (at, out) in out.chunks_exact_mut(self.logits.len()).enumerate() {
            self.compute(linked, at..at + 1)?;
            linked
                .executor
                .read(BufferId::Logits, 0, bytemuck::cast_slice_mut(out))?;
        }
        Ok(())
    }

    /// Computes `tokens` and returns the scores of the alignment heads for the first `columns`
    /// positions, `[heads, tokens, columns]`, and the probability of each next token among the tokens
    /// below `eot`.
    ///
    /// # Errors
    ///
    /// `Memory`, `Cancelled`, and errors of the device.
    pub(super) fn align(
        &mut self,
        linked: &mut LinkedTables,
        tokens: &[u32],
        columns: usize,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        self.begin_sequence(linked, tokens)?;
        let chunk = linked.tables[self.align].tokens as usize;
        let (heads, context) = (self.speech.alignment_heads, self.speech.context as usize);
        let (vocab, eot) = (self.logits.len(), self.speech.tokens.eot as usize);
        let mut scores = zeroed(heads * tokens.len() * columns)?;
        let mut probabilities = Vec::with_capacity(tokens.len());
        let mut rows = zeroed(chunk * heads * context)?;
        for start in (0..tokens.len()).step_by(chunk) {
            let end = tokens.len().min(start + chunk);
            self.run(linked, self.align, start..end)?;
            let bytes = &mut rows[..(end - start) * heads * context];
            linked
                .executor
                .read(BufferId::Alignment, 0, bytemuck::cast_slice_mut(bytes))?;
            for (t, row) in (start..end).zip(rows.chunks_exact(heads * context)) {
                for (head, from) in row.chunks_exact(context).enumerate() {
                    let at = (head * tokens.len() + t) * columns;
                    scores[at..at + columns].copy_from_slice(&from[..columns]);
                }
                let bytes = bytemuck::cast_slice_mut(&mut self.logits);
                let offset = (t - start) * vocab * size_of::<f32>();
                linked.executor.read(BufferId::Scores, offset, bytes)?;
                let next = tokens.get(t + 1).filter(|next| (**next as usize) < eot);
                let text = &self.logits[..eot];
                probabilities.push(next.map_or(0.0, |next| probability(text, *next)));
            }
        }
        Ok((scores, probabilities))
    }

    /// Starts the first beam with `tokens`.
    fn begin_sequence(&mut self, linked: &mut LinkedTables, tokens: &[u32]) -> Result<()> {
        self.pages.clear();
        self.beams[0].clear();
        self.beams[0].extend_from_slice(tokens);
        for position in 0..tokens.len() {
            self.pages.make_writable(0, position);
        }
        self.write_pages(linked)?;
        write_history(linked, self.sequence(0), 0, tokens)
    }

    /// Runs the body of a table over tokens of the first beam.
    fn run(&mut self, linked: &mut LinkedTables, table: usize, range: Range<usize>) -> Result<()> {
        self.check_cancelled()?;
        let tokens = self.beams[0][range.clone()].iter().enumerate();
        let sequence = self.sequence(0);
        let rows = tokens.map(|(i, token)| row(sequence, *token, range.start + i));
        write_rows(linked, &mut self.state, rows)?;
        let body = linked.tables[table].body();
        linked.executor.run(table, body.into(), 1)
    }

    /// Computes tokens of the first beam, and the logits after the last one.
    fn compute(&mut self, linked: &mut LinkedTables, range: Range<usize>) -> Result<()> {
        let chunk = linked.tables[self.batch].tokens as usize;
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + chunk);
            let table = if end - start == 1 {
                self.step
            } else {
                self.batch
            };
            self.run(linked, table, start..end)?;
            start = end;
        }
        Ok(())
    }

    /// Writes the parameters of the sampling stages. The next token is the first one.
    pub(super) fn select(&mut self, linked: &mut LinkedTables, selection: Selection) -> Result<()> {
        let first = u32::try_from(self.beams[0].len()).expect("prompts fit the context");
        for beam in 0..self.beams.len() {
            let seed = selection.seed.wrapping_add(beam as u64);
            let [seed_lo, seed_hi] = bytemuck::cast(seed.to_le());
            let sampler = Sampler {
                seed_lo,
                seed_hi,
                temperature: selection.temperature,
                logprobs: 1,
                first,
                initial_timestamps: selection.initial_timestamps,
                ..sampler_off()
            };
            let offset = (self.first + beam) * size_of::<Sampler>();
            let bytes = bytemuck::bytes_of(&sampler);
            linked.executor.write(BufferId::Samplers, offset, bytes)?;
        }
        Ok(())
    }

    /// Writes the masks of tokens that are never allowed.
    pub(super) fn write_masks(&self, linked: &mut LinkedTables, suppressed: &[u32]) -> Result<()> {
        let vocab = linked.facts.vocab;
        let mut mask = vec![u32::MAX; vocab.div_ceil(u32::BITS) as usize];
        for id in suppressed.iter().filter(|id| **id < vocab) {
            mask[(id / u32::BITS) as usize] &= !(1 << (id % u32::BITS));
        }
        let bytes: &[u8] = bytemuck::cast_slice(&mask);
        for beam in 0..self.beams.len() {
            let offset = (self.first + beam) * bytes.len();
            linked.executor.write(BufferId::Masks, offset, bytes)?;
        }
        Ok(())
    }

    /// Copies the first beam to `count` beams.
    pub(super) fn fork(&mut self, linked: &mut LinkedTables, count: usize) -> Result<()> {
        self.reorder(linked, &[0; BEAMS_MAX as usize][..count])
    }

    /// Replaces the beams: beam `i` continues the former beam `parents[i]`.
    pub(super) fn reorder(&mut self, linked: &mut LinkedTables, parents: &[usize]) -> Result<()> {
        if parents
            .iter()
            .enumerate()
            .all(|(beam, parent)| beam == *parent)
        {
            return Ok(());
        }
        self.pages.reorder(parents);
        for (next, parent) in self.next.iter_mut().zip(parents) {
            next.clone_from(&self.beams[*parent]);
        }
        std::mem::swap(&mut self.beams, &mut self.next);
        let context = linked.facts.context as usize;
        for beam in 0..parents.len() {
            let tokens = &self.beams[beam];
            let tokens = &tokens[..tokens.len().min(context)];
            write_history(linked, self.sequence(beam), 0, tokens)?;
        }
        self.write_pages(linked)
    }

    /// Samples the first token of each of the first `count` beams, from the logits of the prompt.
    pub(super) fn sample_first(
        &mut self,
        linked: &mut LinkedTables,
        count: usize,
        stage: SamplingStage,
    ) -> Result<()> {
        let table = self.step;
        let cmds = linked.tables[table].stages[stage as usize].clone();
        for beam in 0..count {
            let row = self.row(beam);
            write_rows(linked, &mut self.state, [row].into_iter())?;
            linked.executor.run(table, cmds.clone().into(), 1)?;
        }
        self.read_logprobs(linked, count)
    }

    /// Prepares a step in which the last token of each of the beams `live` is a row.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and errors of the device.
    pub(super) fn prepare(&mut self, linked: &mut LinkedTables, live: &[usize]) -> Result<()> {
        self.check_cancelled()?;
        let mut changed = false;
        let tables = Arc::clone(&linked.tables);
        for &beam in live {
            let position = self.beams[beam].len() - 1;
            let (new, copy) = self.pages.make_writable(beam, position);
            changed |= new;
            let Some(copy) = copy else { continue };
            for buffer in &tables[self.batch].slots {
                if let Some((bytes, PageKind::Full)) = page_layout(buffer, linked.pages) {
                    let [from, to] = [copy.from, copy.to].map(|page| page as usize * bytes);
                    linked.executor.duplicate(buffer.buffer, from, to, bytes)?;
                }
            }
        }
        if changed {
            self.write_pages(linked)?;
        }
        Ok(())
    }

    /// Returns the row of the last token of a beam.
    pub(super) fn row(&self, beam: usize) -> Row {
        let tokens = &self.beams[beam];
        let at = tokens.len() - 1;
        row(self.sequence(beam), tokens[at], at)
    }

    /// Reads the results of a step for the first `count` beams.
    pub(super) fn read_logprobs(&mut self, linked: &mut LinkedTables, count: usize) -> Result<()> {
        let bytes = bytemuck::cast_slice_mut(&mut self.logprobs[..count]);
        let offset = self.first * size_of::<Logprobs>();
        linked.executor.read(BufferId::Logprobs, offset, bytes)
    }

    /// Appends the next token of a beam.
    pub(super) fn push(
        &mut self,
        linked: &mut LinkedTables,
        beam: usize,
        token: u32,
    ) -> Result<()> {
        let at = self.beams[beam].len();
        self.beams[beam].push(token);
        // The token after the last position is not computed.
        if at == linked.facts.context as usize {
            return Ok(());
        }
        write_history(linked, self.sequence(beam), at, &[token])
    }

    fn write_pages(&self, linked: &mut LinkedTables) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(self.pages.table());
        // The table has a row per beam.
        let offset = self.first * bytes.len() / BEAMS_MAX as usize;
        linked.executor.write(BufferId::Pages, offset, bytes)
    }

    /// Returns the sequence of a beam.
    fn sequence(&self, beam: usize) -> u32 {
        u32::try_from(self.first + beam).expect("few sequences")
    }

    fn check_cancelled(&self) -> Result<()> {
        if self.cancel.take_pending() {
            return Err(Error::new(ErrorKind::Cancelled, "transcription cancelled"));
        }
        Ok(())
    }
}

fn row(sequence: u32, token: u32, position: usize) -> Row {
    Row {
        token,
        position: u32::try_from(position).expect("positions are less than the context"),
        sequence,
        done: RUNNING,
        ..Row::default()
    }
}
