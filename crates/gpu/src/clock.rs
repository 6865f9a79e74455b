//! Commands timed by timestamps between them, through wgpu.

use super::device::Device;
use super::timings::Timings;
use tabla_core::error::{Result, bail};
use tabla_core::op::table::Table;

/// Timestamps of a pass, and the buffer that they come out of.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) laps: Timings,
    pub(super) stamps: wgpu::QuerySet,
    pub(super) resolved: wgpu::Buffer,
    /// Room for the timestamps of the longest table.
    pub(super) ticks: Vec<u64>,
}

impl Clock {
    /// # Errors
    ///
    /// `Unsupported` where the device was opened without timestamps in passes, or has too few.
    pub(super) fn new(device: &Device, tables: &[Table]) -> Result<Self> {
        let features = device.wgpu.features();
        if !features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
            bail!(Unsupported, "gpu: this device tells no times of commands");
        }
        let longest = tables.iter().map(|t| t.cmds.len()).max().unwrap_or(0);
        let count = u32::try_from(longest + 1).expect("tables are small");
        if count > wgpu::QUERY_SET_MAX_QUERIES {
            let limit = wgpu::QUERY_SET_MAX_QUERIES;
            bail!(
                Unsupported,
                "gpu: {longest} commands, over {limit} to be timed at once"
            );
        }
        let ((stamps, resolved), error) = device.caught(|| {
            let stamps = device.wgpu.create_query_set(&wgpu::QuerySetDescriptor {
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
            (stamps, resolved)
        });
        if let Some(error) = error {
            return Err(device.failure.explain(error));
        }
        Ok(Self {
            laps: Timings::new(
                tables.iter().map(|t| t.cmds.len()),
                device.queue.get_timestamp_period(),
                64,
            ),
            stamps,
            resolved,
            ticks: vec![0; longest + 1],
        })
    }
}
