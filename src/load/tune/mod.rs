//! Times the kernels that could run a model on a GPU, and the numbers that tables are planned with.
//!
//! One program has a table for each candidate, so that weights are sent once. Tables are replayed
//! from end to end, in turns: between two runs of a command the device reads all other weights, and
//! a clock that changes its speed changes it for all of them. What was chosen command by command is
//! then held against the usual tables as a whole.

mod group;
mod rig;
mod trial;

use super::build::Build;
use super::device::Device;
use super::inspect;
use super::options::LoadOptions;
use super::source::Source;
use super::tuning::Tuning;
use crate::device::{DeviceKind, Fusion};
use crate::error::{Result, bail};
use crate::op::list::Op;
use crate::op::table::Table;
pub use group::Group;
use group::{best, groups};
use rig::{ROUNDS, Rig};
use std::time::Duration;
use trial::{Trial, Trials};

/// Weights of fewer bytes may stay in a GPU's cache from one replay to the next: no back end tells
/// its size, and the largest that are known have so much.
const COLD_BYTES: u64 = 256 << 20;

/// What was measured of a model on an adapter.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What came of it.
    pub tuning: Tuning,
    /// Commands that several kernels can run, what takes longest first.
    pub groups: Vec<Group>,
    /// A token, by the small commands that products do themselves; empty where there are none.
    pub fusions: Vec<(Fusion, Duration)>,
    /// Attention of one token behind a full context, by the positions that it takes at a time;
    /// empty where that changes nothing.
    pub attention_parts: Vec<(u32, Duration)>,
    /// A token of a prompt, by the tokens of a chunk; empty where there is no choice.
    pub chunks: Vec<(u32, Duration)>,
    /// The table of one token and that of many, where something came of it, each replayed whole.
    pub gains: Vec<Gain>,
    /// Whether the weights were read from memory and not from a cache.
    pub cold: bool,
}

/// What a token takes in a table that is replayed whole. Where it takes no less as was measured,
/// the tuning leaves commands like those of the table as is usual.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// Whether the table takes many tokens at once.
    pub many: bool,
    /// As is usual.
    pub usual: Duration,
    /// With the kernels and numbers that were found to be the best.
    pub tuned: Duration,
}

impl Gain {
    /// Whether tuning makes the table faster.
    pub fn pays(&self) -> bool {
        self.tuned < self.usual
    }

    /// Leaves commands like those of the table as is usual.
    fn forgo(&self, tuning: &mut Tuning, usual: &Tuning) {
        tuning
            .choices
            .retain(|choice| choice.extent.many != self.many);
        if self.many {
            tuning.chunk_tokens = usual.chunk_tokens;
        } else {
            tuning.fusion = usual.fusion;
            tuning.attention_part = usual.attention_part;
        }
    }
}

/// Measures which kernels and numbers suit a model on a GPU; `report` hears how many rounds of how
/// many at most are done. [`Tuning::write`] keeps what comes of it for [`load`](crate::load()).
///
/// # Errors
///
/// `Unsupported` on a CPU, which has no kernels to choose from, and on a GPU that cannot tell the
/// times of commands; else as [`load`](crate::load()).
pub fn tune(
    source: &Source,
    options: &LoadOptions,
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
    let untuned = LoadOptions {
        tuning_folder: None,
        ..options.clone()
    };
    let mut build = inspect::prepare(source, &untuned, profile)?;
    let usual = Tuning::usual(&build.profile, &build.catalog, options.precision);
    let (tables, mut trials) = Trials::plan(&mut build, options)?;
    let cold = build.facts(&tables).token_bytes >= COLD_BYTES;
    let mut rounds = 0;
    let mut done = || {
        rounds += 1;
        report(rounds, 2 * (ROUNDS + 1));
    };
    let mut rig = Rig::link(&device, &build, tables)?;
    rig.rounds(trials.all().collect(), &mut done)?;
    let groups = groups(&rig.tables, &trials.forms);
    let attends = |op| matches!(op, Op::AttendPart | Op::AttendJoin);
    let fusions = rig.numbers(&trials.fusions, |_| true);
    let attention_parts = rig.numbers(&trials.parts, attends);
    let chunks = rig.numbers(&trials.chunks, |_| true);
    // The device has room for one program.
    drop(rig);
    let mut tuning = Tuning {
        choices: groups.iter().map(Group::choice).collect(),
        fusion: best(&fusions, usual.fusion, Duration::ZERO),
        attention_part: best(&attention_parts, usual.attention_part, Duration::ZERO),
        chunk_tokens: best(&chunks, usual.chunk_tokens, Duration::ZERO),
        ..usual.clone()
    };
    let gains = gains(&device, &mut build, (options, &tuning), &mut done)?;
    for gain in gains.iter().filter(|gain| !gain.pays()) {
        gain.forgo(&mut tuning, &usual);
    }
    Ok(Measured {
        tuning,
        groups,
        fusions,
        attention_parts,
        chunks,
        gains,
        cold,
    })
}

/// Replays whole tables as is usual and as was measured.
fn gains(
    device: &Device,
    build: &mut Build,
    (options, tuning): (&LoadOptions, &Tuning),
    done: &mut dyn FnMut(),
) -> Result<Vec<Gain>> {
    let mut tables = Vec::new();
    let mut usual = trial::whole(build, &mut tables)?;
    tuning.put_into(&mut build.profile);
    build.chunk = trial::chunk_of(build, options)?;
    let mut tuned = trial::whole(build, &mut tables)?;
    let pairs = usual.iter_mut().zip(&mut tuned);
    let mut pairs: Vec<_> = pairs
        .filter(|(usual, tuned)| !same(&tables[usual.table], &tables[tuned.table]))
        .collect();
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let mut rig = Rig::link(device, build, tables)?;
    let trials = pairs
        .iter_mut()
        .flat_map(|(usual, tuned)| [&mut **usual, &mut **tuned]);
    rig.rounds(trials.collect(), done)?;
    let gain = |(usual, tuned): &(&mut Trial, &mut Trial)| Gain {
        many: rig.tables[usual.table].tokens > 1,
        usual: rig.token(usual, |_| true),
        tuned: rig.token(tuned, |_| true),
    };
    Ok(pairs.iter().map(gain).collect())
}

/// Whether two tables of one model launch the same.
fn same(a: &Table, b: &Table) -> bool {
    let launches = |table: &Table| -> Vec<_> {
        let cmds = table.cmds.iter();
        cmds.map(|cmd| (cmd.kernel, cmd.grid)).collect()
    };
    a.params == b.params && launches(a) == launches(b)
}
