//! Recording: ranges of commands as command buffers, kept for when they are asked for again.
#![expect(
    unsafe_code,
    reason = "commands are recorded through functions of Vulkan"
)]

use super::context::Context;
use super::kernels::Kernels;
use crate::parts::Command;
use ash::vk;
use std::ops::Range;
use tabla_core::error::Result;
use tabla_core::op::list::Access;
use tabla_core::op::table::{BufferId, DispatchCmd, Table};

/// Ranges that are kept; decoding and prefill together ask for fewer.
const KEPT: usize = 64;
/// Ranges that a replay may have to record.
const OF_A_REPLAY: usize = 2;

/// What waits for whatever was submitted or recorded before.
#[derive(Clone, Copy)]
pub(super) enum Before {
    /// The first command of a range.
    Range,
    /// A command that touches what others of its range have touched.
    Command,
    /// A copy.
    Copy,
    /// The host's look at what was copied.
    Host,
}

/// Has what is recorded next wait until its memory is as what came before left it.
pub(super) fn barrier(context: &Context, commands: vk::CommandBuffer, before: Before) {
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
    let (earlier, later) = match before {
        Before::Range => (all, kernel),
        Before::Command => ((Stage::COMPUTE_SHADER, Access::SHADER_WRITE), kernel),
        Before::Copy => (all, copy),
        Before::Host => (
            (Stage::TRANSFER, Access::TRANSFER_WRITE),
            (Stage::HOST, Access::HOST_READ),
        ),
    };
    let memory = [vk::MemoryBarrier::default()
        .src_access_mask(earlier.1)
        .dst_access_mask(later.1)];
    let flags = vk::DependencyFlags::empty();
    // SAFETY: the commands are being recorded, outside of any render pass.
    unsafe {
        context
            .raw
            .cmd_pipeline_barrier(commands, earlier.0, later.0, flags, &memory, &[], &[]);
    }
}

/// The ranges that were recorded, and command buffers for more.
pub(super) struct Recordings {
    free: Vec<vk::CommandBuffer>,
    known: Vec<(usize, Range<usize>, vk::CommandBuffer)>,
}

impl Recordings {
    pub(super) fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            free: context.command_buffers(KEPT)?,
            known: Vec::with_capacity(KEPT),
        })
    }

    /// The command buffer of a range, where it was recorded.
    pub(super) fn find(&self, table: usize, range: &Range<usize>) -> Option<vk::CommandBuffer> {
        let mut known = self.known.iter();
        let found = known.find(|(t, r, _)| *t == table && r == range);
        found.map(|(.., commands)| *commands)
    }

    /// Whether the ranges of another replay can be recorded before all are forgotten.
    pub(super) fn have_room(&self) -> bool {
        self.free.len() >= OF_A_REPLAY
    }

    /// Forgets all ranges. No command buffer may be under way.
    pub(super) fn forget(&mut self) {
        self.free.extend(self.known.drain(..).map(|(.., c)| c));
    }

    /// Records a range of a table.
    pub(super) fn record(
        &mut self,
        context: &Context,
        kernels: &Kernels,
        (at, range): (usize, Range<usize>),
        (table, commands): (&Table, &[Command]),
    ) -> Result<vk::CommandBuffer> {
        let buffer = self.free.pop().expect("there is room");
        let cmds = table.cmds[range.clone()].iter().zip(commands);
        let tape = Tape {
            context,
            kernels,
            buffer,
            stamps: None,
        };
        let recorded = tape.record(table, cmds);
        match recorded {
            Ok(()) => self.known.push((at, range, buffer)),
            Err(_) => self.free.push(buffer),
        }
        recorded.map(|()| buffer)
    }
}

/// A command buffer to be recorded.
pub(super) struct Tape<'a> {
    pub(super) context: &'a Context,
    pub(super) kernels: &'a Kernels,
    pub(super) buffer: vk::CommandBuffer,
    /// Timestamps for before the first command, and after each.
    pub(super) stamps: Option<vk::QueryPool>,
}

