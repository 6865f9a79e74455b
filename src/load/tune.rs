//! Times the kernels that could run a model on a GPU, and the numbers that tables are planned with.
//!
//! One program has a table for each candidate, so that weights are sent once. Tables are replayed
//! from end to end, in turns: between two runs of a command the device reads all other weights, and
//! a clock that changes its speed changes it for all of them.

use super::build::Build;
use super::device::Device;
use super::tuning::{CHUNKS, PARTS, Tuning};
use super::{Options, Source, compare, inspect, memory};
use crate::device::{Choice, DeviceKind, Extent};
use crate::error::{Context, Result, bail};
use crate::exec::state::Row;
use crate::exec::{Executor, Program};
use crate::op::list::Op;
use crate::op::table::{KernelId, Place, Table};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Rounds that count; one before them warms the device up.
const ROUNDS: u32 = 9;

/// Weights of fewer bytes may stay in a GPU's cache from one replay to the next: no back end tells
/// its size, and the largest that are known have so much.
const COLD_BYTES: u64 = 256 << 20;

/// What another candidate has to save to be taken: this part of what the usual one takes, and that
/// part of its table. Less is noise.
const GAIN_MIN: u32 = 50;
const TABLE_GAIN_MIN: u32 = 1000;

/// What was measured of a model on an adapter.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What came of it.
    pub tuning: Tuning,
    /// Commands that several kernels can run, what takes longest first.
    pub groups: Vec<Group>,
    /// Attention of one token behind a full context, by the positions that it takes at a time;
    /// empty where that changes nothing.
    pub attention_parts: Vec<(u32, Duration)>,
    /// A token of a prompt, by the tokens of a chunk; empty where there is no choice.
    pub chunks: Vec<(u32, Duration)>,
    /// Whether the weights were read from memory and not from a cache.
    pub cold: bool,
}

/// Commands of one operation, storage type and extent.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they work on.
    pub extent: Extent,
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

    fn choice(&self) -> Choice {
        Choice {
            kernel: self.taken.name().to_string(),
            extent: self.extent,
        }
    }
}

/// Measures which kernels and numbers suit a model on a GPU; `report` hears how many rounds of how
/// many are done. [`Tuning::write`] keeps what comes of it for [`load`](super::load).
///
/// # Errors
///
/// `Unsupported` on a CPU, which has no kernels to choose from, and on a GPU that cannot tell the
/// times of commands; else as [`load`](super::load).
pub fn tune(
    source: &Source,
    options: &Options,
    report: &mut dyn FnMut(u32, u32),
) -> Result<Measured> {
    let device = Device::choose(options)?.check_shaders()?;
    let profile = device.profile()?;
    if profile.kind == DeviceKind::Cpu {
        let why = device
            .fallback()
            .map_or(String::new(), |why| format!(" ({why})"));
        bail!(
            Unsupported,
            "tuning: {profile} is a CPU, which has no kernels to choose from{why}"
        );
    }
    let untuned = Options {
        tuning_folder: None,
        ..options.clone()
    };
    let mut build = inspect::prepare(source, &untuned, profile)?;
    let mut tuning = Tuning::usual(&build.profile, &build.catalog, options.precision);
    let (tables, mut trials) = Trials::plan(&mut build, options)?;
    let cold = build.facts(&tables).token_bytes >= COLD_BYTES;
    let mut rig = Rig::link(device, build, tables)?;
    rig.executor.time_commands().context("tuning")?;
    rig.executor.end_timing();
    rig.fill(&trials)?;
    for round in 0..=ROUNDS {
        for trial in trials.all() {
            let laps = rig.time(trial)?;
            if round > 0 {
                trial.laps.push(laps);
            }
        }
        report(round, ROUNDS);
    }
    let groups = groups(&rig.tables, &trials.forms);
    tuning.choices = groups.iter().map(Group::choice).collect();
    let attends = |op| matches!(op, Op::AttendPart | Op::AttendJoin);
    let attention_parts = rig.numbers(&trials.parts, attends);
    let chunks = rig.numbers(&trials.chunks, |_| true);
    tuning.attention_part = best(&attention_parts, tuning.attention_part, Duration::ZERO);
    tuning.chunk_tokens = best(&chunks, tuning.chunk_tokens, Duration::ZERO);
    Ok(Measured {
        tuning,
        groups,
        attention_parts,
        chunks,
        cold,
    })
}

