//! Subgroup sizes of pipelines.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use super::context::{Context, hal};
use ash::vk;
use std::ops::RangeInclusive;
use tabla_core::device::KernelVariant;
use tabla_core::error::Result;

/// Number of subgroups of a workgroup of 256 lanes and subgroups of 32.
const SUBGROUPS: u32 = 8;

/// Subgroup sizes that a device supports.
#[derive(Debug)]
pub struct SubgroupSizes {
    /// Whether the size may differ between pipelines. wgpu allows it for kernels with subgroup operations.
    varying: bool,
    /// Sizes that a pipeline can require.
    required: Option<RangeInclusive<u32>>,
}

impl SubgroupSizes {
    /// Returns those of the device.
    pub(super) fn new(context: &Context) -> Result<Self> {
        let features = context.device.wgpu.features();
        let hal = hal(&context.device.wgpu)?;
        let instance = hal.shared_instance().raw_instance();
        // SAFETY: the physical device belongs to this instance; `check_support` requires 1.1.
        Ok(unsafe { Self::query(instance, hal.raw_physical_device(), features) })
    }

    /// Returns those of a device with these features.
    ///
    /// # Safety
    ///
    /// The physical device must belong to the instance and support Vulkan 1.1 and the features.
    pub unsafe fn query(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        features: wgpu::Features,
    ) -> Self {
        let varying = features.contains(wgpu::Features::SUBGROUP);
        let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
        if varying {
            let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut sizes);
            // SAFETY: devices with this feature of wgpu have the properties.
            unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        }
        let is_supported = sizes
            .required_subgroup_size_stages
            .contains(vk::ShaderStageFlags::COMPUTE)
            && sizes.max_compute_workgroup_subgroups >= SUBGROUPS;
        Self {
            varying,
            required: is_supported.then_some(sizes.min_subgroup_size..=sizes.max_subgroup_size),
        }
    }

    /// Returns the compute stage of a kernel with the size that its variant is written for, if pipelines can require it.
    pub fn stage<'a>(
        &self,
        variant: Option<KernelVariant>,
        size: &'a mut vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo<'_>,
    ) -> vk::PipelineShaderStageCreateInfo<'a> {
        let stage =
            vk::PipelineShaderStageCreateInfo::default().stage(vk::ShaderStageFlags::COMPUTE);
        let lanes = variant.and_then(KernelVariant::subgroup_lanes);
        match (lanes, &self.required) {
            (Some(lanes), Some(sizes)) if sizes.contains(&lanes) => {
                size.required_subgroup_size = lanes;
                stage.push_next(size)
            }
            _ if self.varying => {
                stage.flags(vk::PipelineShaderStageCreateFlags::ALLOW_VARYING_SUBGROUP_SIZE)
            }
            _ => stage,
        }
    }
}
