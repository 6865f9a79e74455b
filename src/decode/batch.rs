//! A batch: several sequences of one model that go on together, a token of each in one pass.

use super::rows::{PICKS_MAX, Picks, Stretch, append, pass, wait, write_rows, write_sampler};
use super::{Finish, Sampling};
use crate::device::{DeviceKind, Profile};
use crate::error::{Result, bail};
use crate::exec::state::{RUNNING, Row, STOPPED, STOPS_MAX, state_bytes};
use crate::model::{Facts, Model, TableId};
use crate::op::table::{Place, Tail};
use crate::text::Tokenizer;
use std::ops::Range;

/// Several sequences of a model, as many as [`Options::sequences`](crate::Options::sequences):
/// they share every pass over the weights, and each gets the very tokens that it would get alone.
#[derive(Debug)]
pub struct Batch {
    model: Model,
    sequences: Vec<Sequence>,
    /// Those that run; kept for its room.
    running: Vec<u32>,
    /// The tables that pick a token for each of their rows, the narrowest first.
    steps: Vec<Step>,
    /// Host copy of the step state and its rows, for writing.
    state: Vec<u8>,
}

/// The KV cache holds all tokens of a sequence but the last.
#[derive(Debug)]
struct Sequence {
    tokens: Vec<u32>,
    finish: Option<Finish>,
}

impl Sequence {
    fn runs(&self) -> bool {
        !self.tokens.is_empty() && self.finish.is_none()
    }
}

/// A table for steps.
#[derive(Clone, Copy, Debug)]
struct Step {
    table: usize,
    rows: usize,
}

impl Batch {
    /// Stop tokens of a step at most.
    pub const STOPS_MAX: usize = STOPS_MAX;

    /// A batch of empty sequences.
    ///
    /// # Errors
    ///
    /// `State` for an encoder.
    pub fn new(model: Model) -> Result<Self> {
        model.at(TableId::Step)?;
        let sequences = model.facts.sequences as usize;
        let steps = (0..).zip(&*model.tables);
        let steps = steps.filter(|(_, table)| table.name == TableId::Step.name());
        let mut steps: Vec<Step> = steps
            .map(|(table, found)| Step {
                table,
                rows: found.tokens as usize,
            })
            .collect();
        if model.profile().kind == DeviceKind::Gpu && steps.len() > 1 {
            // The mat-vec of one row sums in another order than the mat-mat of several there:
            // without it a sequence gets the same bits in any company.
            steps.remove(0);
        }
        let rows = model.tables.iter().map(|t| t.tokens).max().unwrap_or(1);
        let room = model.facts.context as usize + 1;
        let empty = || Sequence {
            tokens: Vec::with_capacity(room),
            finish: None,
        };
        Ok(Self {
            sequences: (0..sequences).map(|_| empty()).collect(),
            running: Vec::with_capacity(sequences),
            steps,
            state: vec![0; state_bytes(rows as usize)],
            model,
        })
    }

    /// What is known of the model.
    pub fn facts(&self) -> &Facts {
        &self.model.facts
    }

