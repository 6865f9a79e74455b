//! Autotuning: measures the candidate kernels and planning parameters of a model on a GPU.
//!
//! One program contains a table for each candidate, so that weights are uploaded once. Tables are
//! replayed whole and in turns: between two runs of a command the device reads all other weights,
//! and a change of its clock affects all candidates. The selection is then compared with the default
//! tables as a whole.

mod candidates;
mod group;
mod runner;

use crate::device::DeviceKind;
use crate::error::{Result, bail};
use crate::load::build::Build;
use crate::load::options::LoadOptions;
use crate::load::selected_device::SelectedDevice;
use crate::load::source::Source;
use crate::load::tuning::Tuning;
use crate::op::list::Op;
use crate::op::table::Table;
use candidates::{Candidate, Candidates};
pub use group::CommandGroup;
use group::{best, groups};
use runner::{ROUNDS, Runner};
use std::time::Duration;

/// Weights below this size may stay in a GPU cache between replays. It is the largest known cache
/// size; no backend reports the actual size.
const COLD_BYTES: u64 = 256 << 20;

/// Result of [`tune`].
#[derive(Clone, Debug)]
pub struct TuneReport {
    /// The selected kernels and parameters.
    pub tuning: Tuning,
    /// Groups of commands with several candidate kernels, slowest first.
    pub groups: Vec<CommandGroup>,
    /// Attention time of one token at full context for each number of positions per part; empty if
    /// there is only one candidate.
    pub attention_parts: Vec<(u32, Duration)>,
    /// Time per prompt token for each chunk size; empty if there is only one candidate.
    pub chunks: Vec<(u32, Duration)>,
    /// Whole-table times of the decode table and of the prefill table, if tuning changes them.
    pub speedups: Vec<Speedup>,
    /// Whether the weights were read from memory rather than from a cache.
    pub cold: bool,
}

/// Time per token of a whole table, before and after tuning. If tuning is not faster, the tuning
/// keeps the defaults for this kind of table.
#[derive(Clone, Copy, Debug)]
pub struct Speedup {
    /// Whether this is the prefill table, with many tokens, or the decode table, with one.
    pub multiple_tokens: bool,
    /// Time per token with the defaults.
    pub default: Duration,
    /// Time per token with the selected kernels and parameters.
    pub tuned: Duration,
}

impl Speedup {
    /// Returns whether tuning makes the table faster.
    pub fn is_faster(&self) -> bool {
        self.tuned < self.default
    }

    /// Restores the defaults for this kind of table.
    fn revert(&self, tuning: &mut Tuning, default: &Tuning) {
        tuning
            .tuned_kernels
            .retain(|kernel| kernel.extent.multiple_tokens != self.multiple_tokens);
        if self.multiple_tokens {
            tuning.chunk_tokens = default.chunk_tokens;
        } else {
            tuning.attention_part = default.attention_part;
        }
    }
}

/// Measures the fastest kernels and parameters of a model on a GPU. `report` receives the number of
/// finished rounds and the maximum number of rounds. [`Tuning::write`] stores the result for
/// `ModelBuilder::load`.
///
/// # Errors
///
/// `Unsupported` on a CPU, which has no candidate kernels, and on a GPU without timestamp queries;
/// otherwise as `ModelBuilder::load`.
pub fn tune(
    source: &Source,
    options: &LoadOptions,
    report: &mut dyn FnMut(u32, u32),
) -> Result<TuneReport> {
    let device = SelectedDevice::choose(options)?.check_shaders()?;
    let profile = device.profile()?;
    if profile.kind == DeviceKind::Cpu {
        let why = device
            .fallback()
            .map_or(String::new(), |why| format!(" ({why})"));
        bail!(Unsupported, "tuning requires a GPU, got {profile}{why}");
    }
    let untuned = options.clone().tuning_path(None);
    let mut build = Build::prepare(source, &untuned, profile)?;
    let default = Tuning::default_for(&build.profile, &build.catalog, options.precision);
    let (tables, mut candidates) = Candidates::plan(&mut build, options)?;
    let cold = build.facts(&tables, None).token_bytes >= COLD_BYTES;
    let mut rounds = 0;
    let mut done = || {
        rounds += 1;
        report(rounds, 2 * (ROUNDS + 1));
    };
    let mut runner = Runner::link(&device, &build, tables)?;
    runner.rounds(candidates.all().collect(), &mut done)?;
    let groups = groups(&runner.tables, &candidates.variants);
    let is_attention = |op| matches!(op, Op::AttendPart | Op::AttendJoin);
    let attention_parts = runner.token_times(&candidates.parts, is_attention);
    let chunks = runner.token_times(&candidates.chunks, |_| true);
    // The device has memory for one program.
    drop(runner);
    let mut tuning = Tuning {
        tuned_kernels: groups
            .iter()
            .filter_map(CommandGroup::tuned_kernel)
            .collect(),
        attention_part: best(&attention_parts, default.attention_part, Duration::ZERO),
        chunk_tokens: best(&chunks, default.chunk_tokens, Duration::ZERO),
        ..default.clone()
    };
    let speedups = speedups(&device, &mut build, options, &tuning, &mut done)?;
    for speedup in speedups.iter().filter(|speedup| !speedup.is_faster()) {
        speedup.revert(&mut tuning, &default);
    }
    Ok(TuneReport {
        tuning,
        groups,
        attention_parts,
        chunks,
        speedups,
        cold,
    })
}

/// Times whole tables with the defaults and with the tuning.
fn speedups(
    device: &SelectedDevice,
    build: &mut Build,
    options: &LoadOptions,
    tuning: &Tuning,
    done: &mut dyn FnMut(),
) -> Result<Vec<Speedup>> {
    let mut tables = Vec::new();
    let mut defaults = candidates::whole_tables(build, &mut tables)?;
    tuning.apply(&mut build.profile);
    build.chunk = candidates::chunk_of(build, options)?;
    let mut tuned = candidates::whole_tables(build, &mut tables)?;
    let pairs = defaults.iter_mut().zip(&mut tuned);
    let mut pairs: Vec<_> = pairs
        .filter(|(default, tuned)| !same(&tables[default.table], &tables[tuned.table]))
        .collect();
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let mut runner = Runner::link(device, build, tables)?;
    let all = pairs
        .iter_mut()
        .flat_map(|(default, tuned)| [&mut **default, &mut **tuned]);
    runner.rounds(all.collect(), done)?;
    let speedup = |(default, tuned): &(&mut Candidate, &mut Candidate)| Speedup {
        multiple_tokens: runner.tables[default.table].tokens > 1,
        default: runner.token_time(default, |_| true),
        tuned: runner.token_time(tuned, |_| true),
    };
    Ok(pairs.iter().map(speedup).collect())
}

/// Returns whether two tables of one model launch the same kernels with the same parameters.
fn same(a: &Table, b: &Table) -> bool {
    let launches = |table: &Table| -> Vec<_> {
        let cmds = table.cmds.iter();
        cmds.map(|cmd| (cmd.kernel, cmd.grid)).collect()
    };
    a.params == b.params && launches(a) == launches(b)
}
