//! What the memory of a GPU delivers: bytes that nothing is done with but to add them up.

use super::device::Device;
use super::readback::Readback;
use super::upload::Stream;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Bytes to read: many times what any cache holds. Fewer where the device has no room for so many.
const SIZES: [u64; 3] = [1 << 30, 1 << 29, 1 << 28];
/// Workgroups of the kernel: more than any device runs at once.
const GROUPS: u32 = 4096;
/// Bytes of their sums.
const SUMS_BYTES: u32 = 4 * GROUPS;
/// Words that are written at once, again and again.
const PIECE_WORDS: u32 = 1 << 20;
/// A round takes so long at least, so that handing it over and hearing of its end count for nothing.
const ROUND_MIN: Duration = Duration::from_millis(20);
/// Reads of all bytes in a round at most.
const TIMES_MAX: u32 = 256;

/// Buffers on a device, and a kernel that reads all of them.
#[derive(Debug)]
pub struct Probe {
    device: Device,
    pipeline: wgpu::ComputePipeline,
    /// One for each buffer.
    groups: Vec<wgpu::BindGroup>,
    /// A sum for each workgroup, buffer by buffer.
    sums: wgpu::Buffer,
    readback: Readback,
    bytes: u64,
    /// The sum of all words.
    sum: u32,
    /// Reads of all bytes in a round.
    times: u32,
}

impl Probe {
    /// Fills buffers, and finds out how often they have to be read for a round.
    ///
    /// # Errors
    ///
    /// `Memory` where the device has no room for them, `Device` or `DeviceLost`.
    pub fn new(device: &Device) -> Result<Self> {
        let words = words(device)?;
        let bytes = words.iter().map(wgpu::Buffer::size).sum();
        let sum = fill(device, &words)?;
        let ((pipeline, groups, sums), error) = device.caught(|| create(device, &words));
        if let Some(error) = error {
            return Err(device.failure.explain(error));
        }
        let mut probe = Self {
            device: device.clone(),
            pipeline,
            groups,
            sums,
            readback: Readback::new(device)?,
            bytes,
            sum,
            times: 1,
        };
        while probe.read()? < ROUND_MIN && probe.times < TIMES_MAX {
            probe.times *= 2;
        }
        Ok(probe)
    }

    /// Bytes per second, from when the work was handed over until its end was heard of.
    ///
    /// # Errors
    ///
    /// `Device` or `DeviceLost`.
    pub fn round(&mut self) -> Result<f64> {
        let seconds = self.read()?.as_secs_f64();
        Ok(self.bytes as f64 * f64::from(self.times) / seconds)
    }

    /// Reads all bytes as often as a round does.
    fn read(&mut self) -> Result<Duration> {
        let mut sums = vec![0; SUMS_BYTES as usize * self.groups.len()];
        let start = Instant::now();
        let mut encoder = self.device.wgpu.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        for _ in 0..self.times {
            for group in &self.groups {
                pass.set_bind_group(0, group, &[]);
                pass.dispatch_workgroups(GROUPS, 1, 1);
            }
        }
        drop(pass);
        let turn = self.device.turn.lock();
        self.device.queue.submit([encoder.finish()]);
        self.readback.read(&self.device, &self.sums, 0, &mut sums)?;
        drop(turn);
        let took = start.elapsed();
        let sums = sums
            .as_chunks()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word));
        let sum = sums.fold(0, u32::wrapping_add);
        if sum != self.sum {
            let wanted = self.sum;
            bail!(
                Device,
                "gpu: words add up to {sum:#x}, written were {wanted:#x}"
            );
        }
        Ok(took)
    }
}

/// As many bytes as there is room for, in buffers that can be bound.
fn words(device: &Device) -> Result<Vec<wgpu::Buffer>> {
    let limit = 1 << device.profile().binding_bytes_max.ilog2();
    let copies = wgpu::BufferUsages::COPY_DST;
    let allocate = |bytes: u64| {
        let part = bytes.min(limit);
        let parts = 0..bytes / part;
        device.caught(|| parts.map(|_| buffer(device, part, copies)).collect())
    };
    let mut refusal = None;
    for bytes in SIZES {
        match allocate(bytes) {
            (words, None) => return Ok(words),
            (_, Some(error)) => refusal = Some((bytes, error)),
        }
    }
    device.check()?;
    let (bytes, error) = refusal.expect("a size was tried");
    Err(Error::new(
        ErrorKind::Memory,
        format_args!("gpu: {bytes} bytes to measure the memory with: {error}"),
    ))
}

fn buffer(device: &Device, size: u64, copies: wgpu::BufferUsages) -> wgpu::Buffer {
    device.wgpu.create_buffer(&wgpu::BufferDescriptor {
        label: Some("probe"),
        size,
        usage: wgpu::BufferUsages::STORAGE | copies,
        mapped_at_creation: false,
    })
}

/// Writes words that look like noise, for memory may be faster with zeros; yields their sum.
fn fill(device: &Device, words: &[wgpu::Buffer]) -> Result<u32> {
    let noise = |n: u32| (n ^ n >> 9).wrapping_mul(2_654_435_769);
    let piece: Vec<u32> = (0..PIECE_WORDS).map(noise).collect();
    let sum = piece.iter().copied().fold(0, u32::wrapping_add);
    let piece: &[u8] = bytemuck::cast_slice(&piece);
    let mut stream = Stream::new(device);
    let mut all = 0_u32;
    for words in words {
        stream.begin(words);
        for _ in 0..words.size() / piece.len() as u64 {
            stream.push(piece)?;
            all = all.wrapping_add(sum);
        }
        stream.end()?;
    }
    stream.wait()?;
    Ok(all)
}

fn create(
    device: &Device,
    words: &[wgpu::Buffer],
) -> (wgpu::ComputePipeline, Vec<wgpu::BindGroup>, wgpu::Buffer) {
    let (label, wgpu) = (Some("probe"), &device.wgpu);
    let module = device.trusted_module("probe", include_str!("probe.wgsl"));
    let pipeline = wgpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let bytes = u64::from(SUMS_BYTES);
    let sums = buffer(
        device,
        bytes * words.len() as u64,
        wgpu::BufferUsages::COPY_SRC,
    );
    let group = |(words, at): (&wgpu::Buffer, u64)| {
        let own = wgpu::BufferBinding {
            buffer: &sums,
            offset: at * bytes,
            size: NonZeroU64::new(bytes),
        };
        let resources = [
            words.as_entire_binding(),
            wgpu::BindingResource::Buffer(own),
        ];
        let entries = resources.into_iter().zip(0..);
        let entries: Vec<_> = entries
            .map(|(resource, binding)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        wgpu.create_bind_group(&wgpu::BindGroupDescriptor {
            label,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        })
    };
    let groups = words.iter().zip(0..).map(group).collect();
    (pipeline, groups, sums)
}
