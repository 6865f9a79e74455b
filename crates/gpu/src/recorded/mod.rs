//! Replay from command buffers of Vulkan that are recorded once: wgpu's device and queue, and the
//! buffers that it filled, without wgpu between.
//!
//! A range of a table becomes a command buffer when it first runs, and is submitted as often as it
//! is wanted: lengths and step state are on the device. What is written goes ahead of the next
//! submission. Nothing is allocated for a token, by nobody.

mod clock;
mod context;
mod kernels;
mod record;
mod ring;
mod spirv;

use super::arena::Arena;
use super::device::Device;
use super::parts::{Command, Parts, in_table};
use super::pipeline_cache::PipelineCache;
use super::pipelines;
use super::upload::filled;
use ash::vk;
use clock::Clock;
use context::Context;
pub(super) use context::{able, idle};
use kernels::{Buffers, Kernels, Layouts};
use record::Recordings;
use ring::{Ring, Source};
use std::any::Any;
use std::sync::Arc;
use tabla_core::device::Profile;
use tabla_core::error::Result;
use tabla_core::exec::{CommandTiming, Copies, Copying, Executor, Span, Upload, check_disjoint};
use tabla_core::op::table::{BufferId, Cmds, KernelId, Table};

/// A device with tables linked to it.
struct Recorded {
    // It waits for the device before the buffers go.
    context: Context,
    tables: Arc<[Table]>,
    commands: Vec<Vec<Command>>,
    kernels: Kernels,
    recordings: Recordings,
    ring: Ring,
    copies: Copies,
    buffers: Buffers,
    arena: Arena,
    /// What times the commands, once that was asked for.
    clock: Option<Clock>,
}

/// Links tables to a device whose queue is shared with wgpu.
pub(super) fn link(device: &Device, parts: Parts) -> Result<Box<dyn Executor>> {
    let context = Context::new(device)?;
    let layouts = Layouts::new(&context)?;
    let options = spirv::options(&context)?;
    let kept = PipelineCache::read(device);
    let cache = kernels::cache(&context, &kept);
    let make = |kernel: KernelId, text: &_| {
        let pipeline = kernels::pipeline(&context, &layouts, &options, cache, (kernel, text))?;
        Ok((pipeline, layouts.pipelines[kernel.op.operands().len()]))
    };
    let fill = || filled(device, &parts.program);
    let (pipelines, arena) = pipelines::compile(device, &parts.kernels, &make, fill)?;
    kernels::keep(&context, cache, &kept);
    let turn = context.turn()?;
    let buffers = arena.entries().iter().map(|entry| {
        let buffer = context::buffer(device, entry)?;
        Ok((entry.place, (buffer, entry.buffer.size())))
    });
    let buffers = buffers.collect::<Result<Buffers>>()?;
    let sets = layouts.bind(&context, &buffers, &parts.groups)?;
    drop(turn);
    Ok(Box::new(Recorded {
        recordings: Recordings::new(&context)?,
        ring: Ring::new(&context)?,
        copies: Copies::default(),
        kernels: Kernels { pipelines, sets },
        commands: parts.commands,
        tables: parts.program.tables,
        buffers,
        arena,
        clock: None,
        context,
    }))
}

impl Executor for Recorded {
    fn profile(&self) -> &Profile {
        self.context.device.profile()
    }

    fn upload(&self) -> Option<Upload> {
        Some(self.arena.upload)
    }

    fn device(&self) -> Option<&dyn Any> {
        Some(&self.context.device)
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        let turn = self.context.turn()?;
        if let Some(clock) = self.clock.as_mut().filter(|clock| clock.laps.are_on()) {
            self.ring.submit(&self.context, &[], 0)?;
            let of = (table, &self.tables[table]);
            for range in (0..times).flat_map(|_| cmds.ranges()) {
                let commands = in_table(&self.commands, table, &range)?;
                clock.replay(&self.context, &self.kernels, of, (&range, commands))?;
            }
            return Ok(());
        }
        if !self.recordings.have_room() {
            idle(&self.context.device.wgpu, &turn);
            self.recordings.forget();
        }
        let mut recorded = [vk::CommandBuffer::null(); 2];
        let mut count = 0;
        for (recording, range) in recorded.iter_mut().zip(cmds.ranges()) {
            count += 1;
            *recording = match self.recordings.find(table, &range) {
                Some(known) => known,
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

    fn write(&mut self, place: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        let _turn = self.context.turn()?;
        let entry = self.arena.writable(place, offset, bytes.len())?;
        let (buffer, _) = self.buffers[&entry.place];
        self.ring
            .write(&self.context, (buffer, offset as u64), bytes)
    }

    fn read(&mut self, place: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let _turn = self.context.turn()?;
        let entry = self.arena.range(place, offset, bytes.len())?;
        let (buffer, _) = self.buffers[&entry.place];
        self.ring
            .read(&self.context, (buffer, offset as u64), bytes)
    }

    fn duplicate(&mut self, place: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        let _turn = self.context.turn()?;
        check_disjoint(from, to, bytes)?;
        self.arena.writable(place, to, bytes)?;
        let entry = self.arena.writable(place, from, bytes)?;
        let (buffer, _) = self.buffers[&entry.place];
        let source = Source {
            buffer,
            offset: from as u64,
            bytes,
        };
        self.ring.duplicate(&self.context, source, to as u64)
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        let _turn = self.context.turn()?;
        self.arena.copyable(spans)?;
        let (copying, room) = self.copies.begin(spans)?;
        let sources = spans.iter().map(|span| Source {
            buffer: self.buffers[&span.place].0,
            offset: span.offset as u64,
            bytes: span.bytes,
        });
        self.ring.copy(&self.context, sources, room)?;
        Ok(copying)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        let _turn = self.context.turn()?;
        let room = self.copies.find(&copying, bytes.len())?;
        self.ring.take(&self.context, room, bytes)
    }

    fn time_commands(&mut self) -> Result<()> {
        let _turn = self.context.turn()?;
        let clock = match self.clock.take() {
            Some(clock) => clock,
            None => Clock::new(&self.context, &self.tables)?,
        };
        self.clock.insert(clock).laps.begin();
        Ok(())
    }

    fn end_timing(&mut self) {
        self.clock.iter_mut().for_each(|clock| clock.laps.end());
    }

    fn laps(&self, table: usize) -> &[CommandTiming] {
        self.clock
            .as_ref()
            .map_or(&[], |clock| clock.laps.of(table))
    }
}
