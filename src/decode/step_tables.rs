//! The step tables of a model, by their number of rows.

use crate::model::{LinkedTables, TableId};

/// A step table.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTable {
    /// Index among the tables.
    pub(super) table: usize,
    pub(super) rows: usize,
}

/// The step tables in ascending order of rows; none for an encoder.
#[derive(Debug)]
pub(super) struct StepTables(Vec<StepTable>);

impl StepTables {
    pub(super) fn new(linked: &LinkedTables) -> Self {
        let tables = (0..).zip(&*linked.tables);
        let steps = tables.filter(|(_, table)| table.name == TableId::Step.name());
        let mut steps: Vec<StepTable> = steps
            .map(|(table, step)| StepTable {
                table,
                rows: step.tokens as usize,
            })
            .collect();
        if linked.step_bits_differ() && linked.facts.speculates && steps.len() > 1 {
            // On a GPU, the mat-vec of one row sums in another order than the mat-mat of several
            // rows. Without the one-row table, the bits of a sequence do not depend on the batch.
            steps.remove(0);
        }
        Self(steps)
    }

    /// Returns the smallest table with at least `rows` rows, or the widest.
    ///
    /// # Panics
    ///
    /// If the model is an encoder.
    pub(super) fn with_rows(&self, rows: usize) -> StepTable {
        let wide_enough = self.0.iter().find(|step| step.rows >= rows);
        *wide_enough.unwrap_or(&self.0[self.0.len() - 1])
    }

    /// Returns the maximum number of rows of a step; 1 for an encoder.
    pub(super) fn max_rows(&self) -> usize {
        self.0.last().map_or(1, |step| step.rows)
    }
}
