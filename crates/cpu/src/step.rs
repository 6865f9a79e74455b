//! Linked commands: everything that a thread needs to run them.

use super::memory::{Bound, Operand};
use super::simd::Entry;
use super::work::{Part, RunOn, Split};
use std::ops::Range;

/// A kernel with its operands.
#[derive(Debug)]
pub(super) struct Step {
    /// Kernel compiled for the level.
    pub(super) entry: Entry,
    /// Operands.
    pub(super) bound: Bound,
    /// How the work is divided among threads.
    pub(super) split: Split,
    /// Whether all threads must have finished the earlier steps.
    pub(super) barrier: bool,
    /// First command that already computed the same result, if any.
    pub(super) computed_by: Option<usize>,
}

impl Step {
    /// Maximum number of units; `None` if it overflows.
    pub(super) fn units_max(&self) -> Option<usize> {
        let tokens = self.bound.tokens;
        match self.split {
            Split::PerThread => Some(1),
            Split::Units(units) => Some(units),
            Split::Rows(units) => units.checked_mul(tokens),
            Split::Tiles(rows) => Some(tokens.div_ceil(rows.max(1))),
            Split::RoundRobin { units, rows } => units.checked_mul(tokens.div_ceil(rows.max(1))),
        }
    }

    /// Returns the part of a thread, if it has one.
    pub(super) fn part(&self, thread: usize, threads: usize, live: usize) -> Option<Part> {
        let threads = match self.bound.run_on {
            RunOn::FirstThread if thread > 0 => return None,
            RunOn::FirstThread => 1,
            RunOn::AllThreads => threads,
        };
        let part = match self.split {
            Split::PerThread => Part::whole(thread, 1),
            Split::Units(units) => Part::contiguous(thread, threads, units),
            Split::Rows(units) => Part::contiguous(thread, threads, units * live),
            Split::Tiles(rows) => Part::contiguous(thread, threads, live.div_ceil(rows)),
            Split::RoundRobin { units, rows } => {
                Part::round_robin(thread, threads, units * live.div_ceil(rows))
            }
        };
        (!part.is_empty()).then_some(part)
    }
}

/// The steps of a table.
#[derive(Debug)]
pub(super) struct Steps {
    /// The steps; those of a command are adjacent.
    pub(super) steps: Vec<Step>,
    /// Index of the first step of every command, then the number of steps.
    pub(super) first: Vec<usize>,
    /// The step state.
    pub(super) state: Operand,
}

impl Steps {
    /// The steps of these commands.
    pub(super) fn range(&self, cmds: Range<usize>) -> Range<usize> {
        self.first[cmds.start]..self.first[cmds.end]
    }

    /// Number of commands.
    pub(super) fn cmds(&self) -> usize {
        self.first.len() - 1
    }
}
