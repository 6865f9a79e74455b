//! Small command buffers that are recorded anew: writes that wait for the next run, and copies to
//! be read.
#![expect(
    unsafe_code,
    reason = "commands are recorded through functions of Vulkan, and their bytes read from its memory"
)]

use super::context::Context;
use super::record::{Before, barrier};
use crate::readback::{READ_BYTES, READBACK_BYTES};
use ash::vk;
use std::ptr::NonNull;
use tabla_core::error::Result;
use tabla_core::exec::{COPIES_MAX, COPY_BYTES_MAX};

/// Command buffers that may be under way at a time.
const SLOTS: usize = 8;
/// Bytes that one command may write inline, by the specification.
const INLINE_BYTES: usize = 64 << 10;
/// Bytes of writes in one command buffer, before it is submitted.
const WRITTEN_BYTES_MAX: usize = 1 << 20;
/// Command buffers of one submission at most.
const SUBMITTED_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Slot {
    commands: vk::CommandBuffer,
    /// Signalled once the commands are done.
    fence: vk::Fence,
    pending: bool,
    /// How often it was recorded.
    turns: u64,
}

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) buffer: vk::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// Command buffers that take turns, and the buffer that is read.
pub(super) struct Ring {
    slots: [Slot; SLOTS],
    /// The slot whose turn it is.
    at: usize,
    /// Bytes of writes that it holds so far; `None` while it is not being recorded.
    open: Option<usize>,
    /// The buffer that the host sees: room for what is read at once, and for copies behind it.
    readable: vk::Buffer,
    mapped: NonNull<u8>,
    /// Whose commands make each copy, and in which of their turns.
    copies: [(usize, u64); COPIES_MAX],
}

