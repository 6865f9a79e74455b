//! A device that replays what is tried, in turns.

use super::trial::{Trial, passes};
use crate::error::{Context, Result};
use crate::exec::state::Row;
use crate::exec::{Executor, Program};
use crate::load::build::Build;
use crate::load::compare;
use crate::load::device::Device;
use crate::model::TableId;
use crate::op::list::Op;
use crate::op::table::{BufferId, Table};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Rounds that count; one before them warms the device up.
pub(super) const ROUNDS: u32 = 9;

/// A device with the tables of all trials.
pub(super) struct Rig {
    executor: Box<dyn Executor>,
    pub(super) tables: Arc<[Table]>,
    context: u32,
    vocab: u32,
}

impl Rig {
    /// # Errors
    ///
    /// As of linking, and `Unsupported` where the device cannot tell the times of commands.
    pub(super) fn link(device: &Device, build: &Build, tables: Vec<Table>) -> Result<Self> {
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

    /// Puts keys and values at every position, as a prompt would, and times trials in turns.
    pub(super) fn rounds(
        &mut self,
        mut trials: Vec<&mut Trial>,
        done: &mut dyn FnMut(),
    ) -> Result<()> {
        if let Some(trial) = trials
            .iter()
            .max_by_key(|trial| self.tables[trial.table].tokens)
        {
            let Table { tokens, cmds, .. } = &self.tables[trial.table];
            let (mut all, step) = (passes(0..self.context, *tokens).into_iter(), cmds.len());
            all.try_for_each(|pass| self.pass((trial.table, step), pass))?;
        }
        for round in 0..=ROUNDS {
            for trial in &mut trials {
                let laps = self.time(trial)?;
                if round > 0 {
                    trial.laps.push(laps);
                }
            }
            done();
        }
        Ok(())
    }

    /// One pass of the tokens of these positions through a table, so many commands at a time.
    fn pass(&mut self, (table, step): (usize, usize), positions: Range<u32>) -> Result<()> {
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

    /// What each command of a trial took in one round.
    fn time(&mut self, trial: &Trial) -> Result<Vec<Duration>> {
        self.executor.time_commands()?;
        for pass in &trial.passes {
            self.pass((trial.table, trial.step), pass.clone())?;
        }
        self.executor.end_timing();
        let laps = self.executor.laps(trial.table).iter();
        Ok(laps.map(|lap| lap.took).collect())
    }

    /// What the commands of some operations took for a token.
    pub(super) fn token(&self, trial: &Trial, ops: impl Fn(Op) -> bool) -> Duration {
        let cmds = &self.tables[trial.table].cmds;
        let all = |laps: &[Duration]| {
            let pairs = cmds.iter().zip(laps);
            pairs
                .filter(|(cmd, _)| ops(cmd.kernel.op))
                .map(|(_, lap)| *lap)
                .sum()
        };
        trial.median(all) / trial.tokens().max(1)
    }

    /// The same by the number that is tried, in its order.
    pub(super) fn numbers<T: Copy + Ord>(
        &self,
        trials: &[(T, Trial)],
        ops: impl Fn(Op) -> bool,
    ) -> Vec<(T, Duration)> {
        let of = |(number, trial): &(T, Trial)| (*number, self.token(trial, &ops));
        let mut all: Vec<_> = trials.iter().map(of).collect();
        all.sort_by_key(|(number, _)| *number);
        all
    }
}
