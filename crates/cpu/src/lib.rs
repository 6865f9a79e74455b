//! The CPU: tables linked to kernels of the processor's own instruction set.
//!
//! Link resolves every command once: which kernel at which level, where its operands lie, how
//! its work is cut among the threads, before which commands the threads wait for each other.
//! `run` walks what is left, an array of calls. It allocates nothing and decides nothing.

mod descriptors;
mod kernel;
mod link;
mod memory;
mod options;
mod pack;
mod panel;
mod peak;
mod pool;
mod simd;
mod step;
mod work;

/// What tests call. Not part of the API.
#[doc(hidden)]
pub mod internals {
    pub use crate::kernel::internals::*;
    #[cfg(target_arch = "x86_64")]
    pub use crate::panel::FLOATS;
    pub use crate::panel::affine::{Eight, Four, Groups};
    pub use crate::panel::{
        CHUNK_BYTES, Format, Layout, STRETCH, Visit as FormatVisit, visit as visit_format,
    };
    #[cfg(target_arch = "x86_64")]
    pub use crate::simd::amx::{Apart, Block, ROW_BYTES, Shape as TileShape, TILE};
    #[cfg(target_arch = "x86_64")]
    pub use crate::simd::avx512::Avx512;
    pub use crate::simd::rows::ROWS;
    pub use crate::simd::words::{Words, turn};
    pub use crate::simd::{Isa, Probe, Scalar, Simd, Unpack};

    /// Functions of f32.
    pub mod math {
        pub use crate::simd::math::{exp, ln, max, normal, sum, tanh};
    }
}

use link::Target;
use memory::Operand;
pub use options::Options;
pub use peak::{Peak, peak, read};
use pool::Pool;
use simd::Isa;
pub use simd::Level;
use std::collections::BTreeMap;
use std::time::Instant;
use step::Steps;
use tabla_core::device::{DeviceKind, Fusion, Profile};
use tabla_core::error::{Result, bail};
use tabla_core::exec::{
    COPIES_MAX, COPY_BYTES_MAX, CommandTiming, Copies, Copying, Executor, Program, Span,
    check_disjoint,
};
use tabla_core::op::table::{BufferId, Cmds};

/// A token of fewer bytes is left to one thread: its commands take about as long as the barriers
/// between them, and far less than a barrier on a machine whose cores are busy elsewhere.
const SHARE_BYTES_MIN: u64 = 8 << 20;

/// Workgroups in one dimension, as on GPUs, so that listings agree.
const GRID_MAX: u32 = 65_535;

/// Tokens of a prefill chunk: its activations stay in the second-level cache.
const CHUNK_TOKENS: u32 = 256;

/// Tokens of the longest chain.
const CHAIN_TOKENS: u32 = 32;

/// The facts of this machine that planning may use.
///
/// # Errors
///
/// As [`Level::best`], and `Argument` for too many threads.
pub fn profile(options: &Options) -> Result<Profile> {
    let threads = u32::try_from(options.threads()?).expect("far below 2^32");
    Ok(Profile {
        kind: DeviceKind::Cpu,
        name: name(),
        backend: options.level()?.name().to_string(),
        driver: String::new(),
        threads,
        cache_bytes: cache_bytes(),
        grid_max: GRID_MAX,
        binding_bytes_max: u64::MAX,
        weight_bytes: |dtype, rows, cols| {
            let elements = u64::from(rows) * u64::from(cols);
            dtype.bytes(elements).unwrap_or_default()
        },
        bindings_max: 8,
        forms: Vec::new(),
        choices: Vec::new(),
        fusion: Fusion::None,
        attention_part: 0,
        chunk_tokens: CHUNK_TOKENS,
        burst_tokens: CHAIN_TOKENS,
        asynchronous: false,
    })
}

/// Links a program to the CPU.
///
/// # Errors
///
/// `Argument` and `Unsupported` for options that this machine cannot follow, `Memory` where
/// places or threads cannot be had, `Internal` for tables that contradict themselves.
pub fn link(program: Program, options: &Options) -> Result<Box<dyn Executor>> {
    let mut options = *options;
    if options.threads == 0 && token_bytes(&program) < SHARE_BYTES_MIN {
        options.threads = 1;
    }
    let target = target(&options)?;
    let linked = link::link(program, target)?;
    Ok(Box::new(Cpu {
        profile: profile(&options)?,
        places: linked.places,
        copies: Copies::default(),
        copied: vec![0; COPIES_MAX * COPY_BYTES_MAX],
        laps: Vec::new(),
        timed_since: None,
        pool: Pool::new(linked.tables, target.threads)?,
    }))
}

/// Bytes that the weights of a program would take if it were linked with
/// [`packed`](Options::packed).
///
/// # Errors
///
/// As [`link`].
pub fn packed_bytes(program: &Program, options: &Options) -> Result<u64> {
    link::packed_bytes(program, target(options)?)
}

