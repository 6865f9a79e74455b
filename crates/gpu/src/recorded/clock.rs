//! Timing of commands with Vulkan timestamp queries.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use super::context::{Context, hal};
use super::kernels::RecordedBindings;
use super::record::Recorder;
use crate::link_plan::Command;
use crate::timings::Timings;
use ash::vk;
use std::ops::Range;
use std::time::Instant;
use tabla_core::error::{Result, bail};
use tabla_core::op::table::Table;

/// A command buffer that is recorded for every timed replay, with a timestamp after each command.
pub(super) struct RecordedTimer {
    pub(super) timings: Timings,
    buffer: vk::CommandBuffer,
    timestamps: vk::QueryPool,
    /// One entry per timestamp of the longest table.
    ticks: Vec<u64>,
    fence: vk::Fence,
}

impl RecordedTimer {
    /// Whether it has timestamps for tables with these numbers of commands.
    pub(super) fn fits(&self, counts: &[usize]) -> bool {
        counts.iter().all(|count| *count < self.ticks.len())
    }

    /// Creates a timer for tables with these numbers of commands.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the queue does not support timestamps.
    pub(super) fn new(context: &Context, counts: &[usize]) -> Result<Self> {
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
        let longest = counts.iter().max().copied().unwrap_or(0);
        let count = longest + 1;
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(u32::try_from(count).expect("tables are small"));
        // SAFETY: the device is valid.
        let created = unsafe { context.raw.create_query_pool(&info, None) };
        let timestamps = context.check("timestamps", created)?;
        Ok(Self {
            timings: Timings::new(properties.limits.timestamp_period, bits),
            buffer: context.command_buffers(1)?[0],
            timestamps: context.own(timestamps, ash::Device::destroy_query_pool),
            ticks: vec![0; count],
            fence: context.fence()?,
        })
    }

    /// Replays a range once and waits for it.
    pub(super) fn replay(
        &mut self,
        context: &Context,
        bindings: &RecordedBindings,
        table_index: usize,
        table: &Table,
        range: &Range<usize>,
        commands: &[Command],
    ) -> Result<()> {
        let recorder = Recorder {
            context,
            bindings,
            buffer: self.buffer,
            timestamps: Some(self.timestamps),
        };
        recorder.record(table, table.cmds[range.clone()].iter().zip(commands))?;
        let submitted = Instant::now();
        context.submit(&[self.buffer], self.fence)?;
        context.wait(self.fence)?;
        // SAFETY: the fence is signaled, so no submission uses it.
        let reset = unsafe { context.raw.reset_fences(&[self.fence]) };
        context.check("fence", reset)?;
        let ticks = &mut self.ticks[..=range.len()];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the completed submission has written this number of timestamps.
        let read = unsafe {
            context
                .raw
                .get_query_pool_results(self.timestamps, 0, ticks, flags)
        };
        context.check("timestamps", read)?;
        self.timings.add(table_index, range, submitted, ticks);
        Ok(())
    }
}
