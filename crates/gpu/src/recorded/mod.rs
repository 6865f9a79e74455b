//! Replay of Vulkan command buffers that are recorded once. Uses the device, queue and buffers of
//! wgpu directly.
//!
//! A range of a table is recorded when it first runs, and resubmitted for every later run: lengths
//! and step state are in device memory. Writes are submitted before the next run. A token needs no
//! allocation.

mod clock;
mod context;
mod kernels;
mod record;
mod ring;
mod spirv;

use super::arena::Arena;
use super::device::Device;
use super::link_plan::{Command, LinkPlan, in_table};
use super::pipeline_cache::PipelineCacheFile;
use super::pipelines;
use super::upload::create_arena;
use ash::vk;
use clock::RecordedTimer;
use context::Context;
pub(super) use context::{check_support, wait_idle};
use kernels::{Buffers, Kernels, Layouts};
use record::Recordings;
use ring::{BufferRange, Ring};
use std::sync::Arc;
use tabla_core::device::Profile;
use tabla_core::error::Result;
use tabla_core::exec::{CommandTiming, Copies, Copying, Executor, Span, Upload, check_disjoint};
use tabla_core::op::table::{BufferId, Cmds, KernelId, Table};

/// Executor that submits recorded command buffers.
struct RecordedExecutor {
    // Declared first: its drop waits for the device before the buffers are dropped.
    context: Context,
    tables: Arc<[Table]>,
    commands: Vec<Vec<Command>>,
    kernels: Kernels,
    recordings: Recordings,
    ring: Ring,
    copies: Copies,
    buffers: Buffers,
    arena: Arena,
    /// Created on the first use of `time_commands`.
    timer: Option<RecordedTimer>,
}

/// Links tables to a device whose queue is shared with wgpu.
pub(super) fn link(device: &Device, plan: LinkPlan) -> Result<Box<dyn Executor>> {
    let context = Context::new(device)?;
    let layouts = Layouts::new(&context)?;
    let options = spirv::options(&context)?;
    let file = PipelineCacheFile::read(device);
    let cache = kernels::create_cache(&context, &file);
    let make = |kernel: KernelId, text: &_| {
        let pipeline = kernels::pipeline(&context, &layouts, &options, cache, (kernel, text))?;
        Ok((pipeline, layouts.pipelines[kernel.op.operands().len()]))
    };
    let fill = || create_arena(device, &plan.program);
    let (pipelines, arena) = pipelines::compile(device, &plan.kernels, &make, fill)?;
    kernels::save_cache(&context, cache, &file);
    let guard = context.lock()?;
    let buffers = arena.entries().iter().map(|entry| {
        let buffer = context::buffer(device, entry)?;
        Ok((entry.id, (buffer, entry.buffer.size())))
    });
    let buffers = buffers.collect::<Result<Buffers>>()?;
    let sets = layouts.bind(&context, &buffers, &plan.bindings)?;
    drop(guard);
    Ok(Box::new(RecordedExecutor {
        recordings: Recordings::new(&context)?,
        ring: Ring::new(&context)?,
        copies: Copies::default(),
        kernels: Kernels { pipelines, sets },
        commands: plan.commands,
        tables: plan.program.tables,
        buffers,
        arena,
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

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        let guard = self.context.lock()?;
        if let Some(timer) = self.timer.as_mut().filter(|t| t.timings.enabled()) {
            self.ring.submit(&self.context, &[], 0)?;
            let of = (table, &self.tables[table]);
            for range in (0..times).flat_map(|_| cmds.ranges()) {
                let commands = in_table(&self.commands, table, &range)?;
                timer.replay(&self.context, &self.kernels, of, (&range, commands))?;
            }
            return Ok(());
        }
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
                    let commands = in_table(&self.commands, table, &range)?;
                    let of = (&self.tables[table], commands);
                    let key = (table, range);
                    self.recordings
                        .record(&self.context, &self.kernels, key, of)?
                }
            };
        }
        self.ring.submit(&self.context, &recorded[..count], times)
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        let _guard = self.context.lock()?;
        let entry = self.arena.writable(buffer, offset, bytes.len())?;
        let (buffer, _) = self.buffers[&entry.id];
        self.ring
            .write(&self.context, (buffer, offset as u64), bytes)
    }

    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let _guard = self.context.lock()?;
        let entry = self.arena.range(buffer, offset, bytes.len())?;
        let (buffer, _) = self.buffers[&entry.id];
        self.ring
            .read(&self.context, (buffer, offset as u64), bytes)
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
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => RecordedTimer::new(&self.context, &self.tables)?,
        };
        self.timer.insert(timer).timings.begin();
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
