//! Encoded replay through wgpu: one compute pass of prebuilt objects and one submission per replay.

use super::arena::Arena;
use super::clock::EncodedTimer;
use super::device::Device;
use super::encoded_tables::{self, EncodedBindings, EncodedTables};
use super::link_plan::{Command, in_table};
use super::readback::Readback;
use std::ops::Range;
use std::time::Instant;
use tabla_core::device::Profile;
use tabla_core::error::Result;
use tabla_core::exec::{
    CommandTiming, Copies, Copying, Executor, Program, Programs, Span, Upload, check_disjoint,
    reject_empty,
};
use tabla_core::op::table::{BufferId, Cmds};

/// Executor that encodes the commands of every replay.
#[derive(Debug)]
pub(super) struct EncodedExecutor {
    pub(super) device: Device,
    pub(super) programs: Programs<EncodedTables>,
    /// Buffers of the first program, and those of added tables that the host may read and write.
    pub(super) arena: Arena,
    pub(super) readback: Readback,
    pub(super) copies: Copies,
    /// Created on the first use of `time_commands`.
    pub(super) timer: Option<EncodedTimer>,
}

impl EncodedExecutor {
    /// Encodes commands with the bindings and parameters of their table.
    fn encode<'a>(
        &self,
        bindings: &EncodedBindings,
        params: &[u8],
        commands: impl Iterator<Item = &'a Command>,
        timer: Option<&EncodedTimer>,
    ) -> wgpu::CommandBuffer {
        let mut encoder = self.device.wgpu.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        let mut bound = None;
        let mut timestamps = 0;
        let mut write_timestamp = |pass: &mut wgpu::ComputePass<'_>| {
            if let Some(timer) = timer {
                pass.write_timestamp(&timer.timestamps, timestamps);
                timestamps += 1;
            }
        };
        write_timestamp(&mut pass);
        for command in commands {
            if bound != Some(command.pipeline) {
                pass.set_pipeline(&bindings.pipelines[command.pipeline].compute);
                bound = Some(command.pipeline);
            }
            pass.set_bind_group(0, &bindings.groups[command.group], &[]);
            pass.set_immediates(0, &params[command.params.clone()]);
            let [x, y, z] = command.grid;
            pass.dispatch_workgroups(x, y, z);
            write_timestamp(&mut pass);
        }
        drop(pass);
        if let Some(timer) = timer {
            encoder.resolve_query_set(&timer.timestamps, 0..timestamps, &timer.resolved, 0);
        }
        encoder.finish()
    }

    /// Replays a range once, waits for it, and records the time of each command.
    fn run_timed(&mut self, table: usize, cmds: &Range<usize>) -> Result<()> {
        let (program, info, commands) = in_table(&self.programs, table, cmds)?;
        let bindings = &program.bindings;
        let work = self.encode(bindings, &info.params, commands.iter(), self.timer.as_ref());
        let submitted = Instant::now();
        self.device.queue.submit([work]);
        if let Some(timer) = &mut self.timer {
            let ticks = &mut timer.ticks[..=cmds.len()];
            let bytes = bytemuck::cast_slice_mut(ticks);
            let Self {
                device, readback, ..
            } = self;
            readback.read(device, &timer.resolved, 0, bytes)?;
            timer.timings.add(table, cmds, submitted, ticks);
        }
        self.device.check()
    }
}

impl Executor for EncodedExecutor {
    fn profile(&self) -> &Profile {
        self.device.profile()
    }

    fn upload(&self) -> Option<Upload> {
        Some(self.arena.upload)
    }

    fn add_tables(&mut self, program: Program) -> Result<usize> {
        self.device.check()?;
        reject_empty(&program)?;
        let tables = encoded_tables::link(&self.device, program, &self.arena)?;
        self.arena.add(&tables.arena);
        let count = tables.commands.len();
        Ok(self.programs.add(tables, count))
    }

    fn remove_tables(&mut self, first: usize) -> Result<()> {
        self.device.check()?;
        let (tables, removed) = self.programs.remove(first)?;
        self.arena.remove(&removed.arena);
        if let Some(timer) = &mut self.timer {
            timer.timings.remove(tables);
        }
        drop(removed);
        self.device.finish()
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        self.device.check()?;
        let (program, at) = self.programs.find(table)?;
        for range in cmds.ranges() {
            in_table(&self.programs, table, &range)?;
        }
        if self
            .timer
            .as_ref()
            .is_some_and(|t| t.timings.enabled(table))
        {
            let mut replay = || {
                cmds.ranges()
                    .try_for_each(|range| self.run_timed(table, &range))
            };
            return (0..times).try_for_each(|_| replay());
        }
        // The next replay is encoded while the device executes the previous one.
        for _ in 0..times {
            let commands = cmds.ranges().flat_map(|range| &program.commands[at][range]);
            let params = &program.tables[at].params;
            let work = self.encode(&program.bindings, params, commands, None);
            self.device.queue.submit([work]);
        }
        self.device.check()
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        self.device.check()?;
        let entry = self.arena.writable(buffer, offset, bytes.len())?;
        self.device
            .queue
            .write_buffer(&entry.buffer, offset as u64, bytes);
        self.device.check()
    }

    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.device.check()?;
        let entry = self.arena.range(buffer, offset, bytes.len())?;
        self.readback
            .read(&self.device, &entry.buffer, offset as u64, bytes)
    }

    fn duplicate(&mut self, buffer: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        self.device.check()?;
        check_disjoint(from, to, bytes)?;
        self.arena.writable(buffer, to, bytes)?;
        let entry = self.arena.writable(buffer, from, bytes)?;
        // WebGPU does not copy within one buffer.
        let temporary = self.device.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes as u64,
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.wgpu.create_command_encoder(&Default::default());
        let [from, to, bytes] = [from, to, bytes].map(|n| n as u64);
        encoder.copy_buffer_to_buffer(&entry.buffer, from, &temporary, 0, bytes);
        encoder.copy_buffer_to_buffer(&temporary, 0, &entry.buffer, to, bytes);
        self.device.queue.submit([encoder.finish()]);
        self.device.check()
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        self.device.check()?;
        let (copying, index) = self.copies.begin(spans)?;
        self.readback
            .copy(&self.device, &self.arena, spans, index)?;
        Ok(copying)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        self.device.check()?;
        let index = self.copies.find(&copying, bytes.len())?;
        self.readback.take(&self.device, index, bytes)
    }

    fn time_commands(&mut self) -> Result<()> {
        self.device.check()?;
        let counts = self.programs.by_table(|p, at| p.commands[at].len());
        let timer = match self.timer.take() {
            Some(timer) if timer.fits(&counts) => timer,
            _ => EncodedTimer::new(&self.device, &counts)?,
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
