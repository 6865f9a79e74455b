//! Readback through mappable buffers, which are allocated once per executor.

use super::arena::BufferRange;
use super::device::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::exec::{COPIES_MAX, COPY_BYTES_MAX};

/// Maximum size of one read in bytes: the logits of a vocabulary of 256 Ki tokens.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Total size of the readback buffers in bytes: one read and all asynchronous copies.
pub(super) const READBACK_BYTES: usize = READ_BYTES + COPIES_MAX * COPY_BYTES_MAX;

const MAPPING: u32 = 0;
const MAPPED: u32 = 1;
const FAILED: u32 = 2;

/// A mappable buffer and the state of its last mapping.
#[derive(Debug)]
pub(super) struct Staging {
    buffer: wgpu::Buffer,
    outcome: Arc<AtomicU32>,
    /// Submission that fills the buffer, while it is mapped or being mapped.
    filled_by: Option<wgpu::SubmissionIndex>,
}

impl Staging {
    pub(super) fn new(device: &Device, size: usize) -> Result<Self> {
        let (buffer, error) = device.with_error_scopes(|| {
            device.wgpu.create_buffer(&wgpu::BufferDescriptor {
                label: Some("readback"),
                size: size as u64,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        if let Some(error) = error {
            device.check()?;
            return Err(Error::new(
                ErrorKind::Memory,
                format_args!("gpu: readback: allocating {size} bytes failed: {error}"),
            ));
        }
        Ok(Self {
            buffer,
            outcome: Arc::new(AtomicU32::new(MAPPING)),
            filled_by: None,
        })
    }

    /// Reads bytes of `source` at `offset`, which may be unaligned.
    pub(super) fn read(
        &mut self,
        device: &Device,
        source: &wgpu::Buffer,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        // Leaves space for the words at an unaligned start and end.
        let chunk_bytes = READ_BYTES - 8;
        let mut at = offset;
        for chunk in bytes.chunks_mut(chunk_bytes) {
            let start = at & !3;
            let skip = usize::try_from(at - start).expect("less than 4");
            at += chunk.len() as u64;
            let part = BufferRange {
                buffer: source,
                offset: start,
                bytes: at.next_multiple_of(4) - start,
            };
            self.fill(device, [part].into_iter())?;
            self.take(device, skip, chunk)?;
        }
        Ok(())
    }

    /// Submits a copy of concatenated ranges, and maps the buffer after the copy.
    pub(super) fn fill<'a>(
        &mut self,
        device: &Device,
        sources: impl Iterator<Item = BufferRange<'a>>,
    ) -> Result<()> {
        // Discards a previous copy that was not taken.
        self.unmap();
        let mut encoder = device.wgpu.create_command_encoder(&Default::default());
        let mut to = 0;
        for BufferRange {
            buffer,
            offset,
            bytes,
        } in sources
        {
            encoder.copy_buffer_to_buffer(buffer, offset, &self.buffer, to, bytes);
            to += bytes;
        }
        let submission = device.queue.submit([encoder.finish()]);
        device.check()?;
        // The callback of a discarded mapping has run by now.
        self.outcome.store(MAPPING, Ordering::Relaxed);
        let outcome = Arc::clone(&self.outcome);
        let mapped = self.buffer.slice(..to);
        mapped.map_async(wgpu::MapMode::Read, move |result| {
            let value = if result.is_ok() { MAPPED } else { FAILED };
            outcome.store(value, Ordering::Release);
        });
        self.filled_by = Some(submission);
        Ok(())
    }

    fn unmap(&mut self) {
        if self.filled_by.take().is_some() {
            self.buffer.unmap();
        }
    }

    /// Waits for the copy and reads its bytes after the first `skip`.
    pub(super) fn take(&mut self, device: &Device, skip: usize, bytes: &mut [u8]) -> Result<()> {
        let result = self.wait(device).and_then(|()| {
            let size = (skip + bytes.len()).next_multiple_of(4);
            let view = self.buffer.slice(..size as u64).get_mapped_range();
            let view = view.map_err(|e| device.error(e))?;
            bytes.copy_from_slice(&view[skip..skip + bytes.len()]);
            Ok(())
        });
        self.unmap();
        result
    }

    /// Waits for the mapping: spins for at most the device's `spin`, then sleeps.
    fn wait(&self, device: &Device) -> Result<()> {
        let start = Instant::now();
        let mut waits = false;
        loop {
            let polled = match waits {
                true => device.wait(self.filled_by.clone()),
                false => device.poll(wgpu::PollType::Poll),
            };
            match self.outcome.load(Ordering::Acquire) {
                MAPPED => return Ok(()),
                FAILED => return Err(device.error("readback: mapping failed")),
                _ => {}
            }
            polled?;
            device.check()?;
            if waits {
                // Another thread that polls a device loss may run the callback of this mapping
                // first; `error` waits for it.
                let error = device.error("readback: the work finished without the mapping");
                return match self.outcome.load(Ordering::Acquire) {
                    MAPPED => Ok(()),
                    _ => Err(error),
                };
            }
            let waited = start.elapsed();
            if waited >= device.spin {
                waits = true;
            }
            // A poll allocates inside wgpu, so the interval grows by an eighth of the waiting time.
            while start.elapsed() < waited + waited / 8 {
                std::hint::spin_loop();
            }
        }
    }
}
