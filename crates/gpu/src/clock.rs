//! Timing of commands with timestamp queries of wgpu.

use super::device::Device;
use super::timings::Timings;
use tabla_core::error::{Result, bail};

/// Timestamp queries of a compute pass, and the buffer they are resolved to.
#[derive(Debug)]
pub(super) struct EncodedTimer {
    pub(super) timings: Timings,
    pub(super) timestamps: wgpu::QuerySet,
    pub(super) resolved: wgpu::Buffer,
    /// One entry per timestamp of the longest table.
    pub(super) ticks: Vec<u64>,
}

impl EncodedTimer {
    /// Whether it has timestamps for tables with these numbers of commands.
    pub(super) fn fits(&self, counts: &[usize]) -> bool {
        counts.iter().all(|count| *count < self.ticks.len())
    }

    /// Creates a timer for tables with these numbers of commands.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device was opened without timestamps in passes, or for a table with
    /// more commands than queries.
    pub(super) fn new(device: &Device, counts: &[usize]) -> Result<Self> {
        let features = device.wgpu.features();
        if !features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
            bail!(Unsupported, "gpu: timestamps are not supported");
        }
        let longest = counts.iter().max().copied().unwrap_or(0);
        let count = u32::try_from(longest + 1).expect("tables are small");
        if count > wgpu::QUERY_SET_MAX_QUERIES {
            let limit = wgpu::QUERY_SET_MAX_QUERIES;
            bail!(
                Unsupported,
                "gpu: a table of {longest} commands needs more than {limit} timestamps"
            );
        }
        let ((timestamps, resolved), error) = device.with_error_scopes(|| {
            let timestamps = device.wgpu.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count,
            });
            let resolved = device.wgpu.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timestamps"),
                size: u64::from(count) * u64::from(wgpu::QUERY_SIZE),
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            });
            (timestamps, resolved)
        });
        if let Some(error) = error {
            return Err(device.failure.error(error));
        }
        Ok(Self {
            timings: Timings::new(device.queue.get_timestamp_period(), 64),
            timestamps,
            resolved,
            ticks: vec![0; longest + 1],
        })
    }
}
