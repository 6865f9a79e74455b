//! Times candidate tables on a device.

use super::candidates::{Candidate, passes};
use crate::compare;
use crate::error::{Context, Result};
use crate::exec::{Executor, Program};
use crate::load::build::Build;
use crate::load::selected_device::SelectedDevice;
use crate::model::TableId;
use crate::op::list::Op;
use crate::op::params::Row;
use crate::op::table::{BufferId, Table};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Number of timed rounds, after one warm-up round.
pub(super) const ROUNDS: u32 = 9;

/// A device with the tables of all candidates.
pub(super) struct Runner {
    executor: Box<dyn Executor>,
    pub(super) tables: Arc<[Table]>,
    context: u32,
    vocab: u32,
}

impl Runner {
    /// Links the tables to the device.
    ///
    /// # Errors
    ///
    /// As linking; `Unsupported` if the device has no timestamp queries.
    pub(super) fn link(device: &SelectedDevice, build: &Build, tables: Vec<Table>) -> Result<Self> {
        let tables: Arc<[Table]> = tables.into();
        let program = Program {
            tables: tables.clone(),
            tensors: build.catalog.clone(),
        };
        let mut executor = device
            .clone()
            .link(program, build.profile.clone(), &build.cache)?;
        executor.time_commands().context("tuning")?;
        executor.end_timing();
        Ok(Self {
            executor,
            tables,
            context: build.cache.context,
            vocab: build.config.vocab,
        })
    }

    /// Fills the KV cache at every position, then times the candidates in turns.
    pub(super) fn rounds(
        &mut self,
        mut candidates: Vec<&mut Candidate>,
        done: &mut dyn FnMut(),
    ) -> Result<()> {
        if let Some(candidate) = candidates
            .iter()
            .max_by_key(|candidate| self.tables[candidate.table].tokens)
        {
            let Table { tokens, cmds, .. } = &self.tables[candidate.table];
            let (mut all, step) = (passes(0..self.context, *tokens).into_iter(), cmds.len());
            all.try_for_each(|pass| self.pass(candidate.table, step, pass))?;
        }
        for round in 0..=ROUNDS {
            for candidate in &mut candidates {
                let times = self.time(candidate)?;
                if round > 0 {
                    candidate.times.push(times);
                }
            }
            done();
        }
        Ok(())
    }

    /// Runs the tokens at these positions through a table, submitting `step` commands at a time.
    fn pass(&mut self, table: usize, step: usize, positions: Range<u32>) -> Result<()> {
        let row = |position: u32| Row {
            token: position.wrapping_mul(7) % self.vocab,
            position,
            ..Row::default()
        };
        let rows: Vec<Row> = positions.map(row).collect();
        let state = compare::state(self.context, &rows);
        self.executor.write(BufferId::State, 0, &state)?;
        if self.tables[table].name == TableId::Step.name() {
            let sampler = compare::samplers(1);
            self.executor.write(BufferId::Samplers, 0, &sampler)?;
        }
        let end = self.tables[table].cmds.len();
        let mut starts = (0..end).step_by(step);
        starts.try_for_each(|at| self.executor.run(table, (at..end.min(at + step)).into(), 1))
    }

    /// Returns the time of each command of a candidate in one round.
    fn time(&mut self, candidate: &Candidate) -> Result<Vec<Duration>> {
        self.executor.time_commands()?;
        for pass in &candidate.passes {
            self.pass(candidate.table, candidate.step, pass.clone())?;
        }
        self.executor.end_timing();
        let timings = self.executor.command_timings(candidate.table).iter();
        Ok(timings.map(|timing| timing.took).collect())
    }

    /// Returns the median time per token of the commands with some operations.
    pub(super) fn token_time(&self, candidate: &Candidate, ops: impl Fn(Op) -> bool) -> Duration {
        let cmds = &self.tables[candidate.table].cmds;
        let sum = |times: &[Duration]| {
            let pairs = cmds.iter().zip(times);
            pairs
                .filter(|(cmd, _)| ops(cmd.kernel.op))
                .map(|(_, time)| *time)
                .sum()
        };
        candidate.median(sum) / candidate.tokens().max(1)
    }

    /// Returns [`Self::token_time`] of each candidate, sorted by the value of its parameter.
    pub(super) fn token_times<T: Copy + Ord>(
        &self,
        candidates: &[(T, Candidate)],
        ops: impl Fn(Op) -> bool,
    ) -> Vec<(T, Duration)> {
        let of = |(value, candidate): &(T, Candidate)| (*value, self.token_time(candidate, &ops));
        let mut all: Vec<_> = candidates.iter().map(of).collect();
        all.sort_by_key(|(value, _)| *value);
        all
    }
}
