//! Times of commands, computed from timestamps of the device.

use std::ops::Range;
use std::time::{Duration, Instant};
use tabla_core::exec::CommandTiming;

/// Timestamp queries, and the times computed from them.
#[derive(Debug)]
pub(super) struct Timer<Q> {
    pub(super) queries: Q,
    pub(super) timings: Timings,
    /// One entry per timestamp of the longest table.
    pub(super) ticks: Vec<u64>,
}

/// Times of the commands of all tables.
#[derive(Debug)]
pub(super) struct Timings {
    tables: Vec<Vec<CommandTiming>>,
    /// Duration of a tick in seconds.
    period: f64,
    /// Mask of the valid bits of a timestamp.
    mask: u64,
    /// Start of timing; `None` while disabled.
    start: Option<Instant>,
}

impl Timings {
    /// Creates timings for timestamps with a period in nanoseconds and a number of valid bits.
    pub(super) fn new(nanoseconds: f32, bits: u32) -> Self {
        Self {
            tables: Vec::new(),
            period: f64::from(nanoseconds) * 1e-9,
            mask: u64::MAX >> (64 - bits.clamp(1, 64)),
            start: None,
        }
    }

    /// Enables timing of tables with these numbers of commands, and clears all times.
    pub(super) fn begin(&mut self, counts: &[usize]) {
        let timings = |count: &usize| vec![CommandTiming::default(); *count];
        self.tables = counts.iter().map(timings).collect();
        self.start = Some(Instant::now());
    }

    /// Removes the times of these tables, which are not timed afterwards.
    pub(super) fn remove(&mut self, tables: Range<usize>) {
        for table in tables {
            if let Some(timings) = self.tables.get_mut(table) {
                timings.clear();
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.start = None;
    }

    /// Whether runs of this table are timed.
    pub(super) fn enabled(&self, table: usize) -> bool {
        self.start.is_some() && !self.of(table).is_empty()
    }

    pub(super) fn of(&self, table: usize) -> &[CommandTiming] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    /// Adds a replay. `ticks` has a timestamp before the first command and one after each command.
    /// The time of overlapping commands is counted for the one that finishes last.
    pub(super) fn add(
        &mut self,
        table: usize,
        cmds: &Range<usize>,
        submitted: Instant,
        ticks: &[u64],
    ) {
        let start = self.start.unwrap_or(submitted);
        let mut begun = submitted - start;
        let timings = &mut self.tables[table][cmds.clone()];
        for (timing, pair) in timings.iter_mut().zip(ticks.windows(2)) {
            let ticks = pair[1].wrapping_sub(pair[0]) & self.mask;
            let took = Duration::try_from_secs_f64(ticks as f64 * self.period);
            let took = took.unwrap_or_default();
            timing.runs += 1;
            timing.took += took;
            timing.begun = begun;
            begun += took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_ticks_to_times_across_wraparound() {
        let mut timings = Timings::new(2.0, 8);
        timings.begin(&[0, 3]);
        let epoch = timings.start.expect("timing is enabled");
        let submitted = epoch + Duration::from_nanos(100);
        timings.add(1, &(1..3), submitted, &[250, 5, 6]);
        timings.add(1, &(2..3), submitted, &[1, 2]);
        let nanos = |at: usize| {
            let timing = timings.of(1)[at];
            (timing.runs, timing.took.as_nanos(), timing.begun.as_nanos())
        };
        assert_eq!([0, 1, 2].map(nanos), [(0, 0, 0), (1, 22, 100), (2, 4, 100)]);
        assert!(timings.of(0).is_empty() && timings.of(2).is_empty());
        assert_eq!([0, 1, 2].map(|t| timings.enabled(t)), [false, true, false]);
        timings.remove(1..4);
        assert!(!timings.enabled(1), "the table was removed");
    }
}
