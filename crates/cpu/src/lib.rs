//! CPU backend: links tables to kernels of the processor's instruction set.
//!
//! Link resolves every command once: the kernel and its level, the addresses of its operands, how
//! its work is divided among threads, and where barriers are needed. `run` then replays an array of
//! calls; it allocates nothing and makes no decisions.

mod descriptors;
mod hazards;
mod kernel;
mod launches;
mod link;
mod memory;
mod options;
mod pack;
mod panel;
mod peak;
mod pool;
mod simd;
mod step;
mod stored;
mod usage;
mod work;

/// Functions for tests. Not part of the API.
#[doc(hidden)]
pub mod internals {
    pub use crate::kernel::internals::*;
    #[cfg(target_arch = "x86_64")]
    pub use crate::panel::FLOATS;
    pub use crate::panel::affine::Groups;
    pub use crate::panel::{CHUNK_BYTES, QK, layout};
    #[cfg(target_arch = "x86_64")]
    pub use crate::simd::amx::{ROW_BYTES, Strides, SumTile, TILE, TileShape};
    #[cfg(target_arch = "x86_64")]
    pub use crate::simd::avx512::Avx512;
    pub use crate::simd::rows::ROWS;
    pub use crate::simd::words::{Words, transpose};
    pub use crate::simd::{Isa, Probe, Scalar, Simd, Unpack};

    /// Functions of f32.
    pub mod math {
        pub use crate::simd::math::{exp, ln, max, normal, sum, tanh};
    }
}

use launches::{Target, launches_of};
use link::{Buffers, CacheMemory};
use memory::Operand;
pub use options::LinkOptions;
pub use peak::{Peak, peak, read};
use pool::Pool;
use simd::Isa;
pub use simd::Level;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use step::Steps;
pub use stored::{StoredPanels, reads_panels};
use tabla_core::device::{DeviceKind, Profile};
use tabla_core::error::{Result, bail};
use tabla_core::exec::{
    COPIES_MAX, COPY_BYTES_MAX, CommandTiming, Copies, Copying, Executor, Program, Span, Tensors,
    check_disjoint, is_private, reject_empty,
};
use tabla_core::op::params::State;
use tabla_core::op::table::{self, BufferId, Cmds};
pub use usage::MemoryUsage;

/// Minimum number of bytes that a token must read to use more than one thread. Below it, commands
/// take about as long as the barriers between them, and less than a barrier on a machine whose
/// cores are busy.
const SHARE_BYTES_MIN: u64 = 8 << 20;

/// Maximum number of workgroups in one dimension; the value of GPUs, so that listings agree.
const GRID_MAX: u32 = 65_535;

/// Rows of a first pass from which the KV cache is in huge pages at once. Zeroing a huge page of each layer takes longer
/// than a short prompt; without them, decoding after thousands of tokens takes 10 % longer.
const LONG_PROMPT_ROWS: usize = 128;

/// Tokens of a prefill chunk: its activations fit the L2 cache.
const CHUNK_TOKENS: u32 = 256;

/// Maximum number of tokens in a burst.
const BURST_TOKENS: u32 = 32;

/// Returns the properties of this machine that planning uses.
///
/// # Errors
///
/// The errors of [`Level::best`]; `Argument` for too many threads.
pub fn profile(options: &LinkOptions) -> Result<Profile> {
    let threads =
        u32::try_from(options.thread_count()?).expect("the number of threads is far below 2^32");
    Ok(Profile {
        kind: DeviceKind::Cpu,
        name: NAME.clone(),
        backend: options.level_or_best()?.name().to_string(),
        driver: String::new(),
        threads,
        cores: 0,
        cache_bytes: *CACHE_BYTES,
        grid_max: GRID_MAX,
        binding_bytes_max: u64::MAX,
        weight_bytes: |dtype, rows, cols| {
            let elements = u64::from(rows) * u64::from(cols);
            dtype.bytes(elements).unwrap_or_default()
        },
        bindings_max: 8,
        variants: Vec::new(),
        tuned_kernels: Vec::new(),
        attention_part: 0,
        chunk_tokens: CHUNK_TOKENS,
        burst_tokens: BURST_TOKENS,
        asynchronous: false,
        host_experts: None,
    })
}

/// Links a program to the CPU.
///
/// # Errors
///
/// `Argument` and `Unsupported` for options that this machine does not support, `Memory` if buffers
/// or threads cannot be allocated, `Internal` for inconsistent tables.
pub fn link(program: Program, options: &LinkOptions) -> Result<Box<dyn Executor>> {
    link_fitting(program, options, &|_| Ok(options.packed_bytes))
}