// SAFETY: the address is of memory that the process shares with the device, not of a thread.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let buffers = context.command_buffers(SLOTS)?;
        let mut slots = [Slot {
            commands: vk::CommandBuffer::null(),
            fence: vk::Fence::null(),
            pending: false,
            turns: 0,
        }; SLOTS];
        for (slot, commands) in slots.iter_mut().zip(buffers) {
            slot.commands = commands;
            slot.fence = context.fence()?;
        }
        let (readable, mapped) = context.readable_buffer(READBACK_BYTES as u64)?;
        Ok(Self {
            slots,
            at: 0,
            open: None,
            readable,
            mapped,
            copies: [(0, 0); COPIES_MAX],
        })
    }

    /// Writes whole words into a buffer, before whatever is submitted next.
    pub(super) fn write(
        &mut self,
        context: &Context,
        (target, mut offset): (vk::Buffer, u64),
        bytes: &[u8],
    ) -> Result<()> {
        for some in bytes.chunks(INLINE_BYTES) {
            let commands = self.begin(context)?;
            barrier(context, commands, Before::Copy);
            // SAFETY: the commands are being recorded; the caller holds range and words to the
            // buffer, and a piece is no longer than the limit.
            unsafe {
                context
                    .raw
                    .cmd_update_buffer(commands, target, offset, some);
            };
            offset += some.len() as u64;
            let written = self.open.get_or_insert_default();
            *written += some.len();
            if *written >= WRITTEN_BYTES_MAX {
                self.submit(context, &[], 0)?;
            }
        }
        Ok(())
    }

    /// Copies a part of a buffer to another place in it, before whatever is submitted next.
    pub(super) fn duplicate(&mut self, context: &Context, from: Source, to: u64) -> Result<()> {
        let commands = self.begin(context)?;
        barrier(context, commands, Before::Copy);
        let region = [vk::BufferCopy::default()
            .src_offset(from.offset)
            .dst_offset(to)
            .size(from.bytes as u64)];
        let buffer = from.buffer;
        // SAFETY: the commands are being recorded; the caller holds both ranges to the buffer, and
        // they do not meet.
        unsafe {
            context
                .raw
                .cmd_copy_buffer(commands, buffer, buffer, &region);
        };
        Ok(())
    }

    /// Reads bytes of a buffer, after whatever was submitted.
    pub(super) fn read(
        &mut self,
        context: &Context,
        (buffer, mut offset): (vk::Buffer, u64),
        bytes: &mut [u8],
    ) -> Result<()> {
        for some in bytes.chunks_mut(READ_BYTES) {
            let source = Source {
                buffer,
                offset,
                bytes: some.len(),
            };
            let slot = self.fetch(context, [source].into_iter(), 0)?;
            self.rest(context, slot)?;
            self.look(0, some);
            offset += some.len() as u64;
        }
        Ok(())
    }

    /// Has parts of buffers copied, after whatever was submitted, for `take`.
    pub(super) fn copy(
        &mut self,
        context: &Context,
        sources: impl Iterator<Item = Source>,
        room: usize,
    ) -> Result<()> {
        let slot = self.fetch(context, sources, copied_at(room))?;
        self.copies[room] = (slot, self.slots[slot].turns);
        Ok(())
    }

    /// Waits for a copy.
    pub(super) fn take(&mut self, context: &Context, room: usize, bytes: &mut [u8]) -> Result<()> {
        let (slot, turn) = self.copies[room];
        // A slot that had another turn since has waited for this one.
        if self.slots[slot].turns == turn {
            self.rest(context, slot)?;
        }
        self.look(copied_at(room), bytes);
        Ok(())
    }

    /// Submits a copy of parts to where the host sees them, one behind the other, and says in which
    /// slot.
    fn fetch(
        &mut self,
        context: &Context,
        sources: impl Iterator<Item = Source>,
        mut to: usize,
    ) -> Result<usize> {
        let commands = self.begin(context)?;
        barrier(context, commands, Before::Copy);
        for source in sources {
            let region = [vk::BufferCopy::default()
                .src_offset(source.offset)
                .dst_offset(to as u64)
                .size(source.bytes as u64)];
            let (from, readable) = (source.buffer, self.readable);
            // SAFETY: the commands are being recorded; the caller holds the ranges to the sources,
            // and together they fit into their room of the other buffer.
            unsafe {
                context
                    .raw
                    .cmd_copy_buffer(commands, from, readable, &region);
            };
            to += source.bytes;
        }
        barrier(context, commands, Before::Host);
        let slot = self.at;
        self.submit(context, &[], 0)?;
        Ok(slot)
    }

    /// Takes bytes that were copied to where the host sees them.
    fn look(&self, at: usize, bytes: &mut [u8]) {
        // SAFETY: the buffer is mapped and has room for that many bytes there.
        let first = unsafe { self.mapped.as_ptr().add(at) };
        // SAFETY: the device has written them and writes no others there before the next copy to
        // the same room; no reference to them outlives this function.
        let copied = unsafe { std::slice::from_raw_parts(first, bytes.len()) };
        bytes.copy_from_slice(copied);
    }

    /// Submits what was written, and `recorded` behind it so many times.
    pub(super) fn submit(
        &mut self,
        context: &Context,
        recorded: &[vk::CommandBuffer],
        times: u32,
    ) -> Result<()> {
        let mut fence = vk::Fence::null();
        let mut commands = [vk::CommandBuffer::null(); SUBMITTED_MAX];
        let mut first = 0;
        if self.open.is_some() {
            let slot = self.slots[self.at];
            // SAFETY: the commands are being recorded.
            let ended = unsafe { context.raw.end_command_buffer(slot.commands) };
            self.open = None;
            context.checked("commands", ended)?;
            (commands[0], fence, first) = (slot.commands, slot.fence, 1);
        }
        let mut left = recorded.len() * times as usize;
        let mut turns = recorded.iter().cycle();
        while first + left > 0 {
            let some = left.min(SUBMITTED_MAX - first);
            for (to, recording) in commands[first..first + some].iter_mut().zip(&mut turns) {
                *to = *recording;
            }
            context.submit(&commands[..first + some], fence)?;
            if first == 1 {
                self.slots[self.at].pending = true;
                self.at = (self.at + 1) % SLOTS;
            }
            (fence, first) = (vk::Fence::null(), 0);
            left -= some;
        }
        Ok(())
    }

    /// The command buffer whose turn it is, being recorded.
    fn begin(&mut self, context: &Context) -> Result<vk::CommandBuffer> {
        let commands = self.slots[self.at].commands;
        if self.open.is_none() {
            self.rest(context, self.at)?;
            let info = vk::CommandBufferBeginInfo::default()
                .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            // SAFETY: the commands are not pending, and their pool lets each begin anew.
            let begun = unsafe { context.raw.begin_command_buffer(commands, &info) };
            context.checked("commands", begun)?;
            self.slots[self.at].turns += 1;
            self.open = Some(0);
        }
        Ok(commands)
    }

    /// Waits until a slot's commands are done.
    fn rest(&mut self, context: &Context, slot: usize) -> Result<()> {
        let slot = &mut self.slots[slot];
        if slot.pending {
            context.wait(slot.fence)?;
            // SAFETY: the fence is signalled: no submission has it any more.
            let reset = unsafe { context.raw.reset_fences(&[slot.fence]) };
            context.checked("fence", reset)?;
            slot.pending = false;
        }
        Ok(())
    }
}

/// Where the room of a copy begins.
fn copied_at(room: usize) -> usize {
    READ_BYTES + room * COPY_BYTES_MAX
}