/// A table, the positions of each pass of tokens through it, and what its commands took.
struct Trial {
    table: usize,
    passes: Vec<Range<u32>>,
    /// Commands that are submitted together.
    step: usize,
    /// Of each round, for each command.
    laps: Vec<Vec<Duration>>,
}

impl Trial {
    /// The median of the rounds, each as `of` sums it up.
    fn median(&self, of: impl Fn(&[Duration]) -> Duration) -> Duration {
        median(self.laps.iter().map(|laps| of(laps)).collect())
    }

    /// Tokens that go through it in a round.
    fn tokens(&self) -> u32 {
        self.passes.iter().map(|pass| pass.end - pass.start).sum()
    }
}

/// Every candidate that is tried; numbers only where there are several.
struct Trials {
    /// The tables of one token and of many in each form, the one before the other.
    forms: Vec<Trial>,
    parts: Vec<(u32, Trial)>,
    chunks: Vec<(u32, Trial)>,
}

impl Trials {
    /// Plans the tables of all trials.
    fn plan(build: &mut Build, options: &Options) -> Result<(Vec<Table>, Self)> {
        let mut tables = Vec::new();
        let trials = Self {
            forms: forms(build, &mut tables)?,
            parts: parts(build, &mut tables)?,
            chunks: chunks(build, &mut tables, options)?,
        };
        Ok((tables, trials))
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Trial> {
        let numbers = self.parts.iter_mut().chain(&mut self.chunks);
        self.forms.iter_mut().chain(numbers.map(|(_, trial)| trial))
    }
}

fn trial(tables: &mut Vec<Table>, table: Table, passes: Vec<Range<u32>>) -> Trial {
    let step = table.cmds.len();
    tables.push(table);
    Trial {
        table: tables.len() - 1,
        passes,
        step,
        laps: Vec::new(),
    }
}

/// As many tokens as go through a table, at the end of the context.
fn last(build: &Build, table: &Table) -> Vec<Range<u32>> {
    let context = build.cache.context;
    let tokens = table.tokens.min(context);
    passes(context - tokens..context, tokens)
}

/// The plain kernels, then those of each form alone. The sampled table has all that the greedy one
/// has, and the samplers. Commands run one by one: where they overlap, none has a time of its own.
fn forms(build: &mut Build, tables: &mut Vec<Table>) -> Result<Vec<Trial>> {
    let all = build.profile.forms.clone();
    let mut trials = Vec::new();
    for some in std::iter::once(&[][..]).chain(all.chunks(1)) {
        build.profile.forms = some.to_vec();
        for table in build.sampled()?.into_iter().chain([build.chunk_table()?]) {
            let passes = last(build, &table);
            trials.push(Trial {
                step: 1,
                ..trial(tables, table, passes)
            });
        }
    }
    build.profile.forms = all;
    Ok(trials)
}

/// Attention in parts of other sizes. What cuts no context otherwise than another is no candidate.
fn parts(build: &mut Build, tables: &mut Vec<Table>) -> Result<Vec<(u32, Trial)>> {
    let usual = build.profile.attention_part;
    let mut found: Vec<(u32, Table)> = Vec::new();
    for part in candidates(&PARTS, usual) {
        build.profile.attention_part = part;
        let new = |table: &Table| {
            found
                .iter()
                .all(|(_, known)| !grids(known).eq(grids(table)))
        };
        let table = build.sampled()?.filter(new);
        found.extend(table.map(|table| (part, table)));
    }
    build.profile.attention_part = usual;
    if found.len() < 2 {
        return Ok(Vec::new());
    }
    let of = |(part, table)| {
        let passes = last(build, &table);
        (part, trial(tables, table, passes))
    };
    Ok(found.into_iter().map(of).collect())
}

/// How wide each command of a table is launched.
fn grids(table: &Table) -> impl Iterator<Item = [u32; 3]> {
    table.cmds.iter().map(|cmd| cmd.grid)
}

/// Prompts in chunks of other sizes, each the same tokens from the first position on. An encoder
/// takes a text in one piece.
fn chunks(
    build: &mut Build,
    tables: &mut Vec<Table>,
    options: &Options,
) -> Result<Vec<(u32, Trial)>> {
    let (usual, usual_chunk) = (build.profile.chunk_tokens, build.chunk);
    if build.arch.encoder {
        return Ok(Vec::new());
    }
    let mut found: Vec<(u32, Table)> = Vec::new();
    for chunk in candidates(&CHUNKS, usual) {
        build.profile.chunk_tokens = chunk;
        build.chunk = memory::chunk(
            build.arch,
            &build.config,
            options,
            &build.cache,
            &build.profile,
        )?;
        if found.iter().all(|(_, known)| known.tokens != build.chunk) {
            found.push((chunk, build.chunk_table()?));
        }
    }
    (build.profile.chunk_tokens, build.chunk) = (usual, usual_chunk);
    let longest = found.iter().map(|(_, table)| table.tokens).max();
    let longest = longest.unwrap_or(0).min(build.cache.context);
    if found.len() < 2 {
        return Ok(Vec::new());
    }
    let of = |(chunk, table): (u32, Table)| {
        let passes = passes(0..longest, table.tokens);
        (chunk, trial(tables, table, passes))
    };
    Ok(found.into_iter().map(of).collect())
}

/// The usual number first: what is the same as it is no candidate.
fn candidates(numbers: &[u32], usual: u32) -> impl Iterator<Item = u32> {
    std::iter::once(usual).chain(numbers.iter().copied())
}

/// Positions, so many at a time.
fn passes(positions: Range<u32>, tokens: u32) -> Vec<Range<u32>> {
    let end = positions.end;
    let starts = positions.step_by(tokens as usize);
    starts.map(|start| start..end.min(start + tokens)).collect()
}

/// A device with the tables of all trials.
struct Rig {
    executor: Box<dyn Executor>,
    tables: Arc<[Table]>,
    context: u32,
    vocab: u32,
}

impl Rig {
    fn link(device: Device, build: Build, tables: Vec<Table>) -> Result<Self> {
        let Build {
            catalog,
            profile,
            cache,
            config,
            ..
        } = build;
        let tables: Arc<[Table]> = tables.into();
        let program = Program {
            tables: tables.clone(),
            tensors: Arc::new(catalog),
        };
        Ok(Self {
            executor: device.link(program, profile)?,
            tables,
            context: cache.context,
            vocab: config.vocab,
        })
    }

