//! Vulkan pipelines and descriptor sets, created like those of wgpu.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use super::context::Context;
use super::spirv;
use super::subgroups::SubgroupSizes;
use crate::device::Device;
use crate::link_plan::{Bindings, Command};
use crate::pipeline_cache::PipelineCacheFile;
use crate::pipelines::{CompiledKernels, KernelSource};
use ash::vk;
use std::sync::Arc;
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::op::table::{BufferId, KernelId, PARAMS_BYTES_MAX, SLOTS_MAX};
use wgpu::naga::back::spv::Options;

/// A compiled kernel and its layout.
pub(super) type Pipeline = (vk::Pipeline, vk::PipelineLayout);

/// The compiled kernels of a device, and their layouts. `context` owns both.
pub(super) struct RecordedKernels {
    pub(super) compiled: CompiledKernels<Pipeline>,
    pub(super) layouts: Layouts,
    pub(super) context: Context,
}

impl RecordedKernels {
    /// Returns those of a device.
    pub(super) fn of(device: &Device) -> Result<&Self> {
        device.kernels(|| {
            // The device owns the kernels, so their own device must not.
            let context = Context::new(&Device {
                kernels: Arc::default(),
                ..device.clone()
            })?;
            Ok(Self {
                compiled: CompiledKernels::default(),
                layouts: Layouts::new(&context)?,
                context,
            })
        })
    }
}

/// The pipelines and descriptor sets of the commands of a program.
pub(super) struct RecordedBindings {
    pipelines: Vec<Pipeline>,
    pub(super) pool: vk::DescriptorPool,
    sets: Vec<vk::DescriptorSet>,
    buffers: Vec<wgpu::Buffer>,
    device: Device,
}

/// Work that does not end may use the buffers, of which wgpu does not know.
impl Drop for RecordedBindings {
    fn drop(&mut self) {
        if self.device.is_hung() {
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

impl RecordedBindings {
    pub(super) fn bind(&self, context: &Context, buffer: vk::CommandBuffer, pipeline: usize) {
        let (pipeline, _) = self.pipelines[pipeline];
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the buffer is being recorded; the compute pipeline belongs to this device.
        unsafe { context.raw.cmd_bind_pipeline(buffer, point, pipeline) };
    }

    /// Records a command. Its pipeline must be bound.
    pub(super) fn dispatch(
        &self,
        context: &Context,
        buffer: vk::CommandBuffer,
        command: &Command,
        params: &[u8],
    ) {
        let (raw, point) = (&context.raw, vk::PipelineBindPoint::COMPUTE);
        let (_, layout) = self.pipelines[command.pipeline];
        let sets = [self.sets[command.group]];
        // SAFETY: the buffer is being recorded; set and pipeline share the layout.
        unsafe { raw.cmd_bind_descriptor_sets(buffer, point, layout, 0, &sets, &[]) };
        let stage = vk::ShaderStageFlags::COMPUTE;
        // SAFETY: the push constant range of every layout fits the parameters of any command,
        // which are whole words.
        unsafe { raw.cmd_push_constants(buffer, layout, stage, 0, params) };
        let [x, y, z] = command.grid;
        // SAFETY: pipeline, set and parameters are bound; planning limits the grid.
        unsafe { raw.cmd_dispatch(buffer, x, y, z) };
    }
}

/// Layouts of kernels, indexed by their number of buffers.
pub(super) struct Layouts {
    sets: Vec<vk::DescriptorSetLayout>,
    pub(super) pipelines: Vec<vk::PipelineLayout>,
}

impl Layouts {
    fn new(context: &Context) -> Result<Self> {
        let count = |n: usize| u32::try_from(n).expect("a small constant");
        let bindings: Vec<_> = (0..count(SLOTS_MAX)).map(binding).collect();
        let (mut sets, mut pipelines) = (Vec::new(), Vec::new());
        for buffers in 0..=SLOTS_MAX {
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings[..buffers]);
            // SAFETY: the device is valid, and `open` rejects adapters with fewer bindings.
            let created = unsafe { context.raw.create_descriptor_set_layout(&info, None) };
            let set = context.check("layout", created)?;
            sets.push(context.own(set, ash::Device::destroy_descriptor_set_layout));
            let params = vk::PushConstantRange::default()
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
                .size(count(PARAMS_BYTES_MAX));
            let info = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(&sets[buffers..])
                .push_constant_ranges(std::slice::from_ref(&params));
            // SAFETY: the set layout was created on this device.
            let created = unsafe { context.raw.create_pipeline_layout(&info, None) };
            let layout = context.check("layout", created)?;
            pipelines.push(context.own(layout, ash::Device::destroy_pipeline_layout));
        }
        Ok(Self { sets, pipelines })
    }

    /// Allocates and writes a descriptor set for each of the bindings.
    pub(super) fn bind<'a>(
        &self,
        context: &Context,
        pipelines: Vec<Pipeline>,
        all: &[Bindings],
        buffer: impl Fn(BufferId) -> &'a wgpu::Buffer,
    ) -> Result<RecordedBindings> {
        let count = |n: usize| u32::try_from(n).expect("tables are small");
        let descriptors = all.iter().map(|b| b.buffers.len()).sum::<usize>();
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(count(descriptors.max(1)))];
        let info = vk::DescriptorPoolCreateInfo::default()
            .max_sets(count(all.len().max(1)))
            .pool_sizes(&sizes);
        // SAFETY: the device is valid.
        let created = unsafe { context.raw.create_descriptor_pool(&info, None) };
        let pool = context.check("descriptor pool", created)?;
        context.own(pool, ash::Device::destroy_descriptor_pool);
        let sets = all.iter().map(|bindings| {
            let layouts = [self.sets[bindings.buffers.len()]];
            let info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(pool)
                .set_layouts(&layouts);
            // SAFETY: pool and layout belong to this device, and only this thread uses the pool.
            let allocated = unsafe { context.raw.allocate_descriptor_sets(&info) };
            let set = context.check("descriptor set", allocated)?[0];
            write_set(context, set, bindings.buffers.iter().map(|id| buffer(*id)))?;
            Ok(set)
        });
        match sets.collect() {
            Ok(sets) => Ok(RecordedBindings {
                pipelines,
                pool,
                sets,
                buffers: all
                    .iter()
                    .flat_map(|b| &b.buffers)
                    .map(|id| buffer(*id).clone())
                    .collect(),
                device: context.device.clone(),
            }),
            Err(error) => {
                context.destroy(pool);
                Err(error)
            }
        }
    }
}

