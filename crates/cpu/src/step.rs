//! Linked commands: everything that a thread needs to run them.

use super::memory::{Bound, Operand};
use super::simd::Entry;
use super::work::{By, Part, Split};
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
    pub(super) made_by: Option<usize>,
}

impl Step {
    /// Returns the part of a thread, if it has one.
    pub(super) fn part(&self, thread: usize, threads: usize, live: usize) -> Option<Part> {
        let threads = match self.bound.by {
            By::First if thread > 0 => return None,
            By::First => 1,
            By::All => threads,
        };
        let part = match self.split {
            Split::Each => Part::whole(thread, 1),
            Split::Units(units) => Part::of(thread, threads, units),
            Split::Rows(units) => Part::of(thread, threads, units * live),
            Split::Tiles(rows) => Part::of(thread, threads, live.div_ceil(rows)),
            Split::Dealt { units, rows } => {
                Part::dealt(thread, threads, units * live.div_ceil(rows))
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
