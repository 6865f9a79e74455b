//! Executor of linked tables, generic over the replay mode.

use super::arena::{Arena, BufferRange};
use super::device::Device;
use super::link_plan::{LinkPlan, LinkedTable, LinkedTables, find_table};
use super::pipelines::CompiledKernels;
use super::timings::{Timer, Timings};
use super::upload::create_arena;
use std::ops::Range;
use std::time::Instant;
use tabla_core::device::Profile;
use tabla_core::error::Result;
use tabla_core::exec::{
    CommandTiming, Copies, Copying, Executor, Program, Programs, Span, Upload, check_disjoint,
    reject_empty,
};
use tabla_core::op::table::{BufferId, Cmds, KernelId};

/// A replay mode. The executor checks arguments, and calls methods that submit or wait under
/// `Device::lock`.
pub(super) trait Replayer: Send + Sized + 'static {
    /// A compiled kernel.
    type Pipeline: Clone + Send;
    /// The pipelines and bindings of the commands of a program.
    type Bindings: Send;
    /// Timestamp queries.
    type Queries: Send;
    /// Access to buffers.
    type Transfers: Transfers;

    fn new(device: &Device) -> Result<Self>;

    /// Returns the compiled kernels of the device.
    fn compiled(&self) -> Result<&CompiledKernels<Self::Pipeline>>;

    /// Compiles kernels with the pipeline cache, while this thread runs `concurrent`.
    fn compile<T>(
        &self,
        kernels: &[KernelId],
        concurrent: impl FnOnce() -> Result<T>,
    ) -> Result<(Vec<Self::Pipeline>, T)>;

    /// Binds buffers to the commands of a program.
    fn bind<'a>(
        &self,
        plan: &LinkPlan,
        pipelines: Vec<Self::Pipeline>,
        buffer: impl Fn(BufferId) -> &'a wgpu::Buffer,
    ) -> Result<Self::Bindings>;

    /// Waits for the device, and frees a program with these table indices.
    fn remove(&mut self, tables: Range<usize>, removed: LinkedTables<Self::Bindings>)
    -> Result<()>;

    /// Submits commands `times` times, without waiting for the device.
    fn run(
        &mut self,
        table: &LinkedTable<'_, Self::Bindings>,
        cmds: &Cmds,
        times: u32,
    ) -> Result<()>;

    /// Runs a range once and waits for it. Fills `ticks` with a timestamp before the first command
    /// and one after each command; returns the time of submission.
    fn run_timed(
        &mut self,
        table: &LinkedTable<'_, Self::Bindings>,
        range: &Range<usize>,
        queries: &Self::Queries,
        ticks: &mut [u64],
    ) -> Result<Instant>;

    /// Creates queries for this number of timestamps, and timings in their unit.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device does not support timestamps, or this number of them.
    fn queries(&self, count: usize) -> Result<(Self::Queries, Timings)>;

    fn transfers(&mut self) -> &mut Self::Transfers;
}

