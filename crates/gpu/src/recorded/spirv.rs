//! SPIR-V generation with the options that wgpu uses for its own pipelines.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use super::context::{Context, hal};
use crate::pipelines::KernelSource;
use ash::{ext, khr, vk};
use std::ffi::{CStr, CString};
use tabla_core::error::Result;
use wgpu::Features;
use wgpu::naga::back::spv::{
    self, Capability, Options, PipelineOptions, ZeroInitializeWorkgroupMemoryMode,
};
use wgpu::naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use wgpu::naga::valid::{Capabilities, ValidationFlags, Validator};
use wgpu::naga::{ShaderStage, front};

/// SPIR-V capabilities allowed by the enabled features of the device.
const CAPABILITIES: [(Features, &[Capability]); 4] = [
    (Features::empty(), &[Capability::Shader, Capability::Matrix]),
    (
        Features::SUBGROUP,
        &[
            Capability::GroupNonUniform,
            Capability::GroupNonUniformVote,
            Capability::GroupNonUniformArithmetic,
            Capability::GroupNonUniformBallot,
            Capability::GroupNonUniformShuffle,
            Capability::GroupNonUniformShuffleRelative,
            Capability::GroupNonUniformQuad,
        ],
    ),
    (Features::SHADER_F16, &[Capability::Float16]),
    (
        Features::EXPERIMENTAL_COOPERATIVE_MATRIX,
        &[
            Capability::CooperativeMatrixKHR,
            Capability::VulkanMemoryModel,
        ],
    ),
];

/// Capabilities for packed 4x8-bit dot products, if the device supports them.
const DOT_PRODUCTS: [Capability; 4] = [
    Capability::DotProduct,
    Capability::DotProductInputAll,
    Capability::DotProductInput4x8Bit,
    Capability::DotProductInput4x8BitPacked,
];

/// Device features that wgpu enables implicitly.
struct DeviceFeatures {
    version: u32,
    /// `robustBufferAccess2`: out-of-bounds reads return zero and writes are discarded.
    robust: bool,
    capabilities: Vec<Capability>,
}

impl DeviceFeatures {
    /// # Safety
    ///
    /// The physical device must belong to the instance and support Vulkan 1.1.
    unsafe fn query(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        extensions: &[&'static CStr],
    ) -> Self {
        // SAFETY: the physical device belongs to this instance.
        let version = unsafe { instance.get_physical_device_properties(physical) }.api_version;
        let has = |extension| extensions.contains(&extension);
        let mut robust = vk::PhysicalDeviceRobustness2FeaturesEXT::default();
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
        let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default();
        let mut features = vk::PhysicalDeviceFeatures2::default();
        if has(ext::robustness2::NAME) {
            features = features.push_next(&mut robust);
        }
        if version >= vk::API_VERSION_1_3 || has(khr::shader_integer_dot_product::NAME) {
            features = features.push_next(&mut dot);
        }
        if version >= vk::API_VERSION_1_2 || has(khr::shader_float16_int8::NAME) {
            features = features.push_next(&mut small);
        }
        // SAFETY: the device supports 1.1 and the extensions of the chained structs.
        unsafe { instance.get_physical_device_features2(physical, &mut features) };
        let mut capabilities = Vec::new();
        if dot.shader_integer_dot_product == vk::TRUE {
            capabilities.extend(DOT_PRODUCTS);
        }
        if small.shader_int8 == vk::TRUE {
            capabilities.push(Capability::Int8);
        }
        Self {
            version,
            robust: robust.robust_buffer_access2 == vk::TRUE,
            capabilities,
        }
    }
}

/// Returns the SPIR-V options for this device.
pub(super) fn options(context: &Context) -> Result<Options<'static>> {
    let device = &context.device.wgpu;
    let hal = hal(device)?;
    let instance = hal.shared_instance().raw_instance();
    let physical = hal.raw_physical_device();
    let extensions = hal.enabled_device_extensions();
    // SAFETY: the physical device belongs to this instance; `check_support` requires 1.1.
    Ok(unsafe { options_of(instance, physical, extensions, device.features()) })
}

/// Returns the SPIR-V options for a device with these extensions and features. Workgroup memory is
/// not zero-initialized, because the shaders write it before they read it.
///
/// # Safety
///
/// The physical device must belong to the instance and support Vulkan 1.1 and the extensions.
pub unsafe fn options_of(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    extensions: &[&'static CStr],
    features: Features,
) -> Options<'static> {
    // SAFETY: the requirements are those of this function.
    let implicit = unsafe { DeviceFeatures::query(instance, physical, extensions) };
    let enabled = CAPABILITIES.iter().filter(|(f, _)| features.contains(*f));
    let enabled = enabled.flat_map(|(_, list)| *list).copied();
    let buffer = if implicit.robust {
        BoundsCheckPolicy::Unchecked
    } else {
        BoundsCheckPolicy::Restrict
    };
    Options {
        lang_version: match implicit.version {
            ..vk::API_VERSION_1_2 => (1, 3),
            vk::API_VERSION_1_2..vk::API_VERSION_1_3 => (1, 5),
            vk::API_VERSION_1_3.. => (1, 6),
        },
        flags: spv::WriterFlags::empty(),
        capabilities: Some(enabled.chain(implicit.capabilities).collect()),
        bounds_check_policies: BoundsCheckPolicies {
            index: BoundsCheckPolicy::Restrict,
            buffer,
            ..BoundsCheckPolicies::default()
        },
        zero_initialize_workgroup_memory: ZeroInitializeWorkgroupMemoryMode::None,
        use_storage_input_output_16: false,
        ..Options::default()
    }
}

/// Compiles the text of a built-in kernel to SPIR-V; returns the words and the name of the entry point.
///
/// # Errors
///
/// The message of naga.
pub fn compile_built_in(
    wgsl: String,
    options: &Options<'_>,
) -> std::result::Result<(Vec<u32>, CString), String> {
    let built_in = true;
    compile(&KernelSource { wgsl, built_in }, options)
}

/// Compiles a kernel to SPIR-V; returns the words and the name of the entry point.
pub(super) fn compile(
    source: &KernelSource,
    options: &Options<'_>,
) -> std::result::Result<(Vec<u32>, CString), String> {
    let wgsl = &source.wgsl;
    let module = front::wgsl::parse_str(wgsl).map_err(|e| e.emit_to_string(wgsl))?;
    // The SPIR-V writer rejects capabilities that the device lacks.
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string(wgsl))?;
    let Some(entry) = module.entry_points.first() else {
        return Err("no entry point".to_string());
    };
    let pipeline = PipelineOptions {
        shader_stage: ShaderStage::Compute,
        entry_point: entry.name.clone(),
    };
    let name = CString::new(entry.name.as_str()).map_err(|e| e.to_string())?;
    let options = Options {
        // Every loop of the built-in shaders has a fixed bound.
        force_loop_bounding: !source.built_in,
        ..options.clone()
    };
    let words = spv::write_vec(&module, &info, &options, Some(&pipeline));
    Ok((words.map_err(|e| e.to_string())?, name))
}
