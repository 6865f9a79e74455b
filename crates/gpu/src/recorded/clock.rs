//! Timing of commands with Vulkan timestamp queries.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use super::context::{Context, hal};
use super::kernels::RecordedBindings;
use super::record::Recorder;
use crate::link_plan::LinkedTable;
use crate::timings::Timings;
use ash::vk;
use std::ops::Range;
use std::time::Instant;
use tabla_core::error::{Result, bail};

/// A command buffer that is recorded for every timed replay, with a timestamp after each command.
pub(super) struct RecordedQueries {
    buffer: vk::CommandBuffer,
    timestamps: vk::QueryPool,
    fence: vk::Fence,
}

/// Creates queries for this number of timestamps, and timings in their unit.
///
/// # Errors
///
/// `Unsupported` if the queue does not support timestamps.
pub(super) fn queries(context: &Context, count: usize) -> Result<(RecordedQueries, Timings)> {
    let hal = hal(&context.device.wgpu)?;
    let instance = hal.shared_instance().raw_instance();
    let physical = hal.raw_physical_device();
    // SAFETY: the physical device belongs to this instance.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let family = families.get(hal.queue_family_index() as usize);
    let bits = family.map_or(0, |f| f.timestamp_valid_bits);
    if bits == 0 {
        bail!(Unsupported, "gpu: timestamps are not supported");
    }
    // SAFETY: as above.
    let properties = unsafe { instance.get_physical_device_properties(physical) };
    let info = vk::QueryPoolCreateInfo::default()
        .query_type(vk::QueryType::TIMESTAMP)
        .query_count(u32::try_from(count).expect("tables are small"));
    // SAFETY: the device is valid.
    let created = unsafe { context.raw.create_query_pool(&info, None) };
    let timestamps = context.check("timestamps", created)?;
    let queries = RecordedQueries {
        buffer: context.command_buffers(1)?[0],
        timestamps: context.own(timestamps, ash::Device::destroy_query_pool),
        fence: context.fence()?,
    };
    let period = properties.limits.timestamp_period;
    Ok((queries, Timings::new(period, bits)))
}

impl RecordedQueries {
    /// Runs a range once and waits for it; returns the time of submission.
    pub(super) fn run(
        &self,
        context: &Context,
        table: &LinkedTable<'_, RecordedBindings>,
        range: &Range<usize>,
        ticks: &mut [u64],
    ) -> Result<Instant> {
        let recorder = Recorder {
            context,
            buffer: self.buffer,
            timestamps: Some(self.timestamps),
        };
        recorder.record(table, range.clone())?;
        let submitted = Instant::now();
        context.submit(&[self.buffer], self.fence)?;
        context.wait(self.fence)?;
        // SAFETY: the fence is signaled, so no submission uses it.
        let reset = unsafe { context.raw.reset_fences(&[self.fence]) };
        context.check("fence", reset)?;
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the completed submission has written this number of timestamps.
        let read = unsafe {
            context
                .raw
                .get_query_pool_results(self.timestamps, 0, ticks, flags)
        };
        context.check("timestamps", read)?;
        Ok(submitted)
    }
}