/// Transfers between the host and buffers, and within buffers, in the order of submitted work.
pub(super) trait Transfers {
    fn write(&mut self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<()>;

    fn read(&mut self, buffer: &wgpu::Buffer, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Copies a range to offset `to` of the same buffer.
    fn duplicate(&mut self, from: BufferRange<'_>, to: u64) -> Result<()>;

    /// Starts a copy of concatenated ranges to slot `index` of [`Copies`].
    fn copy<'a>(
        &mut self,
        sources: impl Iterator<Item = BufferRange<'a>>,
        index: usize,
    ) -> Result<()>;

    /// Waits for the copy in slot `index` and reads it.
    fn take(&mut self, index: usize, bytes: &mut [u8]) -> Result<()>;
}

/// Linked tables with their buffers, replayed by `R`.
struct GpuExecutor<R: Replayer> {
    // Declared first: its drop waits for the device before the buffers are dropped.
    replayer: R,
    programs: Programs<LinkedTables<R::Bindings>>,
    /// Buffers of the first program, and those of added tables that the host may read and write.
    arena: Arena,
    copies: Copies,
    /// Created on the first use of `time_commands`.
    timer: Option<Timer<R::Queries>>,
    device: Device,
}

/// Creates the executor of a program.
pub(super) fn link<R: Replayer>(device: Device, program: Program) -> Result<Box<dyn Executor>> {
    let replayer = R::new(&device)?;
    let mut tables = link_tables(&device, &replayer, program, &Arena::default())?;
    let count = tables.commands.len();
    Ok(Box::new(GpuExecutor {
        arena: std::mem::take(&mut tables.arena),
        programs: Programs::new(tables, count),
        replayer,
        copies: Copies::default(),
        timer: None,
        device,
    }))
}

/// Links a program, which shares the buffers of `linked`.
fn link_tables<R: Replayer>(
    device: &Device,
    replayer: &R,
    program: Program,
    linked: &Arena,
) -> Result<LinkedTables<R::Bindings>> {
    let plan = LinkPlan::new(program)?;
    let compiled = replayer.compiled()?;
    let missing = compiled.missing(&plan.kernels);
    let fill = || create_arena(device, &plan.program, linked);
    let arena = if missing.is_empty() {
        fill()?
    } else {
        let (pipelines, arena) = replayer.compile(&missing, fill)?;
        compiled.add(&missing, pipelines);
        arena
    };
    let buffer = |id| {
        let entry = arena.find(id).or_else(|| linked.find(id));
        &entry
            .expect("the arenas have all buffers of the tables")
            .buffer
    };
    let guard = device.lock()?;
    let bindings = replayer.bind(&plan, compiled.find(&plan.kernels), buffer)?;
    drop(guard);
    Ok(plan.finish(bindings, arena))
}

impl<R: Replayer> Executor for GpuExecutor<R> {
    fn profile(&self) -> &Profile {
        self.device.profile()
    }

    fn upload(&self) -> Option<Upload> {
        Some(self.arena.upload)
    }

    fn add_tables(&mut self, program: Program) -> Result<usize> {
        self.device.check()?;
        reject_empty(&program)?;
        let tables = link_tables(&self.device, &self.replayer, program, &self.arena)?;
        self.arena.add(&tables.arena);
        let count = tables.commands.len();
        Ok(self.programs.add(tables, count))
    }

    fn remove_tables(&mut self, first: usize) -> Result<()> {
        let _guard = self.device.lock()?;
        let (tables, removed) = self.programs.remove(first)?;
        self.arena.remove(&removed.arena);
        if let Some(timer) = &mut self.timer {
            timer.timings.remove(tables.clone());
        }
        self.replayer.remove(tables, removed)
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        let _guard = self.device.lock()?;
        let linked = find_table(&self.programs, table, &cmds)?;
        let timer = self.timer.as_mut();
        let Some(timer) = timer.filter(|timer| timer.timings.enabled(table)) else {
            return self.replayer.run(&linked, &cmds, times);
        };
        for range in (0..times).flat_map(|_| cmds.ranges()) {
            let ticks = &mut timer.ticks[..=range.len()];
            let replayer = &mut self.replayer;
            let submitted = replayer.run_timed(&linked, &range, &timer.queries, ticks)?;
            timer.timings.add(linked.index, &range, submitted, ticks);
        }
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        let _guard = self.device.lock()?;
        let entry = self.arena.writable(buffer, offset, bytes.len())?;
        let transfers = self.replayer.transfers();
        transfers.write(&entry.buffer, offset as u64, bytes)
    }

    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let _guard = self.device.lock()?;
        let entry = self.arena.range(buffer, offset, bytes.len())?;
        let transfers = self.replayer.transfers();
        transfers.read(&entry.buffer, offset as u64, bytes)
    }

    fn duplicate(&mut self, buffer: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        let _guard = self.device.lock()?;
        check_disjoint(from, to, bytes)?;
        self.arena.writable(buffer, to, bytes)?;
        let entry = self.arena.writable(buffer, from, bytes)?;
        let source = BufferRange {
            buffer: &entry.buffer,
            offset: from as u64,
            bytes: bytes as u64,
        };
        self.replayer.transfers().duplicate(source, to as u64)
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        let _guard = self.device.lock()?;
        let sources = self.arena.copied(spans)?;
        let (copying, index) = self.copies.begin(spans)?;
        self.replayer.transfers().copy(sources, index)?;
        Ok(copying)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        let _guard = self.device.lock()?;
        let index = self.copies.find(&copying, bytes.len())?;
        self.replayer.transfers().take(index, bytes)
    }

    fn time_commands(&mut self) -> Result<()> {
        let _guard = self.device.lock()?;
        let counts = self.programs.by_table(|p, at| p.commands[at].len());
        let timestamps = 1 + counts.iter().max().copied().unwrap_or(0);
        let timer = match self.timer.take() {
            Some(timer) if timer.ticks.len() >= timestamps => timer,
            _ => {
                let (queries, timings) = self.replayer.queries(timestamps)?;
                Timer {
                    queries,
                    timings,
                    ticks: vec![0; timestamps],
                }
            }
        };
        self.timer.insert(timer).timings.begin(&counts);
        Ok(())
    }

    fn end_timing(&mut self) {
        self.timer.iter_mut().for_each(|timer| timer.timings.end());
    }

    fn command_timings(&self, table: usize) -> &[CommandTiming] {
        self.timer
            .as_ref()
            .map_or(&[], |timer| timer.timings.of(table))
    }
}
