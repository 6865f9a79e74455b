//! Divides the work of a step among threads.

/// Threads that run a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOn {
    /// The first thread only: the work is too small to share.
    FirstThread,
    /// All threads, each its part.
    AllThreads,
}

/// How the work of a step is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// Every thread computes everything into its own memory.
    PerThread,
    /// Contiguous ranges of this many units, independent of the number of active rows.
    Units(usize),
    /// Contiguous ranges of this many units per active row.
    Rows(usize),
    /// One unit per tile of this many active rows.
    Tiles(usize),
    /// `units` units per tile of `rows` active rows, assigned round-robin because later rows cost
    /// more.
    RoundRobin { units: usize, rows: usize },
}

/// Units of a command that one thread runs: `first, first + step, ...` below `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) thread: usize,
    /// Threads that the units are divided among.
    pub(super) threads: usize,
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) step: usize,
}

impl Part {
    /// Part `thread` of `threads`, with `units` divided into contiguous ranges.
    pub(super) fn contiguous(thread: usize, threads: usize, units: usize) -> Self {
        Self {
            thread,
            threads,
            first: units * thread / threads,
            end: units * (thread + 1) / threads,
            step: 1,
        }
    }

    /// Part `thread` of `threads`, with `units` assigned round-robin.
    pub(super) fn round_robin(thread: usize, threads: usize, units: usize) -> Self {
        Self {
            thread,
            threads,
            first: thread,
            end: units,
            step: threads,
        }
    }

    /// Whether the part has no units.
    pub(super) fn is_empty(&self) -> bool {
        self.first >= self.end
    }

    /// All `units`.
    pub(super) fn whole(thread: usize, units: usize) -> Self {
        Self {
            thread,
            threads: 1,
            first: 0,
            end: units,
            step: 1,
        }
    }
}
