//! Reading back: a copy into one mappable buffer, kept for the life of the executor.

use super::device::Device;
use crate::error::{Error, ErrorKind, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the mappable buffer: the logits of 256 Ki tokens.
const STAGING_BYTES: u64 = 1 << 20;
/// How long to ask the device again and again before the thread sleeps for it: waking up takes
/// longer than most tokens have left by then.
const SPIN: Duration = Duration::from_millis(1);

const MAPPING: u32 = 0;
const MAPPED: u32 = 1;
const FAILED: u32 = 2;

/// The mappable buffer and what the last mapping came to.
#[derive(Debug)]
pub(super) struct Readback {
    staging: wgpu::Buffer,
    outcome: Arc<AtomicU32>,
}

impl Readback {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let (staging, error) = device.caught(|| {
            device.wgpu.create_buffer(&wgpu::BufferDescriptor {
                label: Some("readback"),
                size: STAGING_BYTES,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        if let Some(error) = error {
            device.failure.check()?;
            return Err(Error::new(
                ErrorKind::Memory,
                format_args!("gpu: readback: {STAGING_BYTES} bytes: {error}"),
            ));
        }
        Ok(Self {
            staging,
            outcome: Arc::new(AtomicU32::new(MAPPING)),
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
        let piece = usize::try_from(STAGING_BYTES).expect("1 MiB") - 8;
        let mut at = offset;
        for some in bytes.chunks_mut(piece) {
            self.read_piece(device, source, at, some)?;
            at += some.len() as u64;
        }
        Ok(())
    }

    fn read_piece(
        &mut self,
        device: &Device,
        source: &wgpu::Buffer,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        let start = offset & !3;
        let size = (offset + bytes.len() as u64).next_multiple_of(4) - start;
        let mut encoder = device.wgpu.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(source, start, &self.staging, 0, size);
        let submission = device.queue.submit([encoder.finish()]);
        device.failure.check()?;
        let slice = self.staging.slice(..size);
        self.outcome.store(MAPPING, Ordering::Relaxed);
        let outcome = Arc::clone(&self.outcome);
        slice.map_async(wgpu::MapMode::Read, move |result| {
            let value = if result.is_ok() { MAPPED } else { FAILED };
            outcome.store(value, Ordering::Release);
        });
        if let Err(error) = self.wait(device, submission) {
            self.staging.unmap();
            return Err(error);
        }
        let view = slice.get_mapped_range().map_err(|e| device.explain(e));
        let copied = view.map(|view| {
            let skip = usize::try_from(offset - start).expect("under 4");
            bytes.copy_from_slice(&view[skip..skip + bytes.len()]);
        });
        self.staging.unmap();
        copied
    }

    /// Until the mapping has an outcome: a bounded spin, then sleep.
    fn wait(&self, device: &Device, submission: wgpu::SubmissionIndex) -> Result<()> {
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
            device.failure.check()?;
            if !matches!(poll, wgpu::PollType::Poll) {
                bail!(Device, "gpu: the work ended but not the mapping");
            }
            let waited = begun.elapsed();
            if waited > SPIN {
                poll = wgpu::PollType::Wait {
                    submission_index: Some(submission.clone()),
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
