//! Replay of Vulkan command buffers that are recorded once. Uses the device, queue and buffers of
//! wgpu directly.
//!
//! A range of a table is recorded when it first runs, and resubmitted for every later run: lengths
//! and step state are in device memory. Writes are submitted before the next run. A token needs no
//! allocation.

mod clock;
mod context;
mod cores;
mod kernels;
mod link;
mod record;
mod ring;
pub(super) mod spirv;
pub(super) mod subgroups;

use super::arena::Arena;
use super::device::Device;
use super::link_plan::in_table;
use ash::vk;
use clock::RecordedTimer;
use context::Context;
pub(super) use context::{check_support, wait_idle};
pub(super) use cores::cores;
use kernels::Buffers;
use link::RecordedTables;
use record::Recordings;
use ring::{BufferRange, Ring};
use tabla_core::device::Profile;
use tabla_core::error::Result;
use tabla_core::exec::{
    CommandTiming, Copies, Copying, Executor, Program, Programs, Span, Upload, check_disjoint,
    reject_empty,
};
use tabla_core::op::table::{BufferId, Cmds};

/// Executor that submits recorded command buffers.
struct RecordedExecutor {
    // Declared first: its drop waits for the device before the buffers are dropped.
    context: Context,
    programs: Programs<RecordedTables>,
    recordings: Recordings,
    ring: Ring,
    copies: Copies,
    buffers: Buffers,
    /// Buffers of the first program, and those of added tables that the host may read and write.
    arena: Arena,
    /// Created on the first use of `time_commands`.
    timer: Option<RecordedTimer>,
}

/// Links tables to a device whose queue is shared with wgpu.
pub(super) fn link(device: &Device, program: Program) -> Result<Box<dyn Executor>> {
    let context = Context::new(device)?;
    let (mut tables, buffers) = link::link(&context, program, &Arena::default(), &Buffers::new())?;
    let count = tables.commands.len();
    Ok(Box::new(RecordedExecutor {
        recordings: Recordings::new(&context)?,
        ring: Ring::new(&context)?,
        copies: Copies::default(),
        arena: std::mem::take(&mut tables.arena),
        programs: Programs::new(tables, count),
        buffers,
        timer: None,
        context,
    }))
}

impl Executor for RecordedExecutor {
    fn profile(&self) -> &Profile {
        self.context.device.profile()
    }

    fn upload(&self) -> Option<Upload> {
        Some(self.arena.upload)
    }

    fn add_tables(&mut self, program: Program) -> Result<usize> {
        reject_empty(&program)?;
        let (tables, buffers) = link::link(&self.context, program, &self.arena, &self.buffers)?;
        self.arena.add(&tables.arena);
        for (id, buffer) in buffers {
            // The arena has the buffers that the host may read and write.
            if self.arena.find(id).is_some() {
                self.buffers.entry(id).or_insert(buffer);
            }
        }
        let count = tables.commands.len();
        Ok(self.programs.add(tables, count))
    }

    fn remove_tables(&mut self, first: usize) -> Result<()> {
        let guard = self.context.lock()?;
        let (tables, removed) = self.programs.remove(first)?;
        // Pending writes may be to the buffers of these tables.
        let submitted = self.ring.submit(&self.context, &[], 0);
        wait_idle(&self.context.device.wgpu, &guard);
        self.recordings.remove(&tables);
        self.arena.remove(&removed.arena);
        self.buffers.retain(|id, _| self.arena.find(*id).is_some());
        if let Some(timer) = &mut self.timer {
            timer.timings.remove(tables);
        }
        self.context.destroy(removed.bindings.pool);
        submitted
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        let guard = self.context.lock()?;
        self.programs.find(table)?;
        let timer = self.timer.as_mut();
        if let Some(timer) = timer.filter(|t| t.timings.enabled(table)) {
            self.ring.submit(&self.context, &[], 0)?;
            for range in (0..times).flat_map(|_| cmds.ranges()) {
                let (program, info, commands) = in_table(&self.programs, table, &range)?;
                let bindings = &program.bindings;
                timer.replay(&self.context, bindings, table, info, &range, commands)?;
            }
            return Ok(());
        }
        self.recordings.grow(&self.context)?;
        if !self.recordings.has_space() {
            wait_idle(&self.context.device.wgpu, &guard);
            self.recordings.clear();
        }
        let mut recorded = [vk::CommandBuffer::null(); 2];
        let mut count = 0;
        for (recording, range) in recorded.iter_mut().zip(cmds.ranges()) {
            count += 1;
            *recording = match self.recordings.find(table, &range) {
                Some(existing) => existing,
                None => {
                    let (program, info, commands) = in_table(&self.programs, table, &range)?;
                    let (context, bindings) = (&self.context, &program.bindings);
                    self.recordings
                        .record(context, bindings, table, range, info, commands)?
                }
            };
        }
        self.ring.submit(&self.context, &recorded[..count], times)
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        let _guard = self.context.lock()?;
        let entry = self.arena.writable(buffer, offset, bytes.len())?;
        let (buffer, _) = self.buffers[&entry.id];
        self.ring.write(&self.context, buffer, offset as u64, bytes)
    }

    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let _guard = self.context.lock()?;
        let entry = self.arena.range(buffer, offset, bytes.len())?;
        let (buffer, _) = self.buffers[&entry.id];
        self.ring.read(&self.context, buffer, offset as u64, bytes)
    }

    fn duplicate(&mut self, buffer: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        let _guard = self.context.lock()?;
        check_disjoint(from, to, bytes)?;
        self.arena.writable(buffer, to, bytes)?;
        let entry = self.arena.writable(buffer, from, bytes)?;
        let (buffer, _) = self.buffers[&entry.id];
        let source = BufferRange {
            buffer,
            offset: from as u64,
            bytes,
        };
        self.ring.duplicate(&self.context, source, to as u64)
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        let _guard = self.context.lock()?;
        self.arena.check_copy(spans)?;
        let (copying, index) = self.copies.begin(spans)?;
        let sources = spans.iter().map(|span| BufferRange {
            buffer: self.buffers[&span.buffer].0,
            offset: span.offset as u64,
            bytes: span.bytes,
        });
        self.ring.copy(&self.context, sources, index)?;
        Ok(copying)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        let _guard = self.context.lock()?;
        let index = self.copies.find(&copying, bytes.len())?;
        self.ring.take(&self.context, index, bytes)
    }

    fn time_commands(&mut self) -> Result<()> {
        let _guard = self.context.lock()?;
        let counts = self.programs.by_table(|p, at| p.commands[at].len());
        let timer = match self.timer.take() {
            Some(timer) if timer.fits(&counts) => timer,
            _ => RecordedTimer::new(&self.context, &counts)?,
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
