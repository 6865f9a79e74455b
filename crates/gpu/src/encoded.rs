//! Encoded replay through wgpu: one compute pass of prebuilt objects and one submission per replay.

use super::arena::BufferRange;
use super::clock::{self, EncodedQueries};
use super::device::Device;
use super::executor::{Replayer, Transfers};
use super::link_plan::{LinkPlan, LinkedTable, LinkedTables};
use super::pipeline_cache::{self, PipelineCacheFile};
use super::pipelines::{self, CompiledKernels, Pipeline};
use super::readback::{READ_BYTES, Staging};
use super::timings::Timings;
use std::iter;
use std::ops::Range;
use std::time::Instant;
use tabla_core::error::{Result, bail};
use tabla_core::exec::{COPIES_MAX, COPY_BYTES_MAX};
use tabla_core::op::table::{BufferId, Cmds, KernelId};

/// Encodes the commands of every replay.
#[derive(Debug)]
pub(super) struct EncodedReplay {
    device: Device,
    reads: Staging,
    /// By slot of `Copies`.
    copies: [Staging; COPIES_MAX],
}

/// The pipelines and bind groups of commands.
#[derive(Debug)]
pub(super) struct EncodedBindings {
    pipelines: Vec<Pipeline>,
    groups: Vec<wgpu::BindGroup>,
}

impl EncodedReplay {
    /// Encodes ranges of commands with the bindings and parameters of their table.
    fn encode(
        &self,
        table: &LinkedTable<'_, EncodedBindings>,
        ranges: impl Iterator<Item = Range<usize>>,
        queries: Option<&EncodedQueries>,
    ) -> wgpu::CommandBuffer {
        let mut encoder = self.device.wgpu.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        let mut bound = None;
        let mut timestamps = 0;
        let mut write_timestamp = |pass: &mut wgpu::ComputePass<'_>| {
            if let Some(queries) = queries {
                pass.write_timestamp(&queries.timestamps, timestamps);
                timestamps += 1;
            }
        };
        write_timestamp(&mut pass);
        for command in ranges.flat_map(|range| &table.commands[range]) {
            if bound != Some(command.pipeline) {
                pass.set_pipeline(&table.bindings.pipelines[command.pipeline].compute);
                bound = Some(command.pipeline);
            }
            pass.set_bind_group(0, &table.bindings.groups[command.group], &[]);
            pass.set_immediates(0, &table.info.params[command.params.clone()]);
            let [x, y, z] = command.grid;
            pass.dispatch_workgroups(x, y, z);
            write_timestamp(&mut pass);
        }
        drop(pass);
        if let Some(queries) = queries {
            encoder.resolve_query_set(&queries.timestamps, 0..timestamps, &queries.resolved, 0);
        }
        encoder.finish()
    }
}

impl Replayer for EncodedReplay {
    type Pipeline = Pipeline;
    type Bindings = EncodedBindings;
    type Queries = EncodedQueries;
    type Transfers = Self;

    fn new(device: &Device) -> Result<Self> {
        let mut copies = Vec::with_capacity(COPIES_MAX);
        for _ in 0..COPIES_MAX {
            copies.push(Staging::new(device, COPY_BYTES_MAX)?);
        }
        Ok(Self {
            reads: Staging::new(device, READ_BYTES)?,
            copies: copies.try_into().expect("`COPIES_MAX` buffers"),
            device: device.clone(),
        })
    }

    fn compiled(&self) -> Result<&CompiledKernels<Pipeline>> {
        self.device.kernels(|| Ok(CompiledKernels::default()))
    }

    fn compile<T>(
        &self,
        kernels: &[KernelId],
        concurrent: impl FnOnce() -> Result<T>,
    ) -> Result<(Vec<Pipeline>, T)> {
        let device = &self.device;
        let file = PipelineCacheFile::read(device);
        let cache = pipeline_cache::create(device, &file);
        let make = |kernel, text: &_| pipelines::pipeline(device, cache.as_ref(), kernel, text);
        let made = pipelines::compile(device, kernels, &make, concurrent)?;
        if let Some(bytes) = cache.and_then(|cache| cache.get_data()) {
            file.replace(&bytes);
        }
        Ok(made)
    }