    /// Puts keys and values at every position, as a prompt would.
    fn fill(&mut self, trials: &Trials) -> Result<()> {
        let Some(trial) = trials.forms.last() else {
            return Ok(());
        };
        let Table { tokens, cmds, .. } = &self.tables[trial.table];
        let (mut all, step) = (passes(0..self.context, *tokens).into_iter(), cmds.len());
        all.try_for_each(|pass| self.pass((trial.table, step), pass))
    }

    /// One pass of the tokens of these positions through a table, so many commands at a time.
    fn pass(&mut self, (table, step): (usize, usize), positions: Range<u32>) -> Result<()> {
        let row = |position: u32| Row {
            token: position.wrapping_mul(7) % self.vocab,
            position,
            ..Row::default()
        };
        let rows: Vec<Row> = positions.map(row).collect();
        let state = compare::state(self.context, &rows);
        self.executor.write(Place::State, 0, &state)?;
        let end = self.tables[table].cmds.len();
        let mut starts = (0..end).step_by(step);
        starts.try_for_each(|at| self.executor.run(table, at..end.min(at + step), 1))
    }

    /// What each command of a trial took in one round.
    fn time(&mut self, trial: &Trial) -> Result<Vec<Duration>> {
        self.executor.time_commands()?;
        for pass in &trial.passes {
            self.pass((trial.table, trial.step), pass.clone())?;
        }
        self.executor.end_timing();
        let laps = self.executor.laps(trial.table).iter();
        Ok(laps.map(|lap| lap.took).collect())
    }

