//! Number of cores of an adapter.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use ash::{amd, nv, vk};
use wgpu::hal::api::Vulkan;

/// Returns the number of compute units or multiprocessors; 0 if the driver does not report it.
pub(in super::super) fn cores(adapter: &wgpu::Adapter) -> u32 {
    // SAFETY: no object of wgpu is destroyed or changed through it.
    let Some(hal) = (unsafe { adapter.as_hal::<Vulkan>() }) else {
        return 0;
    };
    let instance = hal.shared_instance();
    let capabilities = hal.physical_device_capabilities();
    let version = capabilities.properties().api_version;
    // `vkGetPhysicalDeviceProperties2` requires 1.1.
    if version.min(instance.instance_api_version()) < vk::API_VERSION_1_1 {
        return 0;
    }
    let mut nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let mut amd = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
    let mut properties = vk::PhysicalDeviceProperties2::default();
    if capabilities.supports_extension(nv::shader_sm_builtins::NAME) {
        properties = properties.push_next(&mut nvidia);
    }
    if capabilities.supports_extension(amd::shader_core_properties2::NAME) {
        properties = properties.push_next(&mut amd);
    }
    // SAFETY: the physical device belongs to this instance, and supports the extensions of the chained structures.
    unsafe {
        let physical = hal.raw_physical_device();
        let raw = instance.raw_instance();
        raw.get_physical_device_properties2(physical, &mut properties);
    }
    nvidia.shader_sm_count.max(amd.active_compute_unit_count)
}
