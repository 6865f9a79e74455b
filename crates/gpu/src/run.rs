//! Replaying through wgpu: a compute pass of prebuilt objects and a submission for each replay.

use super::arena::Arena;
use super::clock::Clock;
use super::device::Device;
use super::parts::{Command, in_table};
use super::readback::Readback;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tabla_core::device::Profile;
use tabla_core::error::Result;
use tabla_core::exec::{CommandTiming, Copies, Copying, Executor, Span, Upload, check_disjoint};
use tabla_core::op::table::{BufferId, Cmds, Table};

/// A device with tables linked to it. Indices go into the vectors beside them.
#[derive(Debug)]
pub(super) struct LinkedTable {
    pub(super) device: Device,
    pub(super) tables: Arc<[Table]>,
    pub(super) commands: Vec<Vec<Command>>,
    pub(super) pipelines: Vec<wgpu::ComputePipeline>,
    pub(super) groups: Vec<wgpu::BindGroup>,
    pub(super) arena: Arena,
    pub(super) readback: Readback,
    pub(super) copies: Copies,
    /// What times the commands, once that was asked for.
    pub(super) clock: Option<Clock>,
}

impl LinkedTable {
    fn encode<'a>(
        &self,
        params: &[u8],
        commands: impl Iterator<Item = &'a Command>,
        clock: Option<&Clock>,
    ) -> wgpu::CommandBuffer {
        let mut encoder = self.device.wgpu.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        let mut bound = None;
        let mut stamps = 0;
        let mut stamp = |pass: &mut wgpu::ComputePass<'_>| {
            if let Some(clock) = clock {
                pass.write_timestamp(&clock.stamps, stamps);
                stamps += 1;
            }
        };
        stamp(&mut pass);
        for command in commands {
            if bound != Some(command.pipeline) {
                pass.set_pipeline(&self.pipelines[command.pipeline]);
                bound = Some(command.pipeline);
            }
            pass.set_bind_group(0, &self.groups[command.group], &[]);
            pass.set_immediates(0, &params[command.params.clone()]);
            let [x, y, z] = command.grid;
            pass.dispatch_workgroups(x, y, z);
            stamp(&mut pass);
        }
        drop(pass);
        if let Some(clock) = clock {
            encoder.resolve_query_set(&clock.stamps, 0..stamps, &clock.resolved, 0);
        }
        encoder.finish()
    }

    /// Replays a range once, waits for it, and times its commands.
    fn timed(&mut self, table: usize, cmds: &Range<usize>) -> Result<()> {
        let commands = in_table(&self.commands, table, cmds)?;
        let params = &self.tables[table].params;
        let work = self.encode(params, commands.iter(), self.clock.as_ref());
        let submitted = Instant::now();
        self.device.queue.submit([work]);
        if let Some(clock) = &mut self.clock {
            let ticks = &mut clock.ticks[..=cmds.len()];
            let bytes = bytemuck::cast_slice_mut(ticks);
            let Self {
                device, readback, ..
            } = self;
            readback.read(device, &clock.resolved, 0, bytes)?;
            clock.laps.add((table, cmds), submitted, ticks);
        }
        self.device.check()
    }
}

impl Executor for LinkedTable {
    fn profile(&self) -> &Profile {
        self.device.profile()
    }

    fn upload(&self) -> Option<Upload> {
        Some(self.arena.upload)
    }

    fn device(&self) -> Option<&dyn Any> {
        Some(&self.device)
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        self.device.check()?;
        for range in cmds.ranges() {
            in_table(&self.commands, table, &range)?;
        }
        if self.clock.as_ref().is_some_and(|clock| clock.laps.are_on()) {
            let mut replay = || {
                cmds.ranges()
                    .try_for_each(|range| self.timed(table, &range))
            };
            return (0..times).try_for_each(|_| replay());
        }
        // While the device is at work on one replay, the next is encoded.
        for _ in 0..times {
            let commands = cmds.ranges().flat_map(|range| &self.commands[table][range]);
            let work = self.encode(&self.tables[table].params, commands, None);
            self.device.queue.submit([work]);
        }
        self.device.check()
    }

    fn write(&mut self, place: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        self.device.check()?;
        let entry = self.arena.writable(place, offset, bytes.len())?;
        self.device
            .queue
            .write_buffer(&entry.buffer, offset as u64, bytes);
        self.device.check()
    }

    fn read(&mut self, place: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.device.check()?;
        let entry = self.arena.range(place, offset, bytes.len())?;
        self.readback
            .read(&self.device, &entry.buffer, offset as u64, bytes)
    }

    fn duplicate(&mut self, place: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        self.device.check()?;
        check_disjoint(from, to, bytes)?;
        self.arena.writable(place, to, bytes)?;
        let entry = self.arena.writable(place, from, bytes)?;
        // WebGPU copies from one buffer to another one only.
        let between = self.device.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes as u64,
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.wgpu.create_command_encoder(&Default::default());
        let [from, to, bytes] = [from, to, bytes].map(|n| n as u64);
        encoder.copy_buffer_to_buffer(&entry.buffer, from, &between, 0, bytes);
        encoder.copy_buffer_to_buffer(&between, 0, &entry.buffer, to, bytes);
        self.device.queue.submit([encoder.finish()]);
        self.device.check()
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        self.device.check()?;
        let (copying, room) = self.copies.begin(spans)?;
        self.readback.copy(&self.device, &self.arena, spans, room)?;
        Ok(copying)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        self.device.check()?;
        let room = self.copies.find(&copying, bytes.len())?;
        self.readback.take(&self.device, room, bytes)
    }

    fn time_commands(&mut self) -> Result<()> {
        self.device.check()?;
        let clock = match self.clock.take() {
            Some(clock) => clock,
            None => Clock::new(&self.device, &self.tables)?,
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