/// Links a program with as many packed weights as `fit` returns for the memory that it needs if all of them are
/// packed; [`LinkOptions::packed_bytes`] is not used.
///
/// # Errors
///
/// Those of [`link`] and of `fit`.
pub fn link_fitting(
    program: Program,
    options: &LinkOptions,
    fit: &dyn Fn(MemoryUsage) -> Result<u64>,
) -> Result<Box<dyn Executor>> {
    let mut target = target(&program, &options.packed_bytes(u64::MAX))?;
    let none = Buffers::none();
    let mut launches = launches_of(&program, target, &none.panels)?;
    let all = MemoryUsage::of(&program, target, &launches)?;
    target.packed_bytes = fit(all)?;
    if target.packed_bytes < all.packed {
        launches = launches_of(&program, target, &none.panels)?;
    }
    let tensors = Arc::clone(&program.tensors);
    let linked = link::link_launches(program, launches, target, &none)?;
    // Tables that are added may pack what remains.
    let packed_bytes = target.packed_bytes - linked.packed_bytes;
    Ok(Box::new(Cpu {
        tensors,
        profile: Profile {
            threads: u32::try_from(target.threads).expect("far below 2^32"),
            ..profile(options)?
        },
        target: Target {
            packed_bytes,
            ..target
        },
        memory: linked.memory,
        buffers: linked.buffers,
        small_pages: Some(linked.caches),
        added: BTreeMap::new(),
        copies: Copies::default(),
        copied: vec![0; COPIES_MAX * COPY_BYTES_MAX],
        timings: Vec::new(),
        timed_since: None,
        pool: Pool::new(linked.tables, target.threads)?,
    }))
}

/// Returns the memory of a program that is linked with these options.
///
/// # Errors
///
/// The errors of [`link`].
pub fn memory_usage(program: &Program, options: &LinkOptions) -> Result<MemoryUsage> {
    let target = target(program, options)?;
    let launches = launches_of(program, target, &Buffers::none().panels)?;
    MemoryUsage::of(program, target, &launches)
}

fn target(program: &Program, options: &LinkOptions) -> Result<Target> {
    let alone = options.threads == 0 && token_bytes(program) < SHARE_BYTES_MIN;
    Ok(Target {
        isa: Isa::of(options.level_or_best()?)?,
        precision: options.precision,
        packed_bytes: options.packed_bytes,
        threads: if alone { 1 } else { options.thread_count()? },
    })
}

/// Bytes read per token by the heaviest table, which is the single-token table.
fn token_bytes(program: &Program) -> u64 {
    let tables = program.tables.iter();
    let bytes = tables.map(|t| t.total().bytes / u64::from(t.tokens.max(1)));
    bytes.max().unwrap_or(0)
}

/// Linked tables and the threads that replay them.
struct Cpu {
    /// Tensors, some of which are read in place.
    tensors: Arc<dyn Tensors>,
    profile: Profile,
    target: Target,
    /// Memory of the first program.
    memory: Buffers,
    /// Buffers that the host may read and write.
    buffers: BTreeMap<BufferId, Operand>,
    /// The KV cache before its first pass; huge pages are used afterwards.
    small_pages: Option<CacheMemory>,
    /// Buffers of added tables, with the index of the first table.
    added: BTreeMap<BufferId, usize>,
    copies: Copies,
    /// Buffers of pending copies, one after the other.
    copied: Vec<u8>,
    /// Timings of the commands of each table; empty for tables that are not timed.
    timings: Vec<Vec<CommandTiming>>,
    /// Start of timing, if timing is active.
    timed_since: Option<Instant>,
    pool: Pool,
}

/// Bytes of a buffer; only valid while no command runs.
fn span_of<'a>(
    buffers: &BTreeMap<BufferId, Operand>,
    pool: &'a mut Pool,
    span: Span,
) -> Result<&'a mut [u8]> {
    let Span {
        buffer,
        offset,
        bytes: len,
    } = span;
    let Some(operand) = buffers.get(&buffer) else {
        bail!(Argument, "unknown buffer {buffer:?}");
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
            "{buffer:?}: {len} bytes at offset {offset} exceed its {all} bytes"
        ),
    }
}

impl Cpu {
    /// Returns the number of active rows in the step state.
    fn active_rows(&mut self) -> Result<usize> {
        let span = Span::new(BufferId::State, 0, size_of::<State>());
        let bytes = span_of(&self.buffers, &mut self.pool, span)?;
        let state: State = bytemuck::pod_read_unaligned(bytes);
        Ok(state.active_rows as usize)
    }
}

impl Executor for Cpu {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn add_tables(&mut self, program: Program) -> Result<usize> {
        reject_empty(&program)?;
        let used = table::buffers(&program.tables);
        if let Some((buffer, first)) = self.added.iter().find(|(id, _)| used.contains_key(id)) {
            bail!(
                Internal,
                "buffer {buffer:?} belongs to the tables added from index {first} on"
            );
        }
        let mut linked = link::link(program, self.target, &self.memory)?;
        linked.buffers.retain(|buffer, _| !is_private(*buffer));
        let first = self.pool.add(linked.tables);
        let added = linked.buffers.keys().map(|buffer| (*buffer, first));
        self.added.extend(added);
        self.buffers.extend(linked.buffers);
        Ok(first)
    }