    fn bind<'a>(
        &self,
        plan: &LinkPlan,
        pipelines: Vec<Pipeline>,
        buffer: impl Fn(BufferId) -> &'a wgpu::Buffer,
    ) -> Result<EncodedBindings> {
        let device = &self.device;
        let mut groups = Vec::with_capacity(plan.bindings.len());
        for bindings in &plan.bindings {
            let name = plan.kernels[bindings.pipeline].name();
            let entry = |(binding, id): (u32, &BufferId)| wgpu::BindGroupEntry {
                binding,
                resource: buffer(*id).as_entire_binding(),
            };
            let entries: Vec<_> = (0..).zip(&bindings.buffers).map(entry).collect();
            let descriptor = wgpu::BindGroupDescriptor {
                label: Some(&name),
                layout: &pipelines[bindings.pipeline].layout,
                entries: &entries,
            };
            let (group, error) =
                device.with_error_scopes(|| device.wgpu.create_bind_group(&descriptor));
            if let Some(error) = error {
                device.check()?;
                bail!(Device, "gpu: {name}: {error}");
            }
            groups.push(group);
        }
        device.check()?;
        Ok(EncodedBindings { pipelines, groups })
    }

    fn remove(&mut self, _: Range<usize>, removed: LinkedTables<EncodedBindings>) -> Result<()> {
        drop(removed);
        self.device.finish()
    }

    fn run(
        &mut self,
        table: &LinkedTable<'_, EncodedBindings>,
        cmds: &Cmds,
        times: u32,
    ) -> Result<()> {
        // The next replay is encoded while the device executes the previous one.
        for _ in 0..times {
            let work = self.encode(table, cmds.ranges(), None);
            self.device.queue.submit([work]);
        }
        self.device.check()
    }

    fn run_timed(
        &mut self,
        table: &LinkedTable<'_, EncodedBindings>,
        range: &Range<usize>,
        queries: &EncodedQueries,
        ticks: &mut [u64],
    ) -> Result<Instant> {
        let work = self.encode(table, iter::once(range.clone()), Some(queries));
        let submitted = Instant::now();
        self.device.queue.submit([work]);
        self.read(&queries.resolved, 0, bytemuck::cast_slice_mut(ticks))?;
        self.device.check()?;
        Ok(submitted)
    }

    fn queries(&self, count: usize) -> Result<(EncodedQueries, Timings)> {
        clock::queries(&self.device, count)
    }

    fn transfers(&mut self) -> &mut Self {
        self
    }
}

/// Waits for the device, at most until its timeout: the queue would wait without limit.
impl Drop for EncodedReplay {
    fn drop(&mut self) {
        let _ = self.device.finish();
    }
}

impl Transfers for EncodedReplay {
    fn write(&mut self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.queue.write_buffer(buffer, offset, bytes);
        self.device.check()
    }

    fn read(&mut self, buffer: &wgpu::Buffer, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.reads.read(&self.device, buffer, offset, bytes)
    }

    fn duplicate(&mut self, from: BufferRange<'_>, to: u64) -> Result<()> {
        // WebGPU does not copy within one buffer.
        let temporary = self.device.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: from.bytes,
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.wgpu.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(from.buffer, from.offset, &temporary, 0, from.bytes);
        encoder.copy_buffer_to_buffer(&temporary, 0, from.buffer, to, from.bytes);
        self.device.queue.submit([encoder.finish()]);
        self.device.check()
    }

    fn copy<'a>(
        &mut self,
        sources: impl Iterator<Item = BufferRange<'a>>,
        index: usize,
    ) -> Result<()> {
        self.copies[index].fill(&self.device, sources)
    }

    fn take(&mut self, index: usize, bytes: &mut [u8]) -> Result<()> {
        self.copies[index].take(&self.device, 0, bytes)
    }
}