fn binding(at: u32) -> vk::DescriptorSetLayoutBinding<'static> {
    vk::DescriptorSetLayoutBinding::default()
        .binding(at)
        .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
        .descriptor_count(1)
        .stage_flags(vk::ShaderStageFlags::COMPUTE)
}

/// Writes buffers into a descriptor set.
fn write_set<'a>(
    context: &Context,
    set: vk::DescriptorSet,
    buffers: impl Iterator<Item = &'a wgpu::Buffer>,
) -> Result<()> {
    let infos = buffers.map(|buffer| {
        Ok([vk::DescriptorBufferInfo::default()
            .buffer(context.buffer(buffer)?)
            .range(buffer.size())])
    });
    let infos = infos.collect::<Result<Vec<_>>>()?;
    let writes: Vec<_> = (0..)
        .zip(&infos)
        .map(|(at, info)| {
            vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(at)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(info)
        })
        .collect();
    // SAFETY: the set is unused and has this layout; the arenas own the storage buffers.
    unsafe { context.raw.update_descriptor_sets(&writes, &[]) };
    Ok(())
}

/// Creates the driver's pipeline cache from the file; null if disabled or unsupported.
pub(super) fn create_cache(context: &Context, file: &PipelineCacheFile) -> vk::PipelineCache {
    if !file.enabled() {
        return vk::PipelineCache::null();
    }
    let info = vk::PipelineCacheCreateInfo::default().initial_data(file.bytes());
    // SAFETY: the data is from a driver, as the checksum shows; a different driver rejects it by its
    // header.
    let created = unsafe { context.raw.create_pipeline_cache(&info, None) };
    match created {
        Ok(cache) => context.own(cache, ash::Device::destroy_pipeline_cache),
        Err(error) => {
            tracing::warn!(%error, "pipeline cache disabled");
            vk::PipelineCache::null()
        }
    }
}

/// Writes the data of the pipeline cache to the file.
pub(super) fn save_cache(context: &Context, cache: vk::PipelineCache, file: &PipelineCacheFile) {
    if cache == vk::PipelineCache::null() {
        return;
    }
    // SAFETY: the cache belongs to this device.
    let bytes = unsafe { context.raw.get_pipeline_cache_data(cache) };
    match bytes {
        Ok(bytes) => file.replace(&bytes),
        Err(error) => tracing::warn!(%error, "pipeline cache file not written"),
    }
}

/// Creates the pipeline of a kernel, from the cache if possible.
pub(super) fn pipeline(
    context: &Context,
    layouts: &Layouts,
    (options, sizes): (&Options<'_>, &SubgroupSizes),
    cache: vk::PipelineCache,
    kernel: KernelId,
    source: &KernelSource,
) -> Result<vk::Pipeline> {
    let (words, entry) = spirv::compile(source, options).map_err(|e| {
        Error::new(
            ErrorKind::Device,
            format_args!("gpu: kernel {}: {e}", kernel.name()),
        )
    })?;
    let info = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: naga generates valid SPIR-V, and `options` allows only capabilities of the device.
    let created = unsafe { context.raw.create_shader_module(&info, None) };
    let module = context.check(&kernel.name(), created)?;
    let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
    let stage = sizes
        .stage(kernel.variant, &mut size)
        .module(module)
        .name(&entry);
    let info = vk::ComputePipelineCreateInfo::default()
        .stage(stage)
        .layout(layouts.pipelines[kernel.op.operands().len()]);
    // SAFETY: module and layout belong to this device, and match: both follow the op's operands.
    let created = unsafe { context.raw.create_compute_pipelines(cache, &[info], None) };
    // SAFETY: a created pipeline does not use the module.
    unsafe { context.raw.destroy_shader_module(module, None) };
    let created = context.check(&kernel.name(), created.map_err(|(_, error)| error))?;
    Ok(context.own(created[0], ash::Device::destroy_pipeline))
}
