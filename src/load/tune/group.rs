//! Commands that several kernels can run, and which of these is taken.

use super::trial::{Trial, median};
use crate::device::{ProblemSize, TunedKernel};
use crate::op::table::{KernelId, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What another candidate has to save to be taken: this part of what the usual one takes, and that
/// part of its table. Less is noise.
const GAIN_MIN: u32 = 50;
const TABLE_GAIN_MIN: u32 = 1000;

/// Commands of one operation, storage type and extent.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they work on.
    pub extent: ProblemSize,
    /// How many of them a table has.
    pub commands: u32,
    /// The kernels that can run them, and what all of them take in one replay. The plain one comes
    /// first, the one that is usual last.
    pub times: Vec<(KernelId, Duration)>,
    /// The kernel that is taken.
    pub taken: KernelId,
}

impl Group {
    /// What they take with the usual kernel.
    pub fn usual(&self) -> Duration {
        self.times.last().map_or(Duration::ZERO, |(_, time)| *time)
    }

    pub(super) fn choice(&self) -> TunedKernel {
        TunedKernel {
            kernel: self.taken.name(),
            extent: self.extent,
        }
    }
}

/// What commands of a group have in common: the plain kernel, and what they work on.
type Key = (KernelId, ProblemSize);

/// Commands of a group by kernel: how many there are in a table, and what one took in each round.
type Samples = BTreeMap<KernelId, (usize, Vec<Duration>)>;

/// Puts together what the commands of the tables in each form took.
pub(super) fn groups(tables: &[Table], trials: &[Trial]) -> Vec<Group> {
    let mut found: BTreeMap<Key, Samples> = BTreeMap::new();
    let mut usual = BTreeSet::new();
    for trial in trials {
        let table = &tables[trial.table];
        let mut alike: BTreeMap<(Key, KernelId), Vec<usize>> = BTreeMap::new();
        for (at, cmd) in table.cmds.iter().enumerate() {
            let plain = KernelId::all(cmd.kernel.op, cmd.kernel.dtype, &[]).next();
            let plain = plain.unwrap_or(cmd.kernel);
            let key = (plain, table.extent(cmd.slots()));
            alike.entry((key, cmd.kernel)).or_default().push(at);
        }
        for ((key, kernel), cmds) in alike {
            if trial.usual {
                usual.insert(key);
            }
            let samples = found.entry(key).or_default().entry(kernel);
            let (count, samples) = samples.or_default();
            *count = cmds.len().max(*count);
            let one = |laps: &Vec<Duration>| {
                let all: Duration = cmds.iter().map(|at| laps[*at]).sum();
                all.div_f64(cmds.len() as f64)
            };
            samples.extend(trial.laps.iter().map(one));
        }
    }
    let several = found.into_iter().filter(|(_, samples)| samples.len() > 1);
    let mut groups: Vec<Group> = several.map(|(key, samples)| group(key, samples)).collect();
    choose(&mut groups, &usual);
    groups.sort_by_key(|group| std::cmp::Reverse(group.usual()));
    groups
}

fn group((plain, extent): Key, samples: Samples) -> Group {
    let counts = samples.values().map(|(count, _)| *count);
    let commands = u32::try_from(counts.max().unwrap_or(0)).expect("tables are small");
    let time = |(kernel, (_, samples))| (kernel, median(samples) * commands);
    let times: Vec<_> = samples.into_iter().map(time).collect();
    Group {
        extent,
        commands,
        taken: times.last().map_or(plain, |(kernel, _)| *kernel),
        times,
    }
}

/// Takes the best kernel of each group, which has the usual one so far. These groups make up the
/// tables as is usual.
fn choose(groups: &mut [Group], usual: &BTreeSet<Key>) {
    let is_usual = |group: &&Group| {
        let plain = group.times.first();
        plain.is_some_and(|(kernel, _)| usual.contains(&(*kernel, group.extent)))
    };
    let whole = |many: bool| -> Duration {
        let some = groups.iter().filter(|group| group.extent.many == many);
        let some = some.filter(is_usual);
        some.map(Group::usual).sum()
    };
    let least = [false, true].map(|many| whole(many) / TABLE_GAIN_MIN);
    for group in groups {
        group.taken = best(
            &group.times,
            group.taken,
            least[usize::from(group.extent.many)],
        );
    }
}

/// The candidate that takes least; the usual one, where that saves no more than `least`.
pub(super) fn best<T: Copy + PartialEq>(times: &[(T, Duration)], usual: T, least: Duration) -> T {
    let Some(&(candidate, time)) = times.iter().min_by_key(|(_, time)| *time) else {
        return usual;
    };
    let own = times.iter().find(|(known, _)| *known == usual);
    let saves = |own: Duration| own.saturating_sub(time) > least.max(own / GAIN_MIN);
    if own.is_none_or(|(_, own)| saves(*own)) {
        candidate
    } else {
        usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(times: &[u64]) -> Vec<Duration> {
        times.iter().copied().map(Duration::from_micros).collect()
    }

    #[test]
    fn the_usual_candidate_stays_unless_another_saves_enough() {
        let best = |times: [u64; 3], least| {
            let times: Vec<_> = (0..).zip(micros(&times)).collect();
            best(&times, 2, Duration::from_micros(least))
        };
        assert_eq!(best([100, 50, 200], 0), 1);
        assert_eq!(best([100, 98, 99], 0), 2, "within 2 %");
        assert_eq!(best([100, 50, 200], 150), 2, "nothing for the table");
        assert_eq!(best([0, 0, 0], 0), 2);
        assert_eq!(super::best(&[(7, Duration::ZERO)], 3, Duration::ZERO), 7);
        assert_eq!(super::best(&[], 3, Duration::ZERO), 3);
    }
}
