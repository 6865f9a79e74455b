//! Kernels and what they are bound to, as wgpu makes them but open to command buffers of our own.
#![expect(unsafe_code, reason = "kernels are made through functions of Vulkan")]

use super::context::Context;
use super::spirv;
use crate::parts::{Command, Group};
use crate::pipeline_cache::PipelineCache;
use crate::pipelines::Text;
use ash::vk;
use std::collections::HashMap;
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::op::table::{BufferId, KernelId, PARAMS_BYTES_MAX, SLOTS_MAX};
use wgpu::naga::back::spv::Options;

/// The buffers of the arena as Vulkan knows them, and their sizes.
pub(super) type Buffers = HashMap<BufferId, (vk::Buffer, u64)>;

/// Compiled kernels with their layouts, and what they bind.
pub(super) struct Kernels {
    pub(super) pipelines: Vec<(vk::Pipeline, vk::PipelineLayout)>,
    pub(super) sets: Vec<vk::DescriptorSet>,
}

impl Kernels {
    pub(super) fn bind(&self, context: &Context, buffer: vk::CommandBuffer, pipeline: usize) {
        let (pipeline, _) = self.pipelines[pipeline];
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the buffer is being recorded; the pipeline is of this device and for compute.
        unsafe { context.raw.cmd_bind_pipeline(buffer, point, pipeline) };
    }

    /// Records one command; its pipeline is bound.
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
        // SAFETY: every layout has room for the parameters of any command, which are words.
        unsafe { raw.cmd_push_constants(buffer, layout, stage, 0, params) };
        let [x, y, z] = command.grid;
        // SAFETY: pipeline, set and parameters are bound; planning held the grid to the limit.
        unsafe { raw.cmd_dispatch(buffer, x, y, z) };
    }
}

/// The layouts of kernels, by how many buffers they bind.
pub(super) struct Layouts {
    sets: Vec<vk::DescriptorSetLayout>,
    pub(super) pipelines: Vec<vk::PipelineLayout>,
}

impl Layouts {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let count = |n: usize| u32::try_from(n).expect("a small constant");
        let bindings: Vec<_> = (0..count(SLOTS_MAX)).map(binding).collect();
        let (mut sets, mut pipelines) = (Vec::new(), Vec::new());
        for buffers in 0..=SLOTS_MAX {
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings[..buffers]);
            // SAFETY: the device lives, and an adapter that binds fewer was refused.
            let made = unsafe { context.raw.create_descriptor_set_layout(&info, None) };
            let set = context.checked("layout", made)?;
            sets.push(context.keep(set, ash::Device::destroy_descriptor_set_layout));
            let params = vk::PushConstantRange::default()
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
                .size(count(PARAMS_BYTES_MAX));
            let info = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(&sets[buffers..])
                .push_constant_ranges(std::slice::from_ref(&params));
            // SAFETY: the set's layout was just made on this device.
            let made = unsafe { context.raw.create_pipeline_layout(&info, None) };
            let layout = context.checked("layout", made)?;
            pipelines.push(context.keep(layout, ash::Device::destroy_pipeline_layout));
        }
        Ok(Self { sets, pipelines })
    }

    /// A descriptor set for each group, which binds the buffers of its places.
    pub(super) fn bind(
        &self,
        context: &Context,
        buffers: &Buffers,
        groups: &[Group],
    ) -> Result<Vec<vk::DescriptorSet>> {
        let count = |n: usize| u32::try_from(n).expect("tables are small");
        let bindings = groups.iter().map(|g| g.places.len()).sum::<usize>();
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(count(bindings.max(1)))];
        let info = vk::DescriptorPoolCreateInfo::default()
            .max_sets(count(groups.len().max(1)))
            .pool_sizes(&sizes);
        // SAFETY: the device lives.
        let made = unsafe { context.raw.create_descriptor_pool(&info, None) };
        let pool = context.checked("descriptor pool", made)?;
        context.keep(pool, ash::Device::destroy_descriptor_pool);
        groups
            .iter()
            .map(|group| {
                let layouts = [self.sets[group.places.len()]];
                let info = vk::DescriptorSetAllocateInfo::default()
                    .descriptor_pool(pool)
                    .set_layouts(&layouts);
                // SAFETY: pool and layout are of this device, and the pool is ours alone.
                let made = unsafe { context.raw.allocate_descriptor_sets(&info) };
                let set = context.checked("descriptor set", made)?[0];
                fill(context, buffers, group, set);
                Ok(set)
            })
            .collect()
    }
}

