//! What commands take, by ticks of the device's clock.

use std::ops::Range;
use std::time::{Duration, Instant};
use tabla_core::exec::CommandTiming;

/// The commands of all tables, as timed.
#[derive(Debug)]
pub(super) struct Timings {
    tables: Vec<Vec<CommandTiming>>,
    /// Seconds of a tick.
    period: f64,
    /// The bits of a tick that count.
    mask: u64,
    /// When timing began; `None` once it has ended.
    since: Option<Instant>,
}

impl Timings {
    /// For tables of so many commands, and a clock of so many nanoseconds a tick and so many bits.
    pub(super) fn new(commands: impl Iterator<Item = usize>, nanoseconds: f32, bits: u32) -> Self {
        let laps = commands.map(|count| vec![CommandTiming::default(); count]);
        Self {
            tables: laps.collect(),
            period: f64::from(nanoseconds) * 1e-9,
            mask: u64::MAX >> (64 - bits.clamp(1, 64)),
            since: None,
        }
    }

    /// Begins, from nothing.
    pub(super) fn begin(&mut self) {
        self.since = Some(Instant::now());
        self.tables
            .iter_mut()
            .for_each(|t| t.fill(CommandTiming::default()));
    }

    pub(super) fn end(&mut self) {
        self.since = None;
    }

    pub(super) fn are_on(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn of(&self, table: usize) -> &[CommandTiming] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    /// Adds a replay that was submitted at an instant: ticks before its first command, and after
    /// each. Where commands overlap, the time is that of the one which is waited for.
    pub(super) fn add(
        &mut self,
        (table, cmds): (usize, &Range<usize>),
        submitted: Instant,
        ticks: &[u64],
    ) {
        let since = self.since.unwrap_or(submitted);
        let mut begun = submitted - since;
        let laps = &mut self.tables[table][cmds.clone()];
        for (lap, pair) in laps.iter_mut().zip(ticks.windows(2)) {
            let ticks = pair[1].wrapping_sub(pair[0]) & self.mask;
            let took = Duration::try_from_secs_f64(ticks as f64 * self.period);
            let took = took.unwrap_or_default();
            lap.runs += 1;
            lap.took += took;
            lap.begun = begun;
            begun += took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_times_also_where_they_begin_anew() {
        let mut laps = Timings::new([0, 3].into_iter(), 2.0, 8);
        laps.begin();
        let epoch = laps.since.expect("it began");
        let submitted = epoch + Duration::from_nanos(100);
        laps.add((1, &(1..3)), submitted, &[250, 5, 6]);
        laps.add((1, &(2..3)), submitted, &[1, 2]);
        let found = |at: usize| {
            let lap = laps.of(1)[at];
            (lap.runs, lap.took.as_nanos(), lap.begun.as_nanos())
        };
        assert_eq!([0, 1, 2].map(found), [(0, 0, 0), (1, 22, 100), (2, 4, 100)]);
        assert!(laps.of(0).is_empty() && laps.of(2).is_empty());
    }
}
