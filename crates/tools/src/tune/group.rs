//! Groups of commands with several candidate kernels, and kernel selection.

use super::candidates::{Candidate, median};
use crate::device::{ProblemSize, TunedKernel};
use crate::op::table::{KernelId, Place, Table};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum saving of a kernel to replace the default one: `1 / MIN_SAVING` of the default kernel's
/// time and `1 / MIN_TABLE_SAVING` of the table's time. Smaller differences are noise.
const MIN_SAVING: u32 = 50;
const MIN_TABLE_SAVING: u32 = 1000;

/// Commands of one operation, storage type and problem size.
#[derive(Clone, Debug)]
pub struct CommandGroup {
    /// Problem size.
    pub size: ProblemSize,
    /// Number of these commands in a table.
    pub commands: u32,
    /// Candidate kernels, and the time of all commands of the group in one replay. The base kernel
    /// comes first, the default kernel last.
    pub times: Vec<(KernelId, Duration)>,
    /// The selected kernel.
    pub selected: KernelId,
}

impl CommandGroup {
    /// Returns the time of the commands with the default kernel.
    pub fn default_time(&self) -> Duration {
        self.times.last().map_or(Duration::ZERO, |(_, time)| *time)
    }

    /// Returns the selected kernel, unless it is the default one: that of other numbers of tokens may differ.
    pub(super) fn tuned_kernel(&self) -> Option<TunedKernel> {
        let default = self.times.last().map(|(kernel, _)| *kernel);
        (default != Some(self.selected)).then(|| TunedKernel {
            kernel: self.selected.name(),
            extent: self.size,
        })
    }
}

/// Key of a group: the base kernel and the problem size.
type Key = (KernelId, ProblemSize);

/// For each kernel of a group: the number of commands in a table, and the time of one command in
/// each round.
type Samples = BTreeMap<KernelId, (usize, Vec<Duration>)>;

/// Groups the command times of all candidates.
pub(super) fn groups(tables: &[Table], candidates: &[Candidate]) -> Vec<CommandGroup> {
    let mut by_key: BTreeMap<Key, Samples> = BTreeMap::new();
    for candidate in candidates {
        let table = &tables[candidate.table];
        let mut alike: BTreeMap<(Key, KernelId), Vec<usize>> = BTreeMap::new();
        // The CPU has no candidate kernels.
        let cmds = table.cmds.iter().enumerate();
        for (at, cmd) in cmds.filter(|(_, cmd)| cmd.place == Place::Device) {
            let base = KernelId::all(cmd.kernel.op, cmd.kernel.dtype, &[]).next();
            let base = base.unwrap_or(cmd.kernel);
            let key = (base, table.extent(cmd.slots()));
            alike.entry((key, cmd.kernel)).or_default().push(at);
        }
        for ((key, kernel), cmds) in alike {
            let samples = by_key.entry(key).or_default().entry(kernel);
            let (count, samples) = samples.or_default();
            *count = cmds.len().max(*count);
            let mean = |times: &Vec<Duration>| {
                let all: Duration = cmds.iter().map(|at| times[*at]).sum();
                all.div_f64(cmds.len() as f64)
            };
            samples.extend(candidate.times.iter().map(mean));
        }
    }
    let several = by_key.into_iter().filter(|(_, samples)| samples.len() > 1);
    let mut groups: Vec<CommandGroup> = several.map(|(key, samples)| group(key, samples)).collect();
    select(&mut groups);
    groups.sort_by_key(|group| std::cmp::Reverse(group.default_time()));
    groups
}

fn group((base, size): Key, samples: Samples) -> CommandGroup {
    let counts = samples.values().map(|(count, _)| *count);
    let commands = u32::try_from(counts.max().unwrap_or(0)).expect("tables are small");
    let time = |(kernel, (_, samples))| (kernel, median(samples) * commands);
    let times: Vec<_> = samples.into_iter().map(time).collect();
    CommandGroup {
        size,
        commands,
        selected: times.last().map_or(base, |(kernel, _)| *kernel),
        times,
    }
}

/// Selects the fastest kernel of each group.
fn select(groups: &mut [CommandGroup]) {
    let table_time = |multiple_tokens: bool| -> Duration {
        let some = groups
            .iter()
            .filter(|group| group.size.multiple_tokens == multiple_tokens);
        some.map(CommandGroup::default_time).sum()
    };
    let min_savings =
        [false, true].map(|multiple_tokens| table_time(multiple_tokens) / MIN_TABLE_SAVING);
    for group in groups {
        group.selected = best(
            &group.times,
            group.selected,
            min_savings[usize::from(group.size.multiple_tokens)],
        );
    }
}

/// Returns the fastest candidate, or the default one if that does not save more than `min_saving`.
pub(super) fn best<T: Copy + PartialEq>(
    times: &[(T, Duration)],
    default: T,
    min_saving: Duration,
) -> T {
    let Some(&(candidate, time)) = times.iter().min_by_key(|(_, time)| *time) else {
        return default;
    };
    let default_time = times.iter().find(|(known, _)| *known == default);
    let saves = |own: Duration| own.saturating_sub(time) > min_saving.max(own / MIN_SAVING);
    if default_time.is_none_or(|(_, own)| saves(*own)) {
        candidate
    } else {
        default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(times: &[u64]) -> Vec<Duration> {
        times.iter().copied().map(Duration::from_micros).collect()
    }

    #[test]
    fn selects_a_candidate_only_if_it_saves_enough() {
        let best = |times: [u64; 3], min_saving| {
            let times: Vec<_> = (0..).zip(micros(&times)).collect();
            best(&times, 2, Duration::from_micros(min_saving))
        };
        assert_eq!(best([100, 50, 200], 0), 1);
        assert_eq!(best([100, 98, 99], 0), 2, "within 2 %");
        assert_eq!(best([100, 50, 200], 150), 2, "too little for the table");
        assert_eq!(best([0, 0, 0], 0), 2);
        assert_eq!(super::best(&[(7, Duration::ZERO)], 3, Duration::ZERO), 7);
        assert_eq!(super::best(&[], 3, Duration::ZERO), 3);
    }
}
