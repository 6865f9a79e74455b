//! The tables that compute a request: those of the model, or copies with hooks.

use crate::error::Result;
use crate::model::{LinkedTables, TableId};
use crate::op::table::Table;
use std::sync::Arc;

/// A step table.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTable {
    /// Index among the tables of the executor.
    pub(super) table: usize,
    pub(super) rows: usize,
}

/// Linked tables with consecutive indices.
#[derive(Debug)]
pub(super) struct TableSet {
    /// Index of the first table.
    first: usize,
    tables: Arc<[Table]>,
    /// The step tables in ascending order of rows; none for an encoder.
    steps: Vec<StepTable>,
}

impl TableSet {
    /// Returns the tables of the model.
    pub(super) fn of_model(linked: &LinkedTables) -> Self {
        Self::new(linked, linked.tables.clone(), 0)
    }

    /// Returns tables that were linked at index `first`.
    pub(super) fn new(linked: &LinkedTables, tables: Arc<[Table]>, first: usize) -> Self {
        let steps = (first..).zip(&*tables);
        let steps = steps.filter(|(_, table)| table.name == TableId::Step.name());
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
        Self {
            first,
            tables,
            steps,
        }
    }

    /// Returns the index of the first table.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Returns the index of a table.
    ///
    /// # Errors
    ///
    /// `State` if the model does not have the table.
    pub(super) fn index(&self, id: TableId) -> Result<usize> {
        Ok(self.first + id.find(&self.tables)?)
    }

    /// Returns the table with this index.
    pub(super) fn table(&self, index: usize) -> &Table {
        &self.tables[index - self.first]
    }

    /// Returns the smallest step table with at least `rows` rows, or the widest.
    ///
    /// # Panics
    ///
    /// If the model is an encoder.
    pub(super) fn with_rows(&self, rows: usize) -> StepTable {
        let wide_enough = self.steps.iter().find(|step| step.rows >= rows);
        *wide_enough.unwrap_or(&self.steps[self.steps.len() - 1])
    }

    /// Returns the maximum number of rows of a step; 1 for an encoder.
    pub(super) fn max_rows(&self) -> usize {
        self.steps.last().map_or(1, |step| step.rows)
    }
}
