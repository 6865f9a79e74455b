//! How the work of a step is cut among threads.

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

/// What a thread does of a command: the units `first, first + step, ...` below `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) thread: usize,
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) step: usize,
}

impl Part {
    /// Part `thread` of `threads`, of `units` cut into ranges.
    pub(super) fn of(thread: usize, threads: usize, units: usize) -> Self {
        Self {
            thread,
            first: units * thread / threads,
            end: units * (thread + 1) / threads,
            step: 1,
        }
    }

    /// Part `thread` of `threads`, of `units` dealt out in turn.
    pub(super) fn dealt(thread: usize, threads: usize, units: usize) -> Self {
        Self {
            thread,
            first: thread,
            end: units,
            step: threads,
        }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.first >= self.end
    }

    /// All `units`.
    pub(super) fn whole(thread: usize, units: usize) -> Self {
        Self {
            thread,
            first: 0,
            end: units,
            step: 1,
        }
    }
}
