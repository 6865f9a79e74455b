//! Replay of Vulkan command buffers that are recorded once. Uses the device, queue and buffers of
//! wgpu directly.
//!
//! A range of a table is recorded when it first runs, and resubmitted for every later run: lengths
//! and step state are in device memory. Writes are submitted before the next run. A token needs no
//! allocation.

mod clock;
mod context;
mod cores;
mod kernels;
mod record;
mod ring;
pub(super) mod spirv;
pub(super) mod subgroups;

use super::device::Device;
use super::executor::{self, Replayer};
use super::link_plan::{LinkPlan, LinkedTable, LinkedTables};
use super::pipeline_cache::PipelineCacheFile;
use super::pipelines::{self, CompiledKernels, KernelSource};
use super::timings::Timings;
use ash::vk;
use clock::RecordedQueries;
use context::Context;
pub(super) use context::{check_support, wait_idle};
pub(super) use cores::cores;
use kernels::{Pipeline, RecordedBindings, RecordedKernels, create_cache, pipeline, save_cache};
use record::Recordings;
use ring::Ring;
use std::ops::Range;
use std::time::Instant;
use subgroups::SubgroupSizes;
use tabla_core::error::Result;
use tabla_core::exec::{Executor, Program};
use tabla_core::op::table::{BufferId, Cmds, KernelId};

/// Submits recorded command buffers.
struct RecordedReplay {
    ring: Ring,
    recordings: Recordings,
}

/// Links tables to a device whose queue is shared with wgpu.
pub(super) fn link(device: Device, program: Program) -> Result<Box<dyn Executor>> {
    executor::link::<RecordedReplay>(device, program)
}

impl Replayer for RecordedReplay {
    type Pipeline = Pipeline;
    type Bindings = RecordedBindings;
    type Queries = RecordedQueries;
    type Transfers = Ring;

    fn new(device: &Device) -> Result<Self> {
        let context = Context::new(device)?;
        Ok(Self {
            recordings: Recordings::new(&context)?,
            ring: Ring::new(context)?,
        })
    }

    fn compiled(&self) -> Result<&CompiledKernels<Pipeline>> {
        Ok(&RecordedKernels::of(&self.ring.context.device)?.compiled)
    }

    fn compile<T>(
        &self,
        kernels: &[KernelId],
        concurrent: impl FnOnce() -> Result<T>,
    ) -> Result<(Vec<Pipeline>, T)> {
        let device = &self.ring.context.device;
        let RecordedKernels {
            layouts, context, ..
        } = RecordedKernels::of(device)?;
        let options = spirv::options(context)?;
        let sizes = SubgroupSizes::new(context)?;
        let file = PipelineCacheFile::read(device);
        let cache = create_cache(context, &file);
        let make = |kernel: KernelId, text: &KernelSource| {
            if !text.built_in {
                // Vulkan does not check the interface of a shader.
                pipelines::pipeline(device, None, kernel, text)?;
            }
            let pipeline = pipeline(context, layouts, (&options, &sizes), cache, kernel, text)?;
            Ok((pipeline, layouts.pipelines[kernel.op.operands().len()]))
        };
        let made = pipelines::compile(device, kernels, &make, concurrent);
        if made.is_ok() {
            save_cache(context, cache, &file);
        }
        context.destroy(cache);
        made
    }

    fn bind<'a>(
        &self,
        plan: &LinkPlan,
        pipelines: Vec<Pipeline>,
        buffer: impl Fn(BufferId) -> &'a wgpu::Buffer,
    ) -> Result<RecordedBindings> {
        let layouts = &RecordedKernels::of(&self.ring.context.device)?.layouts;
        layouts.bind(&self.ring.context, pipelines, &plan.bindings, buffer)
    }

    fn remove(
        &mut self,
        tables: Range<usize>,
        removed: LinkedTables<RecordedBindings>,
    ) -> Result<()> {
        // Pending writes may be to the buffers of these tables.
        let submitted = self.ring.submit(&[], 0);
        let ended = submitted.and_then(|()| self.ring.context.wait_idle());
        if !self.ring.context.device.is_hung() {
            self.recordings.remove(&tables);
            self.ring.context.destroy(removed.bindings.pool);
        }
        ended
    }

    fn run(
        &mut self,
        table: &LinkedTable<'_, RecordedBindings>,
        cmds: &Cmds,
        times: u32,
    ) -> Result<()> {
        self.recordings.grow(&self.ring.context)?;
        if !self.recordings.has_space() {
            self.ring.context.wait_idle()?;
            self.recordings.clear();
        }
        let mut recorded = [vk::CommandBuffer::null(); 2];
        let mut count = 0;
        for (recording, range) in recorded.iter_mut().zip(cmds.ranges()) {
            count += 1;
            *recording = match self.recordings.find(table.index, &range) {
                Some(existing) => existing,
                None => self.recordings.record(&self.ring.context, table, range)?,
            };
        }
        self.ring.submit(&recorded[..count], times)
    }

    fn run_timed(
        &mut self,
        table: &LinkedTable<'_, RecordedBindings>,
        range: &Range<usize>,
        queries: &RecordedQueries,
        ticks: &mut [u64],
    ) -> Result<Instant> {
        self.ring.submit(&[], 0)?;
        queries.run(&self.ring.context, table, range, ticks)
    }

    fn queries(&self, count: usize) -> Result<(RecordedQueries, Timings)> {
        clock::queries(&self.ring.context, count)
    }

    fn transfers(&mut self) -> &mut Ring {
        &mut self.ring
    }
}