    /// Text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.model.tokenizer
    }

    /// The facts of the device.
    pub fn profile(&self) -> &Profile {
        self.model.profile()
    }

    /// Every token of a sequence, given and picked; none of one that does not exist.
    pub fn tokens(&self, sequence: usize) -> &[u32] {
        let found = self.sequences.get(sequence);
        found.map_or(&[], |sequence| &sequence.tokens)
    }

    /// Why a sequence ended, [`Finish::Stop`] or [`Finish::Context`]; `None` while it goes on.
    pub fn finish(&self, sequence: usize) -> Option<Finish> {
        self.sequences.get(sequence)?.finish
    }

    /// Appends tokens to a sequence, which goes on from them with the next step.
    ///
    /// # Errors
    ///
    /// `Argument` for a sequence that does not exist or an id outside the vocabulary, `State` where
    /// the sequence stays empty, `TooLarge` where the tokens do not fit the context; nothing is
    /// appended then. After `Device` and `DeviceLost` the sequence is empty.
    pub fn prefill(&mut self, sequence: usize, tokens: &[u32]) -> Result<()> {
        self.check(sequence)?;
        let known = &mut self.sequences[sequence];
        let fed = known.tokens.len().saturating_sub(1);
        append(&self.model, &mut known.tokens, tokens)?;
        if known.tokens.is_empty() {
            bail!(State, "sequence {sequence} is empty: a prompt has tokens");
        }
        known.finish = None;
        let done = self.feed(sequence, fed);
        if done.is_err() {
            self.reset(sequence);
        }
        done
    }

    /// Picks the likeliest next token of every sequence that runs, `times` times, and says how many
    /// still run: none that is empty, that one of `stops` ended, or whose context is full.
    ///
    /// # Errors
    ///
    /// `Argument` for more than [`Batch::STOPS_MAX`] stop tokens, `Device` and `DeviceLost`.
    pub fn step(&mut self, times: u32, stops: &[u32]) -> Result<usize> {
        if stops.len() > Self::STOPS_MAX {
            let (count, most) = (stops.len(), Self::STOPS_MAX);
            bail!(Argument, "{count} stop tokens are over the limit of {most}");
        }
        let longest = self.profile().chain_tokens.min(PICKS_MAX);
        let mut left = times;
        loop {
            self.running.clear();
            let running = (0..).zip(&self.sequences).filter(|(_, s)| s.runs());
            self.running.extend(running.map(|(sequence, _)| sequence));
            if left == 0 || self.running.is_empty() {
                return Ok(self.running.len());
            }
            let times = left.min(longest);
            let widest = self.steps.last().map_or(1, |step| step.rows);
            for first in (0..self.running.len()).step_by(widest) {
                let end = self.running.len().min(first + widest);
                self.chain(first..end, times, stops)?;
            }
            left -= times;
        }
    }

    /// The logits after the last token of a sequence, `[vocab]`.
    ///
    /// # Errors
    ///
    /// `Argument` for a sequence that does not exist or a slice of another length, `State` for an
    /// empty sequence or one whose last token is outside the context, `Device` and `DeviceLost`.
    pub fn logits(&mut self, sequence: usize, out: &mut [f32]) -> Result<()> {
        self.check(sequence)?;
        let vocab = self.model.facts.vocab as usize;
        if out.len() != vocab {
            let found = out.len();
            bail!(Argument, "a row of logits has {vocab} numbers, not {found}");
        }
        let tokens = &self.sequences[sequence].tokens;
        let Some(start) = tokens.len().checked_sub(1) else {
            bail!(
                State,
                "sequence {sequence} is empty: prefill a prompt first"
            );
        };
        let context = self.model.facts.context;
        if start == context as usize {
            bail!(State, "the context of {context} positions is full");
        }
        let batch = self.model.at(TableId::Batch)?;
        let all = 0..self.model.tables[batch].cmds.len();
        let stretch = Stretch {
            sequence: number(sequence),
            start,
            tokens: &tokens[start..],
        };
        pass(&mut self.model, &mut self.state, (batch, all), &stretch)?;
        let executor = &mut self.model.executor;
        executor.read(Place::Logits, 0, bytemuck::cast_slice_mut(out))
    }

    /// Forgets a sequence.
    pub fn reset(&mut self, sequence: usize) {
        if let Some(sequence) = self.sequences.get_mut(sequence) {
            sequence.tokens.clear();
            sequence.finish = None;
        }
    }

    fn check(&self, sequence: usize) -> Result<()> {
        let count = self.sequences.len();
        if sequence >= count {
            bail!(
                Argument,
                "sequence {sequence} of a model that was loaded with {count}"
            );
        }
        Ok(())
    }

    /// Runs the tokens of a sequence from `fed` on, but for the last, which the next step takes
    /// along: no logits are needed for them.
    fn feed(&mut self, sequence: usize, fed: usize) -> Result<()> {
        let batch = self.model.at(TableId::Batch)?;
        let (rows, head) = {
            let table = &self.model.tables[batch];
            (table.tokens as usize, table.head)
        };
        let tokens = &self.sequences[sequence].tokens;
        let end = tokens.len() - 1;
        for start in (fed..end).step_by(rows) {
            let stretch = Stretch {
                sequence: number(sequence),
                start,
                tokens: &tokens[start..end.min(start + rows)],
            };
            pass(&mut self.model, &mut self.state, (batch, 0..head), &stretch)?;
            wait(&mut self.model)?;
        }
        Ok(())
    }

    /// Steps of some of those that run, in one submission.
    fn chain(&mut self, group: Range<usize>, times: u32, stops: &[u32]) -> Result<()> {
        let group = &self.running[group];
        let wide = self.steps.iter().find(|step| step.rows >= group.len());
        let table = wide.expect("a group is as wide as a table").table;
        let rows = group.iter().map(|&sequence| {
            let tokens = &self.sequences[sequence as usize].tokens;
            Row {
                token: tokens[tokens.len() - 1],
                position: number(tokens.len() - 1),
                sequence,
                done: RUNNING,
            }
        });
        write_rows(&mut self.model, &mut self.state, rows)?;
        let sampler = Sampling::GREEDY.sampler(stops);
        for &sequence in group {
            write_sampler(&mut self.model, sequence, &sampler)?;
        }
        let cmds = self.model.tables[table].pass(Tail::Greedy);
        self.model.executor.run(table, cmds, times)?;
        let sequences = group.iter().map(|&sequence| {
            let tokens = &self.sequences[sequence as usize].tokens;
            (sequence, tokens.len())
        });
        let picks = Picks::ask(&mut self.model, sequences, times)?;
        let picked = picks.take(&mut self.model)?;
        for (at, &sequence) in group.iter().enumerate() {
            let known = &mut self.sequences[sequence as usize];
            known.finish = match picked.append(at, sequence, &mut known.tokens) {
                RUNNING => None,
                STOPPED => Some(Finish::Stop),
                _ => Some(Finish::Context),
            };
        }
        Ok(())
    }
}