fn binding(at: u32) -> vk::DescriptorSetLayoutBinding<'static> {
    vk::DescriptorSetLayoutBinding::default()
        .binding(at)
        .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
        .descriptor_count(1)
        .stage_flags(vk::ShaderStageFlags::COMPUTE)
}

/// Writes the buffers of a group into its set.
fn fill(context: &Context, buffers: &Buffers, group: &Group, set: vk::DescriptorSet) {
    let info = |place| {
        let (buffer, size) = buffers[place];
        [vk::DescriptorBufferInfo::default()
            .buffer(buffer)
            .range(size)]
    };
    let infos: Vec<_> = group.places.iter().map(info).collect();
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
    // SAFETY: the set is fresh and of this layout; the arena keeps the buffers, made for storage.
    unsafe { context.raw.update_descriptor_sets(&writes, &[]) };
}

/// The driver's cache of compiled kernels, with what was kept of an earlier one; none where nothing is
/// to be kept, or the driver has none to give.
pub(super) fn cache(context: &Context, kept: &PipelineCache) -> vk::PipelineCache {
    if !kept.wanted() {
        return vk::PipelineCache::null();
    }
    let info = vk::PipelineCacheCreateInfo::default().initial_data(kept.bytes());
    // SAFETY: the bytes are a driver's, as the file's sum says; one that did not write them itself
    // tells by their head.
    let made = unsafe { context.raw.create_pipeline_cache(&info, None) };
    match made {
        Ok(cache) => context.keep(cache, ash::Device::destroy_pipeline_cache),
        Err(error) => {
            tracing::warn!(%error, "compiled kernels are not kept");
            vk::PipelineCache::null()
        }
    }
}

/// Keeps what the cache holds now.
pub(super) fn keep(context: &Context, cache: vk::PipelineCache, kept: &PipelineCache) {
    if cache == vk::PipelineCache::null() {
        return;
    }
    // SAFETY: the cache is of this device.
    let bytes = unsafe { context.raw.get_pipeline_cache_data(cache) };
    match bytes {
        Ok(bytes) => kept.replace(&bytes),
        Err(error) => tracing::warn!(%error, "compiled kernels are not kept"),
    }
}

/// Compiles a kernel, or has it out of the cache.
pub(super) fn pipeline(
    context: &Context,
    layouts: &Layouts,
    options: &Options<'_>,
    cache: vk::PipelineCache,
    (kernel, text): (KernelId, &Text),
) -> Result<vk::Pipeline> {
    let (words, entry) = spirv::compile(text, options).map_err(|e| {
        Error::new(
            ErrorKind::Device,
            format_args!("gpu: kernel {}: {e}", kernel.name()),
        )
    })?;
    let info = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: the words are whole, and use what the device's options allow.
    let made = unsafe { context.raw.create_shader_module(&info, None) };
    let module = context.checked(&kernel.name(), made)?;
    // As wgpu has it.
    let flags = if context
        .device
        .wgpu
        .features()
        .contains(wgpu::Features::SUBGROUP)
    {
        vk::PipelineShaderStageCreateFlags::ALLOW_VARYING_SUBGROUP_SIZE
    } else {
        vk::PipelineShaderStageCreateFlags::empty()
    };
    let stage = vk::PipelineShaderStageCreateInfo::default()
        .flags(flags)
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module)
        .name(&entry);
    let info = vk::ComputePipelineCreateInfo::default()
        .stage(stage)
        .layout(layouts.pipelines[kernel.op.operands().len()]);
    // SAFETY: module and layout are of this device, and agree: both follow the shader's list.
    let made = unsafe { context.raw.create_compute_pipelines(cache, &[info], None) };
    // SAFETY: a pipeline does not need the module once it is made.
    unsafe { context.raw.destroy_shader_module(module, None) };
    let made = context.checked(&kernel.name(), made.map_err(|(_, error)| error))?;
    Ok(context.keep(made[0], ash::Device::destroy_pipeline))
}
