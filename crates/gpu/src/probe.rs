//! Measurement of the memory bandwidth of a GPU with a kernel that sums all words of a buffer.

use super::device::Device;
use super::readback::{READ_BYTES, Staging};
use super::upload::Stream;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Sizes to read in bytes, many times larger than any cache; the first that can be allocated is
/// used.
const SIZES: [u64; 3] = [1 << 30, 1 << 29, 1 << 28];
/// Number of workgroups: more than any device runs concurrently.
const GROUPS: u32 = 4096;
/// Size of the sums of one buffer in bytes.
const SUMS_BYTES: u32 = 4 * GROUPS;
/// Number of words of the pattern that is written repeatedly.
const PATTERN_WORDS: u32 = 1 << 20;
/// Minimum duration of a round, so that submission and synchronization are negligible.
const ROUND_MIN: Duration = Duration::from_millis(20);
/// Maximum number of reads of all bytes in a round.
const TIMES_MAX: u32 = 256;

/// Measures the memory bandwidth of a device.
#[derive(Debug)]
pub struct Probe {
    device: Device,
    pipeline: wgpu::ComputePipeline,
    /// One per buffer.
    groups: Vec<wgpu::BindGroup>,
    /// One sum per workgroup and buffer.
    sums: wgpu::Buffer,
    readback: Staging,
    bytes: u64,
    /// Expected sum of all words.
    sum: u32,
    /// Number of reads of all bytes in a round.
    times: u32,
}

impl Probe {
    /// Fills the buffers and determines the number of reads per round.
    ///
    /// # Errors
    ///
    /// `Memory` if the allocation fails, `Device` or `DeviceLost`.
    pub fn new(device: &Device) -> Result<Self> {
        let words = allocate(device)?;
        let bytes = words.iter().map(wgpu::Buffer::size).sum();
        let sum = fill(device, &words)?;
        let ((pipeline, groups, sums), error) = device.with_error_scopes(|| create(device, &words));
        if let Some(error) = error {
            return Err(device.failure.error(error));
        }
        let mut probe = Self {
            device: device.clone(),
            pipeline,
            groups,
            sums,
            readback: Staging::new(device, READ_BYTES)?,
            bytes,
            sum,
            times: 1,
        };
        while probe.read()? < ROUND_MIN && probe.times < TIMES_MAX {
            probe.times *= 2;
        }
        Ok(probe)
    }

    /// Measures one round; returns bytes per second, from submission to completion.
    ///
    /// # Errors
    ///
    /// `Device` or `DeviceLost`.
    pub fn round(&mut self) -> Result<f64> {
        let seconds = self.read()?.as_secs_f64();
        Ok(self.bytes as f64 * f64::from(self.times) / seconds)
    }

    /// Runs one round; returns its duration.
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
        let guard = self.device.queue_lock.lock();
        self.device.queue.submit([encoder.finish()]);
        self.readback.read(&self.device, &self.sums, 0, &mut sums)?;
        drop(guard);
        let elapsed = start.elapsed();
        let sums = sums
            .as_chunks()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word));
        let sum = sums.fold(0, u32::wrapping_add);
        if sum != self.sum {
            let expected = self.sum;
            bail!(
                Device,
                "gpu: memory check failed: expected sum {expected:#x}, got {sum:#x}"
            );
        }
        Ok(elapsed)
    }
}

/// Allocates the largest size possible, in buffers within the binding limit.
fn allocate(device: &Device) -> Result<Vec<wgpu::Buffer>> {
    let limit = 1 << device.profile().binding_bytes_max.ilog2();
    let copies = wgpu::BufferUsages::COPY_DST;
    let try_allocate = |bytes: u64| {
        let part = bytes.min(limit);
        let parts = 0..bytes / part;
        device.with_error_scopes(|| parts.map(|_| buffer(device, part, copies)).collect())
    };
    let mut failed = None;
    for bytes in SIZES {
        match try_allocate(bytes) {
            (words, None) => return Ok(words),
            (_, Some(error)) => failed = Some((bytes, error)),
        }
    }
    device.check()?;
    let (bytes, error) = failed.expect("`SIZES` is not empty");
    Err(Error::new(
        ErrorKind::Memory,
        format_args!("gpu: allocating {bytes} bytes for the bandwidth test failed: {error}"),
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

/// Fills the buffers with noise, because memory may be faster with zeros; returns the sum.
fn fill(device: &Device, words: &[wgpu::Buffer]) -> Result<u32> {
    let noise = |n: u32| (n ^ n >> 9).wrapping_mul(2_654_435_769);
    let pattern: Vec<u32> = (0..PATTERN_WORDS).map(noise).collect();
    let sum = pattern.iter().copied().fold(0, u32::wrapping_add);
    let pattern: &[u8] = bytemuck::cast_slice(&pattern);
    let mut stream = Stream::new(device);
    let mut all = 0_u32;
    for words in words {
        stream.begin(words);
        for _ in 0..words.size() / pattern.len() as u64 {
            stream.push(pattern)?;
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
        let sums = wgpu::BufferBinding {
            buffer: &sums,
            offset: at * bytes,
            size: NonZeroU64::new(bytes),
        };
        let resources = [
            words.as_entire_binding(),
            wgpu::BindingResource::Buffer(sums),
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