/// A sequence or a position as the device counts them.
fn number(n: usize) -> u32 {
    u32::try_from(n).expect("both are held to 32 bits while loading")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Session;
    use crate::load::{DeviceChoice, Options, Source, load};

    /// The rows that a step picks from, bit for bit those of a session.
    #[test]
    fn logits_of_all_rows_are_those_of_each() {
        let options = Options {
            device: DeviceChoice::Cpu,
            sequences: 5,
            context: 64,
            ..Options::default()
        };
        let model = || load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
        let mut batch = Batch::new(model()).expect("it generates");
        let mut session = Session::new(model());
        let vocab = batch.facts().vocab as usize;
        let prompts = [
            &[1, 2, 3][..],
            &[9],
            &[8, 7, 6, 5, 4],
            &[3; 40],
            &[200, 100],
        ];
        for (i, prompt) in prompts.iter().enumerate() {
            batch.prefill(i, prompt).expect("it fits");
        }
        assert_eq!(batch.step(1, &[]).expect("tokens"), 5);
        let mut all = vec![0f32; 5 * vocab];
        let executor = &mut batch.model.executor;
        executor
            .read(Place::Scores, 0, bytemuck::cast_slice_mut(&mut all))
            .expect("it fits");
        let mut alone = vec![0f32; vocab];
        for (prompt, found) in prompts.iter().zip(all.chunks(vocab)) {
            session.reset();
            session.prefill(prompt, &mut |_, _| {}).expect("it fits");
            session.logits(&mut alone).expect("the room is right");
            let same = found.iter().map(|x| x.to_bits());
            assert!(same.eq(alone.iter().map(|x| x.to_bits())), "{prompt:?}");
        }
    }

    #[test]
    fn tables_are_as_wide_as_sequences_need() {
        let rows = |sequences| {
            let options = Options {
                device: DeviceChoice::Cpu,
                sequences,
                context: 16,
                ..Options::default()
            };
            let model = load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
            let batch = Batch::new(model).expect("it generates");
            batch.steps.iter().map(|step| step.rows).collect::<Vec<_>>()
        };
        assert_eq!(rows(0), [1, 8]);
        assert_eq!(rows(3), [1, 2, 4, 8]);
        assert_eq!(rows(16), [1, 2, 4, 8, 16]);
        assert_eq!(rows(100), [1, 2, 4, 8, 16, 32]);
    }
}
