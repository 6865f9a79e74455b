//! Ring of small command buffers that are re-recorded, for writes before the next run and for
//! readback copies.
#![expect(
    unsafe_code,
    reason = "Vulkan functions are unsafe, and readback is from mapped memory"
)]

use super::context::Context;
use super::record::{Barrier, barrier};
use crate::arena::BufferRange;
use crate::executor::Transfers;
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

/// Ring of command buffers, and the readback buffer.
pub(super) struct Ring {
    pub(super) context: Context,
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

// SAFETY: the mapped address is valid in every thread, and all other fields are `Send`.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn new(context: Context) -> Result<Self> {
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
            context,
            slots,
            at: 0,
            open: None,
            readable,
            mapped,
            copies: [(0, 0); COPIES_MAX],
        })
    }

    /// Submits a copy of concatenated ranges to offset `to` of the readback buffer; returns the slot.
    fn submit_copy<'a>(
        &mut self,
        sources: impl Iterator<Item = BufferRange<'a>>,
        mut to: u64,
    ) -> Result<usize> {
        let commands = self.begin()?;
        barrier(&self.context, commands, Barrier::Copy);
        for source in sources {
            self.record_copy(commands, source, self.readable, to)?;
            to += source.bytes;
        }
        barrier(&self.context, commands, Barrier::HostRead);
        let slot = self.at;
        self.submit(&[], 0)?;
        Ok(slot)
    }

    /// Records a copy of a range to offset `to` of a buffer.
    fn record_copy(
        &self,
        commands: vk::CommandBuffer,
        from: BufferRange<'_>,
        target: vk::Buffer,
        to: u64,
    ) -> Result<()> {
        let region = [vk::BufferCopy::default()
            .src_offset(from.offset)
            .dst_offset(to)
            .size(from.bytes)];
        let (raw, from) = (&self.context.raw, self.context.buffer(from.buffer)?);
        // SAFETY: the commands are being recorded; both ranges are in bounds and do not overlap: the
        // executor checks them, and all copies fit into their part of the readback buffer.
        unsafe { raw.cmd_copy_buffer(commands, from, target, &region) };
        Ok(())
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
    pub(super) fn submit(&mut self, recorded: &[vk::CommandBuffer], times: u32) -> Result<()> {
        let mut fence = vk::Fence::null();
        let mut commands = [vk::CommandBuffer::null(); SUBMITTED_MAX];
        let mut first = 0;
        if self.open.is_some() {
            let slot = self.slots[self.at];
            // SAFETY: the commands are being recorded.
            let ended = unsafe { self.context.raw.end_command_buffer(slot.commands) };
            self.open = None;
            self.context.check("commands", ended)?;
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
            self.context.submit(&commands[..first + count], fence)?;
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
    fn begin(&mut self) -> Result<vk::CommandBuffer> {
        let commands = self.slots[self.at].commands;
        if self.open.is_none() {
            self.wait(self.at)?;
            let info = vk::CommandBufferBeginInfo::default()
                .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            // SAFETY: the commands are not pending, and their pool allows re-recording.
            let begun = unsafe { self.context.raw.begin_command_buffer(commands, &info) };
            self.context.check("commands", begun)?;
            self.slots[self.at].generation += 1;
            self.open = Some(0);
        }
        Ok(commands)
    }

    /// Waits until the commands of a slot have finished.
    fn wait(&mut self, slot: usize) -> Result<()> {
        let slot = &mut self.slots[slot];
        if slot.pending {
            self.context.wait(slot.fence)?;
            // SAFETY: the fence is signaled, so no submission uses it.
            let reset = unsafe { self.context.raw.reset_fences(&[slot.fence]) };
            self.context.check("fence", reset)?;
            slot.pending = false;
        }
        Ok(())
    }
}

// Writes and copies within buffers are recorded and submitted before the next run.
impl Transfers for Ring {
    fn write(&mut self, target: &wgpu::Buffer, mut offset: u64, bytes: &[u8]) -> Result<()> {
        let target = self.context.buffer(target)?;
        for chunk in bytes.chunks(INLINE_BYTES) {
            let commands = self.begin()?;
            barrier(&self.context, commands, Barrier::Copy);
            // SAFETY: the commands are being recorded; the caller checks range and alignment, and a
            // chunk is within the limit.
            unsafe {
                self.context
                    .raw
                    .cmd_update_buffer(commands, target, offset, chunk);
            };
            offset += chunk.len() as u64;
            let written = self.open.get_or_insert_default();
            *written += chunk.len();
            if *written >= WRITTEN_BYTES_MAX {
                self.submit(&[], 0)?;
            }
        }
        Ok(())
    }

    fn duplicate(&mut self, from: BufferRange<'_>, to: u64) -> Result<()> {
        let commands = self.begin()?;
        barrier(&self.context, commands, Barrier::Copy);
        self.record_copy(commands, from, self.context.buffer(from.buffer)?, to)
    }

    fn read(&mut self, buffer: &wgpu::Buffer, mut offset: u64, bytes: &mut [u8]) -> Result<()> {
        for chunk in bytes.chunks_mut(READ_BYTES) {
            let source = BufferRange {
                buffer,
                offset,
                bytes: chunk.len() as u64,
            };
            let slot = self.submit_copy([source].into_iter(), 0)?;
            self.wait(slot)?;
            self.read_mapped(0, chunk);
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    fn copy<'a>(
        &mut self,
        sources: impl Iterator<Item = BufferRange<'a>>,
        index: usize,
    ) -> Result<()> {
        let slot = self.submit_copy(sources, copy_offset(index) as u64)?;
        self.copies[index] = (slot, self.slots[slot].generation);
        Ok(())
    }

    fn take(&mut self, index: usize, bytes: &mut [u8]) -> Result<()> {
        let (slot, generation) = self.copies[index];
        // A slot waits for its commands before it is re-recorded.
        if self.slots[slot].generation == generation {
            self.wait(slot)?;
        }
        self.read_mapped(copy_offset(index), bytes);
        Ok(())
    }
}

/// Returns the offset of an asynchronous copy in the readback buffer.
fn copy_offset(index: usize) -> usize {
    READ_BYTES + index * COPY_BYTES_MAX
}