    fn remove_tables(&mut self, first: usize) -> Result<()> {
        for table in self.pool.remove(first)? {
            if let Some(timings) = self.timings.get_mut(table) {
                timings.clear();
            }
        }
        self.added.retain(|buffer, of| {
            let keep = *of != first;
            if !keep {
                self.buffers.remove(buffer);
            }
            keep
        });
        Ok(())
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        let count = self.pool.steps(table)?.cmds();
        let rows = match self.small_pages {
            Some(_) => self.active_rows()?,
            None => 0,
        };
        let Cmds { body, stage: tail } = &cmds;
        if body.start > body.end
            || body.end > tail.start
            || tail.start > tail.end
            || tail.end > count
        {
            bail!(
                Argument,
                "invalid command range {cmds:?}: the table has {count} commands"
            );
        }
        let timings = self.timings.get_mut(table).map(Vec::as_mut_slice);
        let timings = timings.filter(|timings| !timings.is_empty());
        let timings = self.timed_since.zip(timings);
        let first = self.small_pages.take_if(|_| rows > 0);
        if rows >= LONG_PROMPT_ROWS {
            first.as_ref().inspect(|caches| caches.use_huge_pages());
        }
        let ran = self.pool.run(table, &cmds, times, timings);
        first.inspect(CacheMemory::use_huge_pages);
        ran.and_then(|()| self.tensors.check_faults())
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        let span = Span::new(buffer, offset, bytes.len());
        span_of(&self.buffers, &mut self.pool, span)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let span = Span::new(buffer, offset, bytes.len());
        bytes.copy_from_slice(span_of(&self.buffers, &mut self.pool, span)?);
        Ok(())
    }

    fn duplicate(&mut self, buffer: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        check_disjoint(from, to, bytes)?;
        let (first, last) = (from.min(to), from.max(to));
        let span = Span::new(buffer, first, (last - first).saturating_add(bytes));
        let both = span_of(&self.buffers, &mut self.pool, span)?;
        both.copy_within(from - first..from - first + bytes, to - first);
        Ok(())
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        let (copying, slot) = self.copies.begin(spans)?;
        let mut at = slot * COPY_BYTES_MAX;
        for span in spans {
            let bytes = span_of(&self.buffers, &mut self.pool, *span)?;
            self.copied[at..at + span.bytes].copy_from_slice(bytes);
            at += span.bytes;
        }
        Ok(copying)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        let slot = self.copies.find(&copying, bytes.len())? * COPY_BYTES_MAX;
        bytes.copy_from_slice(&self.copied[slot..slot + bytes.len()]);
        Ok(())
    }

    fn time_commands(&mut self) -> Result<()> {
        let timings = |t: &Steps| vec![CommandTiming::default(); t.cmds()];
        self.timings = self.pool.by_table(timings);
        self.timed_since = Some(Instant::now());
        Ok(())
    }

    fn end_timing(&mut self) {
        self.timed_since = None;
    }

    fn command_timings(&self, table: usize) -> &[CommandTiming] {
        self.timings.get(table).map_or(&[], Vec::as_slice)
    }
}

/// Processor name, or the architecture.
static NAME: LazyLock<String> = LazyLock::new(|| {
    let name = brand().filter(|name| !name.is_empty());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_string())
});

/// Returns the name in the registers of the processor. Source: AMD's Architecture Programmer's Manual, volume 3,
/// functions 0x80000002 to 0x80000004 of CPUID. `/proc/cpuinfo` is longer the more processors there are.
fn brand() -> Option<String> {
    // Miri has no CPUID.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::__cpuid;
        const FIRST: u32 = 0x8000_0002;
        let leaves = FIRST..FIRST + 3;
        if __cpuid(0x8000_0000).eax < leaves.end - 1 {
            return None;
        }
        let words = leaves.map(__cpuid).map(|l| [l.eax, l.ebx, l.ecx, l.edx]);
        let bytes: Vec<u8> = words.flatten().flat_map(u32::to_le_bytes).collect();
        let name = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name).trim().to_string())
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    None
}

/// Size of the last-level data cache in bytes, 0 if the system does not report it.
static CACHE_BYTES: LazyLock<u64> = LazyLock::new(|| {
    let index = |i| format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size");
    (0..8)
        .filter_map(|i| std::fs::read_to_string(index(i)).ok())
        .filter_map(|text| text.trim().strip_suffix('K')?.parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .max()
        .unwrap_or(0)
});
