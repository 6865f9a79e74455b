//! Reading back: copies into mappable buffers, kept for the life of the executor.

use super::arena::Arena;
use super::device::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::exec::{COPIES_MAX, COPY_BYTES_MAX, Span};

/// Bytes that are read at once: the logits of 256 Ki tokens.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Bytes of what the host reads from: room for what is read at once, and for each copy.
pub(super) const READBACK_BYTES: usize = READ_BYTES + COPIES_MAX * COPY_BYTES_MAX;
/// How long to ask the device again and again before the thread sleeps for it: waking up takes
/// longer than most tokens have left by then.
const SPIN: Duration = Duration::from_millis(1);

const MAPPING: u32 = 0;
const MAPPED: u32 = 1;
const FAILED: u32 = 2;

/// The mappable buffers: one for what is read at once, and one for the room of each copy.
#[derive(Debug)]
pub(super) struct Readback {
    read: Staging,
    copies: [Staging; COPIES_MAX],
}

/// A mappable buffer and what its last mapping came to.
#[derive(Debug)]
struct Staging {
    buffer: wgpu::Buffer,
    outcome: Arc<AtomicU32>,
    /// The submission that fills it, while it is mapped or about to be.
    filled_by: Option<wgpu::SubmissionIndex>,
}

impl Readback {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let mut copies = Vec::with_capacity(COPIES_MAX);
        for _ in 0..COPIES_MAX {
            copies.push(Staging::new(device, COPY_BYTES_MAX as u64)?);
        }
        Ok(Self {
            read: Staging::new(device, READ_BYTES as u64)?,
            copies: copies.try_into().expect("so many were made"),
        })
    }

    /// Copies bytes of `source` from `offset` on, which may be odd: buffers are whole words.
    pub(super) fn read(
        &mut self,
        device: &Device,
        source: &wgpu::Buffer,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        // An odd piece takes a word more.
        let piece = READ_BYTES - 8;
        let mut at = offset;
        for some in bytes.chunks_mut(piece) {
            let start = at & !3;
            let skip = usize::try_from(at - start).expect("under 4");
            at += some.len() as u64;
            let part = (source, start, at.next_multiple_of(4) - start);
            self.read.fill(device, [part].into_iter())?;
            self.read.take(device, skip, some)?;
        }
        Ok(())
    }

    /// Has spans copied to a room, one behind the other, for `take`.
    pub(super) fn copy(
        &mut self,
        device: &Device,
        arena: &Arena,
        spans: &[Span],
        room: usize,
    ) -> Result<()> {
        arena.copyable(spans)?;
        let sources = spans.iter().filter_map(|span| {
            let entry = arena.find(span.place)?;
            Some((&entry.buffer, span.offset as u64, span.bytes as u64))
        });
        self.copies[room].fill(device, sources)
    }

    /// Waits for what was copied to a room.
    pub(super) fn take(&mut self, device: &Device, room: usize, bytes: &mut [u8]) -> Result<()> {
        self.copies[room].take(device, 0, bytes)
    }
}

impl Staging {
    fn new(device: &Device, size: u64) -> Result<Self> {
        let (buffer, error) = device.caught(|| {
            device.wgpu.create_buffer(&wgpu::BufferDescriptor {
                label: Some("readback"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        if let Some(error) = error {
            device.check()?;
            return Err(Error::new(
                ErrorKind::Memory,
                format_args!("gpu: readback: {size} bytes: {error}"),
            ));
        }
        Ok(Self {
            buffer,
            outcome: Arc::new(AtomicU32::new(MAPPING)),
            filled_by: None,
        })
    }

    /// Submits a copy of parts of buffers, one behind the other, and has the buffer mapped once it
    /// is done.
    fn fill<'a>(
        &mut self,
        device: &Device,
        sources: impl Iterator<Item = (&'a wgpu::Buffer, u64, u64)>,
    ) -> Result<()> {
        // What nobody took is forgotten.
        self.unmap();
        let mut encoder = device.wgpu.create_command_encoder(&Default::default());
        let mut to = 0;
        for (source, start, size) in sources {
            encoder.copy_buffer_to_buffer(source, start, &self.buffer, to, size);
            to += size;
        }
        let submission = device.queue.submit([encoder.finish()]);
        device.check()?;
        // A mapping that was given up has told so by now.
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

    /// Waits for the copy and takes bytes of it, from `skip` on.
    fn take(&mut self, device: &Device, skip: usize, bytes: &mut [u8]) -> Result<()> {
        let taken = self.wait(device).and_then(|()| {
            let size = (skip + bytes.len()).next_multiple_of(4);
            let view = self.buffer.slice(..size as u64).get_mapped_range();
            let view = view.map_err(|e| device.explain(e))?;
            bytes.copy_from_slice(&view[skip..skip + bytes.len()]);
            Ok(())
        });
        self.unmap();
        taken
    }

    /// Until the mapping has an outcome: a bounded spin, then sleep.
    fn wait(&self, device: &Device) -> Result<()> {
        let begun = Instant::now();
        let mut poll = wgpu::PollType::Poll;
        loop {
            let polled = device.wgpu.poll(poll.clone());
            match self.outcome.load(Ordering::Acquire) {
                MAPPED => return Ok(()),
                FAILED => return Err(device.explain("a buffer could not be mapped")),
                _ => {}
            }
            polled.map_err(|e| device.explain(e))?;
            device.check()?;
            if !matches!(poll, wgpu::PollType::Poll) {
                // Who hears of a loss in another thread takes the mapping's outcome along and tells both;
                // this waits for it.
                let error = device.explain("the work ended but not the mapping");
                return match self.outcome.load(Ordering::Acquire) {
                    MAPPED => Ok(()),
                    _ => Err(error),
                };
            }
            let waited = begun.elapsed();
            if waited > SPIN {
                poll = wgpu::PollType::Wait {
                    submission_index: self.filled_by.clone(),
                    timeout: None,
                };
            }
            // A poll allocates inside wgpu: ask as often as is worth it, for an eighth longer.
            while begun.elapsed() < waited + waited / 8 {
                std::hint::spin_loop();
            }
        }
    }
}
