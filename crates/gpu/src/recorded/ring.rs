//! Ring of small command buffers that are re-recorded, for writes before the next run and for
//! readback copies.
#![expect(
    unsafe_code,
    reason = "Vulkan functions are unsafe, and readback is from mapped memory"
)]

use super::context::Context;
use super::record::{Barrier, barrier};
use crate::readback::{READ_BYTES, READBACK_BYTES};
use ash::vk;
use std::ptr::NonNull;
use tabla_core::error::Result;
use tabla_core::exec::{COPIES_MAX, COPY_BYTES_MAX};

/// Maximum number of pending command buffers.
const SLOTS: usize = 8;
/// Maximum size of `vkCmdUpdateBuffer` in bytes, by the specification.
const INLINE_BYTES: usize = 64 << 10;
/// Number of written bytes after which a command buffer is submitted.
const WRITTEN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of command buffers of one submission.
const SUBMITTED_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Slot {
    commands: vk::CommandBuffer,
    /// Signaled when the commands have finished.
    fence: vk::Fence,
    pending: bool,
    /// Number of recordings so far.
    generation: u64,
}

/// A byte range of a buffer.
#[derive(Clone, Copy)]
pub(super) struct BufferRange {
    pub(super) buffer: vk::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// Ring of command buffers, and the readback buffer.
pub(super) struct Ring {
    slots: [Slot; SLOTS],
    /// Index of the current slot.
    at: usize,
    /// Number of bytes written by the current slot; `None` if it is not being recorded.
    open: Option<usize>,
    /// Host-visible buffer: `READ_BYTES` for reads, then `COPY_BYTES_MAX` per asynchronous copy.
    readable: vk::Buffer,
    mapped: NonNull<u8>,
    /// Slot and generation of the commands of each copy.
    copies: [(usize, u64); COPIES_MAX],
}

// SAFETY: the mapped address is valid in every thread.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let buffers = context.command_buffers(SLOTS)?;
        let mut slots = [Slot {
            commands: vk::CommandBuffer::null(),
            fence: vk::Fence::null(),
            pending: false,
            generation: 0,
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

    /// Records a write of whole words to a buffer, before the next submission.
    pub(super) fn write(
        &mut self,
        context: &Context,
        target: vk::Buffer,
        mut offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        for chunk in bytes.chunks(INLINE_BYTES) {
            let commands = self.begin(context)?;
            barrier(context, commands, Barrier::Copy);
            // SAFETY: the commands are being recorded; the caller checks range and alignment, and a
            // chunk is within the limit.
            unsafe {
                context
                    .raw
                    .cmd_update_buffer(commands, target, offset, chunk);
            };
            offset += chunk.len() as u64;
            let written = self.open.get_or_insert_default();
            *written += chunk.len();
            if *written >= WRITTEN_BYTES_MAX {
                self.submit(context, &[], 0)?;
            }
        }
        Ok(())
    }

    /// Records a copy within a buffer, before the next submission.
    pub(super) fn duplicate(
        &mut self,
        context: &Context,
        from: BufferRange,
        to: u64,
    ) -> Result<()> {
        let commands = self.begin(context)?;
        barrier(context, commands, Barrier::Copy);
        let region = [vk::BufferCopy::default()
            .src_offset(from.offset)
            .dst_offset(to)
            .size(from.bytes as u64)];
        let buffer = from.buffer;
        // SAFETY: the commands are being recorded; the caller checks that both ranges are in
        // bounds and do not overlap.
        unsafe {
            context
                .raw
                .cmd_copy_buffer(commands, buffer, buffer, &region);
        };
        Ok(())
    }

    /// Reads bytes of a buffer, after all submitted work.
    pub(super) fn read(
        &mut self,
        context: &Context,
        buffer: vk::Buffer,
        mut offset: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        for chunk in bytes.chunks_mut(READ_BYTES) {
            let source = BufferRange {
                buffer,
                offset,
                bytes: chunk.len(),
            };
            let slot = self.submit_copy(context, [source].into_iter(), 0)?;
            self.wait(context, slot)?;
            self.read_mapped(0, chunk);
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    /// Submits asynchronous copy `index` of buffer ranges, after all submitted work, for `take`.
    pub(super) fn copy(
        &mut self,
        context: &Context,
        sources: impl Iterator<Item = BufferRange>,
        index: usize,
    ) -> Result<()> {
        let slot = self.submit_copy(context, sources, copy_offset(index))?;
        self.copies[index] = (slot, self.slots[slot].generation);
        Ok(())
    }

    /// Waits for copy `index` and reads it.
    pub(super) fn take(&mut self, context: &Context, index: usize, bytes: &mut [u8]) -> Result<()> {
        let (slot, generation) = self.copies[index];
        // A slot waits for its commands before it is re-recorded.
        if self.slots[slot].generation == generation {
            self.wait(context, slot)?;
        }
        self.read_mapped(copy_offset(index), bytes);
        Ok(())
    }

    /// Submits a copy of concatenated ranges to offset `to` of the readback buffer; returns the slot.
    fn submit_copy(
        &mut self,
        context: &Context,
        sources: impl Iterator<Item = BufferRange>,
        mut to: usize,
    ) -> Result<usize> {
        let commands = self.begin(context)?;
        barrier(context, commands, Barrier::Copy);
        for source in sources {
            let region = [vk::BufferCopy::default()
                .src_offset(source.offset)
                .dst_offset(to as u64)
                .size(source.bytes as u64)];
            let (from, readable) = (source.buffer, self.readable);
            // SAFETY: the commands are being recorded; the caller checks the source ranges, and
            // together they fit into their part of the readback buffer.
            unsafe {
                context
                    .raw
                    .cmd_copy_buffer(commands, from, readable, &region);
            };
            to += source.bytes;
        }
        barrier(context, commands, Barrier::HostRead);
        let slot = self.at;
        self.submit(context, &[], 0)?;
        Ok(slot)
    }

    /// Reads bytes of the mapped readback buffer at offset `at`.
    fn read_mapped(&self, at: usize, bytes: &mut [u8]) {
        // SAFETY: the range is in bounds of the mapped buffer.
        let first = unsafe { self.mapped.as_ptr().add(at) };
        // SAFETY: the device has finished writing these bytes, and does not write them before the
        // next copy to the same offset; no reference to them outlives this function.
        let copied = unsafe { std::slice::from_raw_parts(first, bytes.len()) };
        bytes.copy_from_slice(copied);
    }

    /// Submits pending writes, then `recorded` repeated `times` times.
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
            context.check("commands", ended)?;
            (commands[0], fence, first) = (slot.commands, slot.fence, 1);
        }
        let mut left = recorded.len() * times as usize;
        let mut recordings = recorded.iter().cycle();
        while first + left > 0 {
            let count = left.min(SUBMITTED_MAX - first);
            for (to, recording) in commands[first..first + count]
                .iter_mut()
                .zip(&mut recordings)
            {
                *to = *recording;
            }
            context.submit(&commands[..first + count], fence)?;
            if first == 1 {
                self.slots[self.at].pending = true;
                self.at = (self.at + 1) % SLOTS;
            }
            (fence, first) = (vk::Fence::null(), 0);
            left -= count;
        }
        Ok(())
    }

    /// Returns the current command buffer; starts recording it if necessary.
    fn begin(&mut self, context: &Context) -> Result<vk::CommandBuffer> {
        let commands = self.slots[self.at].commands;
        if self.open.is_none() {
            self.wait(context, self.at)?;
            let info = vk::CommandBufferBeginInfo::default()
                .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            // SAFETY: the commands are not pending, and their pool allows re-recording.
            let begun = unsafe { context.raw.begin_command_buffer(commands, &info) };
            context.check("commands", begun)?;
            self.slots[self.at].generation += 1;
            self.open = Some(0);
        }
        Ok(commands)
    }

    /// Waits until the commands of a slot have finished.
    fn wait(&mut self, context: &Context, slot: usize) -> Result<()> {
        let slot = &mut self.slots[slot];
        if slot.pending {
            context.wait(slot.fence)?;
            // SAFETY: the fence is signaled, so no submission uses it.
            let reset = unsafe { context.raw.reset_fences(&[slot.fence]) };
            context.check("fence", reset)?;
            slot.pending = false;
        }
        Ok(())
    }
}

/// Returns the offset of an asynchronous copy in the readback buffer.
fn copy_offset(index: usize) -> usize {
    READ_BYTES + index * COPY_BYTES_MAX
}
