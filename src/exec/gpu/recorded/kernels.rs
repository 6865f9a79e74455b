//! Kernels and what they are bound to, as wgpu makes them but open to command buffers of our own.
#![expect(
    unsafe_code,
    reason = "kernels are made through functions of Vulkan"
)]

use super::Buffers;
use super::context::{Context, hal};
use crate::exec::gpu::link::Group;
use crate::exec::gpu::pipelines::Text;
use crate::error::{Error, ErrorKind, Result};
use crate::op::shaders::Shader;
use crate::op::table::{PARAMS_BYTES_MAX, SLOTS_MAX};
use ash::{ext, khr, vk};
use std::ffi::CString;
use wgpu::naga::back::spv;
use wgpu::naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use wgpu::naga::valid::{Capabilities, ValidationFlags, Validator};
use wgpu::naga::{ShaderStage, front};

/// The layouts of kernels, by how many buffers they bind.
pub(super) struct Layouts {
    sets: Vec<vk::DescriptorSetLayout>,
    pub(super) pipelines: Vec<vk::PipelineLayout>,
}

impl Layouts {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let bindings: Vec<_> = (0..SLOTS_MAX as u32).map(binding).collect();
        let (mut sets, mut pipelines) = (Vec::new(), Vec::new());
        for count in 0..=SLOTS_MAX {
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings[..count]);
            // SAFETY: the device lives, and an adapter that binds fewer was refused.
            let made = unsafe { context.raw.create_descriptor_set_layout(&info, None) };
            let set = context.checked("layout", made)?;
            sets.push(context.keep(set, ash::Device::destroy_descriptor_set_layout));
            let params = vk::PushConstantRange::default()
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
                .size(PARAMS_BYTES_MAX as u32);
            let info = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(&sets[count..])
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

/// Compiles a kernel.
pub(super) fn pipeline(
    context: &Context,
    layouts: &Layouts,
    options: &spv::Options<'_>,
    (shader, text): (&Shader, &Text),
) -> Result<vk::Pipeline> {
    let (words, entry) = spirv(text, options).map_err(|e| {
        Error::new(
            ErrorKind::Device,
            format_args!("gpu: kernel {}: {e}", shader.name),
        )
    })?;
    let info = vk::ShaderModuleCreateInfo::default().code(&words);
    // SAFETY: the words are whole, and use what the device's options allow.
    let made = unsafe { context.raw.create_shader_module(&info, None) };
    let module = context.checked(shader.name, made)?;
    // As wgpu has it.
    let flags = if context.device.wgpu.features().contains(wgpu::Features::SUBGROUP) {
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
        .layout(layouts.pipelines[shader.bindings.len()]);
    let cache = vk::PipelineCache::null();
    // SAFETY: module and layout are of this device, and agree: both follow the shader's list.
    let made = unsafe { context.raw.create_compute_pipelines(cache, &[info], None) };
    // SAFETY: a pipeline does not need the module once it is made.
    unsafe { context.raw.destroy_shader_module(module, None) };
    let made = context.checked(shader.name, made.map_err(|(_, error)| error))?;
    Ok(context.keep(made[0], ash::Device::destroy_pipeline))
}

/// A kernel as SPIR-V, and the name of its entry point.
fn spirv(text: &Text, options: &spv::Options<'_>) -> std::result::Result<(Vec<u32>, CString), String> {
    let module = front::wgsl::parse_str(&text.wgsl).map_err(|e| e.emit_to_string(&text.wgsl))?;
    // What the device cannot do the writer refuses.
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string(&text.wgsl))?;
    let Some(entry) = module.entry_points.first() else {
        return Err("no entry point".to_string());
    };
    let pipeline = spv::PipelineOptions {
        shader_stage: ShaderStage::Compute,
        entry_point: entry.name.clone(),
    };
    let name = CString::new(entry.name.as_str()).map_err(|e| e.to_string())?;
    // Loops of the built-in shaders count towards a bound that they do not change.
    let bounded = spv::Options {
        force_loop_bounding: !text.built_in,
        ..options.clone()
    };
    let words = spv::write_vec(&module, &info, &bounded, Some(&pipeline)).map_err(|e| e.to_string())?;
    Ok((words, name))
}

/// How wgpu has naga write SPIR-V for this device, but for workgroup memory, which the shaders
/// write before they read it.
pub(super) fn options(context: &Context) -> Result<spv::Options<'static>> {
    let hal = hal(&context.device.wgpu)?;
    let instance = hal.shared_instance().raw_instance();
    let physical = hal.raw_physical_device();
    // SAFETY: the physical device is of this instance.
    let version = unsafe { instance.get_physical_device_properties(physical) }.api_version;
    let has = |extension| hal.enabled_device_extensions().contains(&extension);
    let mut robustness = vk::PhysicalDeviceRobustness2FeaturesEXT::default();
    let mut dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
    let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default();
    let mut features = vk::PhysicalDeviceFeatures2::default();
    if has(ext::robustness2::NAME) {
        features = features.push_next(&mut robustness);
    }
    if version >= vk::API_VERSION_1_3 || has(khr::shader_integer_dot_product::NAME) {
        features = features.push_next(&mut dot);
    }
    if version >= vk::API_VERSION_1_2 || has(khr::shader_float16_int8::NAME) {
        features = features.push_next(&mut small);
    }
    // SAFETY: the device is of 1.1 at least, and has what was asked about.
    unsafe { instance.get_physical_device_features2(physical, &mut features) };
    let features = context.device.wgpu.features();
    let mut capabilities = vec![spv::Capability::Shader, spv::Capability::Matrix];
    let optional: [(bool, &[spv::Capability]); 5] = [
        (
            features.contains(wgpu::Features::SUBGROUP),
            &[
                spv::Capability::GroupNonUniform,
                spv::Capability::GroupNonUniformVote,
                spv::Capability::GroupNonUniformArithmetic,
                spv::Capability::GroupNonUniformBallot,
                spv::Capability::GroupNonUniformShuffle,
                spv::Capability::GroupNonUniformShuffleRelative,
                spv::Capability::GroupNonUniformQuad,
            ],
        ),
        (
            features.contains(wgpu::Features::SHADER_F16),
            &[spv::Capability::Float16],
        ),
        (
            features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
            &[
                spv::Capability::CooperativeMatrixKHR,
                spv::Capability::VulkanMemoryModel,
            ],
        ),
        (
            dot.shader_integer_dot_product == vk::TRUE,
            &[
                spv::Capability::DotProduct,
                spv::Capability::DotProductInputAll,
                spv::Capability::DotProductInput4x8Bit,
                spv::Capability::DotProductInput4x8BitPacked,
            ],
        ),
        (small.shader_int8 == vk::TRUE, &[spv::Capability::Int8]),
    ];
    for (_, some) in optional.iter().filter(|(has, _)| *has) {
        capabilities.extend_from_slice(some);
    }
    // The hardware cuts off what leaves a buffer, where it can.
    let buffer = if robustness.robust_buffer_access2 == vk::TRUE {
        BoundsCheckPolicy::Unchecked
    } else {
        BoundsCheckPolicy::Restrict
    };
    Ok(spv::Options {
        lang_version: match version {
            ..vk::API_VERSION_1_2 => (1, 3),
            vk::API_VERSION_1_2..vk::API_VERSION_1_3 => (1, 5),
            vk::API_VERSION_1_3.. => (1, 6),
        },
        flags: spv::WriterFlags::empty(),
        capabilities: Some(capabilities.into_iter().collect()),
        bounds_check_policies: BoundsCheckPolicies {
            index: BoundsCheckPolicy::Restrict,
            buffer,
            ..BoundsCheckPolicies::default()
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        use_storage_input_output_16: false,
        ..spv::Options::default()
    })
}
