//! Recording of ranges of commands as command buffers, which are cached.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use super::context::Context;
use super::kernels::RecordedBindings;
use crate::link_plan::LinkedTable;
use ash::vk;
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::op::list::Access;
use tabla_core::op::table::{BufferId, DispatchCmd, Table};

/// Number of command buffers that are allocated at a time; decode and prefill together use fewer, unless
/// their tables run in parts.
const RECORDINGS: usize = 64;
/// Maximum number of cached recordings.
const RECORDINGS_MAX: usize = 4096;
/// Maximum number of ranges of a replay.
const RANGES_PER_REPLAY: usize = 2;

/// Work that a barrier makes wait for earlier work.
#[derive(Clone, Copy)]
pub(super) enum Barrier {
    /// Commands of a new range; waits for all earlier commands and copies.
    Range,
    /// A command with a hazard; waits for earlier commands of its range.
    Command,
    /// A copy; waits for all earlier commands and copies.
    Copy,
    /// Reads by the host; wait for copies.
    HostRead,
}

/// Records a memory barrier.
pub(super) fn barrier(context: &Context, commands: vk::CommandBuffer, barrier: Barrier) {
    type Stage = vk::PipelineStageFlags;
    type Access = vk::AccessFlags;
    let all = (
        Stage::COMPUTE_SHADER | Stage::TRANSFER,
        Access::SHADER_WRITE | Access::TRANSFER_WRITE,
    );
    let kernel = (
        Stage::COMPUTE_SHADER,
        Access::SHADER_READ | Access::SHADER_WRITE,
    );
    let copy = (
        Stage::TRANSFER,
        Access::TRANSFER_READ | Access::TRANSFER_WRITE,
    );
    let (earlier, later) = match barrier {
        Barrier::Range => (all, kernel),
        Barrier::Command => ((Stage::COMPUTE_SHADER, Access::SHADER_WRITE), kernel),
        Barrier::Copy => (all, copy),
        Barrier::HostRead => (
            (Stage::TRANSFER, Access::TRANSFER_WRITE),
            (Stage::HOST, Access::HOST_READ),
        ),
    };
    let memory = [vk::MemoryBarrier::default()
        .src_access_mask(earlier.1)
        .dst_access_mask(later.1)];
    let flags = vk::DependencyFlags::empty();
    // SAFETY: the commands are being recorded, outside of a render pass.
    unsafe {
        context
            .raw
            .cmd_pipeline_barrier(commands, earlier.0, later.0, flags, &memory, &[], &[]);
    }
}

/// The recorded ranges, and free command buffers.
pub(super) struct Recordings {
    free: Vec<vk::CommandBuffer>,
    /// Sorted by table and range.
    recorded: Vec<(Key, vk::CommandBuffer)>,
}

/// Table, and the start and end of a range.
type Key = (usize, usize, usize);

impl Recordings {
    pub(super) fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            free: context.command_buffers(RECORDINGS)?,
            recorded: Vec::with_capacity(RECORDINGS),
        })
    }

    /// Allocates further command buffers if none are free, up to the maximum.
    pub(super) fn grow(&mut self, context: &Context) -> Result<()> {
        if !self.has_space() && self.recorded.len() < RECORDINGS_MAX {
            self.free.extend(context.command_buffers(RECORDINGS)?);
        }
        Ok(())
    }

    /// Returns the command buffer of a recorded range.
    pub(super) fn find(&self, table: usize, range: &Range<usize>) -> Option<vk::CommandBuffer> {
        let at = self.position((table, range.start, range.end)).ok()?;
        Some(self.recorded[at].1)
    }

    /// Returns the index of a recorded range, or the index at which to insert it.
    fn position(&self, key: Key) -> std::result::Result<usize, usize> {
        self.recorded.binary_search_by_key(&key, |(key, _)| *key)
    }

    /// Returns true if all ranges of a replay can be recorded without `clear`.
    pub(super) fn has_space(&self) -> bool {
        self.free.len() >= RANGES_PER_REPLAY
    }

    /// Frees all recordings. No command buffer may be pending.
    pub(super) fn clear(&mut self) {
        self.free.extend(self.recorded.drain(..).map(|(.., c)| c));
    }

    /// Frees the recordings of these tables. None of them may be pending.
    pub(super) fn remove(&mut self, tables: &Range<usize>) {
        let removed = self
            .recorded
            .extract_if(.., |((table, ..), _)| tables.contains(table));
        self.free.extend(removed.map(|(.., c)| c));
    }

    /// Records a range of a table.
    pub(super) fn record(
        &mut self,
        context: &Context,
        table: &LinkedTable<'_, RecordedBindings>,
        range: Range<usize>,
    ) -> Result<vk::CommandBuffer> {
        let buffer = self.free.pop().expect("`has_space` was checked");
        let key = (table.index, range.start, range.end);
        let recorder = Recorder {
            context,
            buffer,
            timestamps: None,
        };
        let result = recorder.record(table, range);
        match result {
            Ok(()) => {
                let at = self.position(key).unwrap_or_else(|at| at);
                self.recorded.insert(at, (key, buffer));
            }
            Err(_) => self.free.push(buffer),
        }
        result.map(|()| buffer)
    }
}