fn target(options: &Options) -> Result<Target> {
    Ok(Target {
        isa: Isa::of(options.level()?)?,
        precision: options.precision,
        packed: options.packed,
        threads: options.threads()?,
    })
}

/// What the heaviest table, which is the one for single tokens, moves per token.
fn token_bytes(program: &Program) -> u64 {
    let tables = program.tables.iter();
    let bytes = tables.map(|t| t.total().bytes / u64::from(t.tokens.max(1)));
    bytes.max().unwrap_or(0)
}

/// LinkedTable tables and the threads that walk them.
#[derive(Debug)]
struct Cpu {
    profile: Profile,
    places: BTreeMap<BufferId, Operand>,
    copies: Copies,
    /// Their rooms, one behind the other.
    copied: Vec<u8>,
    /// For each table its commands, as timed.
    laps: Vec<Vec<CommandTiming>>,
    /// Since when they are timed, while they are.
    timed_since: Option<Instant>,
    pool: Pool,
}

/// Bytes of a place, while no command runs.
fn span_of<'a>(
    places: &BTreeMap<BufferId, Operand>,
    pool: &'a mut Pool,
    span: Span,
) -> Result<&'a mut [u8]> {
    let Span {
        place,
        offset,
        bytes: len,
    } = span;
    let Some(operand) = places.get(&place) else {
        bail!(Argument, "{place:?} is no place of these tables");
    };
    let bytes = pool.memory(*operand);
    let all = bytes.len();
    match offset
        .checked_add(len)
        .and_then(|end| bytes.get_mut(offset..end))
    {
        Some(bytes) => Ok(bytes),
        None => bail!(
            Argument,
            "{place:?}: {len} bytes from {offset} leave its {all}"
        ),
    }
}

impl Executor for Cpu {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        let tables = self.pool.tables();
        let Some(count) = tables.get(table).map(Steps::cmds) else {
            bail!(Argument, "table {table} of {}", tables.len());
        };
        let Cmds { body, stage: tail } = &cmds;
        if body.start > body.end
            || body.end > tail.start
            || tail.start > tail.end
            || tail.end > count
        {
            bail!(Argument, "commands {cmds:?} of {count}");
        }
        let laps = self.laps.get_mut(table).map(Vec::as_mut_slice);
        let laps = self.timed_since.zip(laps);
        self.pool.run(table, &cmds, times, laps)
    }

    fn write(&mut self, place: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        let span = Span::new(place, offset, bytes.len());
        span_of(&self.places, &mut self.pool, span)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, place: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let span = Span::new(place, offset, bytes.len());
        bytes.copy_from_slice(span_of(&self.places, &mut self.pool, span)?);
        Ok(())
    }

    fn duplicate(&mut self, place: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        check_disjoint(from, to, bytes)?;
        let (first, last) = (from.min(to), from.max(to));
        let span = Span::new(place, first, (last - first).saturating_add(bytes));
        let both = span_of(&self.places, &mut self.pool, span)?;
        both.copy_within(from - first..from - first + bytes, to - first);
        Ok(())
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        let (copying, room) = self.copies.begin(spans)?;
        let mut at = room * COPY_BYTES_MAX;
        for span in spans {
            let bytes = span_of(&self.places, &mut self.pool, *span)?;
            self.copied[at..at + span.bytes].copy_from_slice(bytes);
            at += span.bytes;
        }
        Ok(copying)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        let room = self.copies.find(&copying, bytes.len())? * COPY_BYTES_MAX;
        bytes.copy_from_slice(&self.copied[room..room + bytes.len()]);
        Ok(())
    }

    fn time_commands(&mut self) -> Result<()> {
        let tables = self.pool.tables().iter();
        self.laps = tables
            .map(|t| vec![CommandTiming::default(); t.cmds()])
            .collect();
        self.timed_since = Some(Instant::now());
        Ok(())
    }

    fn end_timing(&mut self) {
        self.timed_since = None;
    }

    fn laps(&self, table: usize) -> &[CommandTiming] {
        self.laps.get(table).map_or(&[], Vec::as_slice)
    }
}

/// The processor's name, where the system tells it.
fn name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|l| l.starts_with("model name"));
    let name = line.and_then(|l| l.split_once(':')).map(|(_, n)| n.trim());
    name.unwrap_or(std::env::consts::ARCH).to_string()
}

/// Size of the last-level data cache, where the system tells it.
fn cache_bytes() -> u64 {
    let index = |i| format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size");
    (0..8)
        .filter_map(|i| std::fs::read_to_string(index(i)).ok())
        .filter_map(|text| text.trim().strip_suffix('K')?.parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .max()
        .unwrap_or(0)
}
