//! Timestamp queries of wgpu.

use super::device::Device;
use super::timings::Timings;
use tabla_core::error::{Result, bail};

/// Timestamp queries of a compute pass, and the buffer they are resolved to.
#[derive(Debug)]
pub(super) struct EncodedQueries {
    pub(super) timestamps: wgpu::QuerySet,
    pub(super) resolved: wgpu::Buffer,
}

/// Creates queries for this number of timestamps, and timings in their unit.
///
/// # Errors
///
/// `Unsupported` if the device was opened without timestamps in passes, or for more timestamps than
/// a query set has.
pub(super) fn queries(device: &Device, count: usize) -> Result<(EncodedQueries, Timings)> {
    let features = device.wgpu.features();
    if !features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
        bail!(Unsupported, "gpu: timestamps are not supported");
    }
    let longest = count - 1;
    let count = u32::try_from(count).expect("tables are small");
    if count > wgpu::QUERY_SET_MAX_QUERIES {
        let limit = wgpu::QUERY_SET_MAX_QUERIES;
        bail!(
            Unsupported,
            "gpu: a table of {longest} commands needs more than {limit} timestamps"
        );
    }
    let (queries, error) = device.with_error_scopes(|| EncodedQueries {
        timestamps: device.wgpu.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("timestamps"),
            ty: wgpu::QueryType::Timestamp,
            count,
        }),
        resolved: device.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("timestamps"),
            size: u64::from(count) * u64::from(wgpu::QUERY_SIZE),
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        }),
    });
    if let Some(error) = error {
        return Err(device.failure.error(error));
    }
    let period = device.queue.get_timestamp_period();
    Ok((queries, Timings::new(period, 64)))
}
