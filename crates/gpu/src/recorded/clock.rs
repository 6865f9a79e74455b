//! Commands timed by timestamps between them.
#![expect(
    unsafe_code,
    reason = "timestamps are asked for through functions of Vulkan"
)]

use super::context::{Context, hal};
use super::kernels::Kernels;
use super::record::Tape;
use crate::parts::Command;
use crate::timings::Timings;
use ash::vk;
use std::ops::Range;
use std::time::Instant;
use tabla_core::error::{Result, bail};
use tabla_core::op::table::Table;

/// A command buffer that is recorded for every replay, with a timestamp behind every command.
pub(super) struct Clock {
    pub(super) laps: Timings,
    buffer: vk::CommandBuffer,
    stamps: vk::QueryPool,
    /// Room for those of the longest table.
    ticks: Vec<u64>,
    fence: vk::Fence,
}

impl Clock {
    /// # Errors
    ///
    /// `Unsupported` where the queue has no clock.
    pub(super) fn new(context: &Context, tables: &[Table]) -> Result<Self> {
        let hal = hal(&context.device.wgpu)?;
        let instance = hal.shared_instance().raw_instance();
        let physical = hal.raw_physical_device();
        // SAFETY: the physical device is of this instance.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let family = families.get(hal.queue_family_index() as usize);
        let bits = family.map_or(0, |f| f.timestamp_valid_bits);
        if bits == 0 {
            bail!(Unsupported, "gpu: this device tells no times of commands");
        }
        // SAFETY: as above.
        let facts = unsafe { instance.get_physical_device_properties(physical) };
        let longest = tables.iter().map(|t| t.cmds.len()).max().unwrap_or(0);
        let count = longest + 1;
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(u32::try_from(count).expect("tables are small"));
        // SAFETY: the device lives.
        let made = unsafe { context.raw.create_query_pool(&info, None) };
        let stamps = context.checked("timestamps", made)?;
        Ok(Self {
            laps: Timings::new(
                tables.iter().map(|t| t.cmds.len()),
                facts.limits.timestamp_period,
                bits,
            ),
            buffer: context.command_buffers(1)?[0],
            stamps: context.keep(stamps, ash::Device::destroy_query_pool),
            ticks: vec![0; count],
            fence: context.fence()?,
        })
    }

    /// Replays a range once and waits for it.
    pub(super) fn replay(
        &mut self,
        context: &Context,
        kernels: &Kernels,
        (at, table): (usize, &Table),
        (range, commands): (&Range<usize>, &[Command]),
    ) -> Result<()> {
        let tape = Tape {
            context,
            kernels,
            buffer: self.buffer,
            stamps: Some(self.stamps),
        };
        tape.record(table, table.cmds[range.clone()].iter().zip(commands))?;
        let submitted = Instant::now();
        context.submit(&[self.buffer], self.fence)?;
        context.wait(self.fence)?;
        // SAFETY: the fence is signalled: no submission has it any more.
        let reset = unsafe { context.raw.reset_fences(&[self.fence]) };
        context.checked("fence", reset)?;
        let ticks = &mut self.ticks[..=range.len()];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: so many timestamps were written by what was waited for.
        let read = unsafe {
            context
                .raw
                .get_query_pool_results(self.stamps, 0, ticks, flags)
        };
        context.checked("timestamps", read)?;
        self.laps.add((at, range), submitted, ticks);
        Ok(())
    }
}