impl Tape<'_> {
    pub(super) fn record<'a>(
        &self,
        table: &Table,
        cmds: impl ExactSizeIterator<Item = (&'a DispatchCmd, &'a Command)>,
    ) -> Result<()> {
        let (context, buffer) = (self.context, self.buffer);
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: the buffer is not pending, and its pool lets each begin anew.
        let begun = unsafe { context.raw.begin_command_buffer(buffer, &info) };
        context.checked("commands", begun)?;
        barrier(context, buffer, Before::Range);
        self.first_stamp(cmds.len());
        let mut touched = Touched::default();
        let mut bound = None;
        for ((cmd, command), behind) in cmds.zip(1..) {
            if touched.wants_barrier(operands(table, cmd)) {
                barrier(context, buffer, Before::Command);
            }
            if bound != Some(command.pipeline) {
                bound = Some(command.pipeline);
                self.kernels.bind(context, buffer, command.pipeline);
            }
            let params = table.params(cmd);
            self.kernels.dispatch(context, buffer, command, params);
            self.stamp(behind);
        }
        // SAFETY: the buffer is being recorded.
        let ended = unsafe { context.raw.end_command_buffer(buffer) };
        context.checked("commands", ended)
    }

    fn first_stamp(&self, commands: usize) {
        if let Some(stamps) = self.stamps {
            let count = u32::try_from(commands + 1).expect("tables are small");
            let raw = &self.context.raw;
            // SAFETY: the buffer is being recorded; the pool has a timestamp for each command of
            // the longest table, and one.
            unsafe { raw.cmd_reset_query_pool(self.buffer, stamps, 0, count) };
            self.stamp(0);
        }
    }

    /// The time when all before is done.
    fn stamp(&self, at: u32) {
        if let Some(stamps) = self.stamps {
            let (raw, done) = (&self.context.raw, vk::PipelineStageFlags::BOTTOM_OF_PIPE);
            // SAFETY: the buffer is being recorded; the timestamp was reset in it.
            unsafe { raw.cmd_write_timestamp(self.buffer, done, stamps, at) };
        }
    }
}

/// The places of a command, and whether it writes them.
fn operands(table: &Table, cmd: &DispatchCmd) -> impl Iterator<Item = (BufferId, bool)> + Clone {
    let slots = cmd.slots().iter().zip(cmd.kernel.op.operands());
    slots.map(|(&slot, o)| (table.slot(slot).place, o.access != Access::Read))
}

/// Places that commands touched since the last barrier, and whether they wrote them.
#[derive(Default)]
struct Touched(Vec<(BufferId, bool)>);

impl Touched {
    /// Whether a command has to wait for those before it: it touches what one of them wrote, or
    /// writes what one of them touched.
    fn wants_barrier(&mut self, operands: impl Iterator<Item = (BufferId, bool)> + Clone) -> bool {
        let meets = |(place, writes): (BufferId, bool)| {
            let mut touched = self.0.iter();
            touched.any(|&(p, written)| p == place && (writes || written))
        };
        let wants = operands.clone().any(meets);
        if wants {
            self.0.clear();
        }
        self.0.extend(operands);
        wants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_for_what_it_meets() {
        let [a, b, c] = [0, 1, 2].map(BufferId::Scratch);
        let mut touched = Touched::default();
        let mut wants =
            |operands: &[(BufferId, bool)]| touched.wants_barrier(operands.iter().copied());
        assert!(!wants(&[(a, false), (b, true)]), "the first");
        assert!(!wants(&[(a, false), (c, true)]), "reads beside reads");
        assert!(wants(&[(b, false)]), "reads what was written");
        assert!(
            !wants(&[(a, true)]),
            "the reads of a were before the barrier"
        );
        assert!(wants(&[(b, true)]), "writes what was read");
        assert!(wants(&[(b, true)]), "writes what was written");
        assert!(!wants(&[(c, true)]), "another place");
    }
}