    /// What the commands of some operations took for a token, by the number that is tried.
    fn numbers(&self, trials: &[(u32, Trial)], ops: impl Fn(Op) -> bool) -> Vec<(u32, Duration)> {
        let of = |(number, trial): &(u32, Trial)| {
            let cmds = &self.tables[trial.table].cmds;
            let all = |laps: &[Duration]| {
                let pairs = cmds.iter().zip(laps);
                pairs
                    .filter(|(cmd, _)| ops(cmd.op))
                    .map(|(_, lap)| *lap)
                    .sum()
            };
            (*number, trial.median(all) / trial.tokens().max(1))
        };
        let mut all: Vec<_> = trials.iter().map(of).collect();
        all.sort_by_key(|(number, _)| *number);
        all
    }
}

/// What commands of a group have in common: the plain kernel, and what they work on.
type Key = (u16, Extent);

/// Commands of a group by kernel: how many there are in a table, and what one took in each round.
type Samples = BTreeMap<u16, (usize, Vec<Duration>)>;

/// Puts together what the commands of the tables in each form took.
fn groups(tables: &[Table], trials: &[Trial]) -> Vec<Group> {
    let mut found: BTreeMap<Key, Samples> = BTreeMap::new();
    for trial in trials {
        let table = &tables[trial.table];
        let mut alike: BTreeMap<(Key, u16), Vec<usize>> = BTreeMap::new();
        for (at, cmd) in table.cmds.iter().enumerate() {
            let plain = KernelId::all(cmd.op, cmd.kernel.variant(), &[]).next();
            let plain = plain.map_or(cmd.kernel.0, |kernel| kernel.0);
            let key = (plain, table.extent(cmd.slots()));
            alike.entry((key, cmd.kernel.0)).or_default().push(at);
        }
        for ((key, kernel), cmds) in alike {
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
    choose(&mut groups);
    groups.sort_by_key(|group| std::cmp::Reverse(group.usual()));
    groups
}

fn group((_, extent): Key, samples: Samples) -> Group {
    let counts = samples.values().map(|(count, _)| *count);
    let commands = u32::try_from(counts.max().unwrap_or(0)).expect("tables are small");
    let time = |(kernel, (_, samples))| (KernelId(kernel), median(samples) * commands);
    let times: Vec<_> = samples.into_iter().map(time).collect();
    Group {
        extent,
        commands,
        taken: times.last().map_or(KernelId(0), |(kernel, _)| *kernel),
        times,
    }
}

/// Takes the best kernel of each group, which has the usual one so far.
fn choose(groups: &mut [Group]) {
    let whole = |many: bool| -> Duration {
        let some = groups.iter().filter(|group| group.extent.many == many);
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
fn best<T: Copy + PartialEq>(times: &[(T, Duration)], usual: T, least: Duration) -> T {
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
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

    #[test]
    fn a_median_is_no_outlier() {
        assert_eq!(median(micros(&[9, 1, 5000])), Duration::from_micros(9));
        assert_eq!(median(vec![]), Duration::ZERO);
    }

    #[test]
    fn passes_are_all_positions_once() {
        assert_eq!(passes(0..10, 4), [0..4, 4..8, 8..10]);
        assert_eq!(passes(7..10, 2), [7..9, 9..10]);
        assert_eq!(passes(3..3, 2), []);
    }
}
