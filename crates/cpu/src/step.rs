//! Linked commands: everything a thread needs to run one, resolved.

use super::kernel::chunks::Read;
use super::kernel::codes::Product;
use super::memory::{Operand, Part, ScalesAt};
use super::simd::Entry;
use std::ops::Range;
use tabla_core::op::table::{PARAMS_BYTES_MAX, SLOTS_MAX};

/// Who does the work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The first thread: where the work is too small to share.
    First,
    /// Every thread its part.
    All,
}

/// How the work of a step is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// Every thread does all of it, into memory of its own.
    Each,
    /// Ranges of this many units, the same for every number of live rows.
    Units(usize),
    /// Ranges of this many units for every live row.
    Rows(usize),
    /// A unit for every so many live rows.
    Tiles(usize),
    /// This many units for every tile of so many live rows, dealt out in turn: where later rows
    /// cost more.
    Dealt { units: usize, rows: usize },
}

/// A kernel on its operands.
#[derive(Debug)]
pub(super) struct Step {
    /// The kernel, compiled for the level.
    pub(super) entry: Entry,
    /// The operands of the list, then those that link adds, of these that there are: scratch, parts,
    /// quantised activations.
    pub(super) operands: [Operand; SLOTS_MAX],
    /// Bit `i`: operand `i` is written.
    pub(super) writes: u32,
    /// How many operands count.
    pub(super) count: usize,
    /// The parameters.
    pub(super) params: [u8; PARAMS_BYTES_MAX],
    /// How the weights are read where the kernel serves many storage types.
    pub(super) read: Option<Read>,
    /// What the kernel is told where it is a product of codes.
    pub(super) product: Option<Product>,
    /// The scales of the weights, where they lie in tensors of their own.
    pub(super) scales: Option<ScalesAt>,
    /// Live rows at most.
    pub(super) tokens: usize,
    /// How its work is shared.
    pub(super) split: Split,
    /// Who does it.
    pub(super) by: By,
    /// Whether all threads must have finished what comes before.
    pub(super) barrier: bool,
    /// Where what this step computes was computed already: the first command that did so.
    pub(super) made_by: Option<usize>,
}

impl Step {
    /// Whether operand `i` is written.
    pub(super) fn writes(&self, i: usize) -> bool {
        self.writes & 1 << i != 0
    }

    /// The part of a thread, if it has one.
    pub(super) fn part(&self, thread: usize, threads: usize, live: usize) -> Option<Part> {
        let threads = match self.by {
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
    /// The steps, those of a command side by side.
    pub(super) steps: Vec<Step>,
    /// The first step of every command, and the end.
    pub(super) first: Vec<usize>,
    /// The step state.
    pub(super) state: Operand,
}

impl Steps {
    /// The steps of these commands.
    pub(super) fn range(&self, cmds: Range<usize>) -> Range<usize> {
        self.first[cmds.start]..self.first[cmds.end]
    }

    /// How many commands there are.
    pub(super) fn cmds(&self) -> usize {
        self.first.len() - 1
    }
}