/// Records commands into a command buffer.
pub(super) struct Recorder<'a> {
    pub(super) context: &'a Context,
    pub(super) buffer: vk::CommandBuffer,
    /// Queries for timestamps before the first command and after each command.
    pub(super) timestamps: Option<vk::QueryPool>,
}

impl Recorder<'_> {
    pub(super) fn record(
        &self,
        table: &LinkedTable<'_, RecordedBindings>,
        range: Range<usize>,
    ) -> Result<()> {
        let (context, buffer) = (self.context, self.buffer);
        let (info, bindings) = (table.info, table.bindings);
        let cmds = info.cmds[range.clone()].iter();
        let cmds = cmds.zip(&table.commands[range]);
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: the buffer is not pending, and its pool allows re-recording.
        let begun = unsafe { context.raw.begin_command_buffer(buffer, &begin) };
        context.check("commands", begun)?;
        barrier(context, buffer, Barrier::Range);
        self.first_timestamp(cmds.len());
        let mut accesses = Accesses::default();
        let mut bound = None;
        for ((cmd, command), timestamp) in cmds.zip(1..) {
            if accesses.needs_barrier(operands(info, cmd)) {
                barrier(context, buffer, Barrier::Command);
            }
            if bound != Some(command.pipeline) {
                bound = Some(command.pipeline);
                bindings.bind(context, buffer, command.pipeline);
            }
            bindings.dispatch(context, buffer, command, info.params(cmd));
            self.timestamp(timestamp);
        }
        // SAFETY: the buffer is being recorded.
        let ended = unsafe { context.raw.end_command_buffer(buffer) };
        context.check("commands", ended)
    }

    /// Resets the queries and records the timestamp before the first command.
    fn first_timestamp(&self, commands: usize) {
        if let Some(timestamps) = self.timestamps {
            let count = u32::try_from(commands + 1).expect("tables are small");
            let raw = &self.context.raw;
            // SAFETY: the buffer is being recorded; the pool has one query more than the longest
            // table has commands.
            unsafe { raw.cmd_reset_query_pool(self.buffer, timestamps, 0, count) };
            self.timestamp(0);
        }
    }

    /// Records timestamp `at`, taken when all earlier commands have finished.
    fn timestamp(&self, at: u32) {
        if let Some(timestamps) = self.timestamps {
            let (raw, done) = (&self.context.raw, vk::PipelineStageFlags::BOTTOM_OF_PIPE);
            // SAFETY: the buffer is being recorded; the query is reset in it.
            unsafe { raw.cmd_write_timestamp(self.buffer, done, timestamps, at) };
        }
    }
}

/// Returns the buffers of a command, and whether it writes them.
fn operands(table: &Table, cmd: &DispatchCmd) -> impl Iterator<Item = (BufferId, bool)> + Clone {
    let slots = cmd.slots().iter().zip(cmd.kernel.op.operands());
    slots.map(|(&slot, o)| (table.slot(slot).buffer, o.access != Access::Read))
}

/// Buffers accessed since the last barrier, and whether they were written.
#[derive(Default)]
struct Accesses(Vec<(BufferId, bool)>);

impl Accesses {
    /// Adds the operands of a command. Returns true if the command needs a barrier: it accesses a
    /// written buffer, or writes an accessed buffer.
    fn needs_barrier(&mut self, operands: impl Iterator<Item = (BufferId, bool)> + Clone) -> bool {
        let conflicts = |(id, writes): (BufferId, bool)| {
            let mut accesses = self.0.iter();
            accesses.any(|&(other, written)| other == id && (writes || written))
        };
        let needed = operands.clone().any(conflicts);
        if needed {
            self.0.clear();
        }
        self.0.extend(operands);
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_separate_conflicting_accesses() {
        let [a, b, c] = [0, 1, 2].map(BufferId::Scratch);
        let mut accesses = Accesses::default();
        let mut needed =
            |operands: &[(BufferId, bool)]| accesses.needs_barrier(operands.iter().copied());
        assert!(!needed(&[(a, false), (b, true)]), "first command");
        assert!(!needed(&[(a, false), (c, true)]), "read after read");
        assert!(needed(&[(b, false)]), "read after write");
        assert!(!needed(&[(a, true)]), "a was read before the barrier");
        assert!(needed(&[(b, true)]), "write after read");
        assert!(needed(&[(b, true)]), "write after write");
        assert!(!needed(&[(c, true)]), "another buffer");
    }
}
