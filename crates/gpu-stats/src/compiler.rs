//! Compilation of kernels by a Vulkan driver, as recorded replay compiles them, and what the driver
//! says about the result.
#![expect(unsafe_code, reason = "Vulkan functions are unsafe")]

use ash::{khr, vk};
use std::ffi::CStr;
use tabla_core::device::KernelVariant;
use tabla_core::op::table::PARAMS_BYTES_MAX;
use tabla_gpu::compilation::{self, SubgroupSizes};
use wgpu::hal::api::Vulkan;
use wgpu::naga::back::spv::Options;

/// A logical device that compiles and executes nothing.
pub(crate) struct Compiler {
    /// Name of the device.
    pub(crate) name: String,
    /// Kernel variants that the device supports.
    pub(crate) variants: Vec<KernelVariant>,
    options: Options<'static>,
    device: ash::Device,
    executables: khr::pipeline_executable_properties::Device,
    sizes: SubgroupSizes,
    /// Owns the instance.
    _adapter: wgpu::Adapter,
}

/// What the driver says about a compiled kernel.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// Names and values of the statistics.
    pub(crate) statistics: Vec<(String, f64)>,
    /// Number of lanes of a subgroup.
    pub(crate) subgroup: u32,
    /// Machine code as text; empty if the driver has none.
    pub(crate) assembly: String,
}

/// The objects of one compilation, destroyed with it.
struct Objects<'a> {
    device: &'a ash::Device,
    set: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    module: vk::ShaderModule,
    pipeline: vk::Pipeline,
}

impl Compiler {
    /// Opens a logical device of an adapter.
    ///
    /// # Errors
    ///
    /// If the adapter has no statistics.
    pub(crate) fn new(adapter: wgpu::Adapter) -> Result<Self, String> {
        let (variants, features) = compilation::requested_features(&adapter);
        // SAFETY: nothing is destroyed through the adapter.
        let hal = unsafe { adapter.as_hal::<Vulkan>() }.ok_or("the adapter is not of Vulkan")?;
        let name = adapter.get_info().name;
        let capabilities = hal.physical_device_capabilities();
        let statistics = khr::pipeline_executable_properties::NAME;
        if !capabilities.supports_extension(statistics) {
            return Err(format!("{name}: no {}", statistics.to_string_lossy()));
        }
        let mut extensions = hal.required_device_extensions(features);
        let instance = hal.shared_instance().raw_instance();
        let physical = hal.raw_physical_device();
        // SAFETY: the physical device belongs to the instance; wgpu requires 1.1.
        let options = unsafe { compilation::options_of(instance, physical, &extensions, features) };
        let mut enabled = hal.physical_device_features(&extensions, features);
        extensions.push(statistics);
        let names: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let mut info = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default()
            .pipeline_executable_info(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names)
            .push_next(&mut info);
        let create = enabled.add_to_device_create(create);
        // SAFETY: the device supports the extensions and features, and has a queue family 0.
        let device = unsafe { instance.create_device(physical, &create, None) };
        let device = device.map_err(|e| format!("{name}: {e}"))?;
        let executables = khr::pipeline_executable_properties::Device::new(instance, &device);
        // SAFETY: as above, and the features are those of the adapter.
        let sizes = unsafe { SubgroupSizes::query(instance, physical, features) };
        drop(hal);
        Ok(Self {
            name,
            variants,
            options,
            device,
            executables,
            sizes,
            _adapter: adapter,
        })
    }

    /// Compiles the text of a kernel with `buffers` storage buffers.
    ///
    /// # Errors
    ///
    /// The message of naga or of the driver.
    pub(crate) fn compile(
        &self,
        wgsl: String,
        variant: Option<KernelVariant>,
        buffers: usize,
    ) -> Result<Compiled, String> {
        let (words, entry) = compilation::compile_built_in(wgsl, &self.options)?;
        let objects = self.objects(&words, &entry, variant, buffers);
        let objects = objects.map_err(|e| format!("the driver rejects the kernel: {e}"))?;
        let information = self.information(objects.pipeline);
        information.map_err(|e| format!("no statistics: {e}"))
    }

    fn objects(
        &self,
        words: &[u32],
        entry: &CStr,
        variant: Option<KernelVariant>,
        buffers: usize,
    ) -> Result<Objects<'_>, vk::Result> {
        let device = &self.device;
        let mut objects = Objects {
            device,
            set: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            module: vk::ShaderModule::null(),
            pipeline: vk::Pipeline::null(),
        };
        let small = |n: usize| u32::try_from(n).expect("a small number");
        let binding = |at| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(at)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0..small(buffers)).map(binding).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the device is valid.
        objects.set = unsafe { device.create_descriptor_set_layout(&info, None) }?;
        let params = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(small(PARAMS_BYTES_MAX))];
        let sets = [objects.set];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&sets)
            .push_constant_ranges(&params);
        // SAFETY: the set layout was created on this device.
        objects.layout = unsafe { device.create_pipeline_layout(&info, None) }?;
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: naga generates valid SPIR-V, with capabilities of the device only.
        objects.module = unsafe { device.create_shader_module(&info, None) }?;
        let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
        let stage = self.sizes.stage(variant, &mut size);
        let stage = stage.module(objects.module).name(entry);
        let info = vk::ComputePipelineCreateInfo::default()
            .flags(
                vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
                    | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR,
            )
            .stage(stage)
            .layout(objects.layout);
        let cache = vk::PipelineCache::null();
        // SAFETY: module and layout belong to this device, and match.
        let created = unsafe { device.create_compute_pipelines(cache, &[info], None) };
        objects.pipeline = created.map_err(|(_, e)| e)?[0];
        Ok(objects)
    }

    fn information(&self, pipeline: vk::Pipeline) -> Result<Compiled, vk::Result> {
        let info = vk::PipelineInfoKHR::default().pipeline(pipeline);
        // SAFETY: the pipeline belongs to this device.
        let properties = unsafe { self.executables.get_pipeline_executable_properties(&info) }?;
        let subgroup = properties.first().map_or(0, |p| p.subgroup_size);
        let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline);
        // SAFETY: the pipeline has at least one executable, and was created with statistics.
        let statistics = unsafe { self.executables.get_pipeline_executable_statistics(&info) }?;
        Ok(Compiled {
            statistics: statistics.iter().map(statistic).collect(),
            subgroup,
            assembly: self.assembly(&info)?,
        })
    }

    /// Returns the machine code as text.
    fn assembly(&self, info: &vk::PipelineExecutableInfoKHR<'_>) -> Result<String, vk::Result> {
        let (device, get) = (
            self.executables.device(),
            self.executables
                .fp()
                .get_pipeline_executable_internal_representations_khr,
        );
        let mut count = 0;
        // SAFETY: a null pointer requests the number of representations.
        unsafe { get(device, info, &mut count, std::ptr::null_mut()) }.result()?;
        let none = vk::PipelineExecutableInternalRepresentationKHR::default();
        let mut all = vec![none; count as usize];
        // SAFETY: there is space for `count` elements; without data they get its size.
        unsafe { get(device, info, &mut count, all.as_mut_ptr()) }.result()?;
        let mut texts: Vec<_> = all.iter().map(|r| vec![0u8; r.data_size]).collect();
        for (representation, text) in all.iter_mut().zip(&mut texts) {
            representation.p_data = text.as_mut_ptr().cast();
        }
        // SAFETY: as above; the data of each element has space for `data_size` bytes.
        unsafe { get(device, info, &mut count, all.as_mut_ptr()) }.result()?;
        let is_assembly = |r: &vk::PipelineExecutableInternalRepresentationKHR<'_>| {
            r.is_text == vk::TRUE && r.name_as_c_str() == Ok(c"Assembly")
        };
        let at = all.iter().position(is_assembly);
        let text = at.map(|at| String::from_utf8_lossy(&texts[at]).into_owned());
        // The text ends with a zero.
        Ok(text.unwrap_or_default().trim_end_matches('\0').to_string())
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // SAFETY: every object of the device was destroyed with its compilation.
        unsafe { self.device.destroy_device(None) };
    }
}

impl Drop for Objects<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing uses the pipeline; the object may be null.
        unsafe { self.device.destroy_pipeline(self.pipeline, None) };
        // SAFETY: a pipeline does not use its module.
        unsafe { self.device.destroy_shader_module(self.module, None) };
        // SAFETY: the pipeline was destroyed.
        unsafe { self.device.destroy_pipeline_layout(self.layout, None) };
        // SAFETY: the layout of the pipeline was destroyed.
        unsafe { self.device.destroy_descriptor_set_layout(self.set, None) };
    }
}

/// Returns the first adapter of the Vulkan driver.
pub(crate) fn adapter() -> Option<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN;
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    let adapters = std::pin::pin!(instance.enumerate_adapters(wgpu::Backends::VULKAN));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // Native backends enumerate without waiting.
    match adapters.poll(&mut context) {
        std::task::Poll::Ready(adapters) => adapters.into_iter().next(),
        std::task::Poll::Pending => None,
    }
}

fn statistic(statistic: &vk::PipelineExecutableStatisticKHR<'_>) -> (String, f64) {
    let name = statistic.name_as_c_str().unwrap_or_default();
    let (format, value) = (statistic.format, statistic.value);
    let number = match format {
        // SAFETY: the format says that the union has a float.
        vk::PipelineExecutableStatisticFormatKHR::FLOAT64 => unsafe { value.f64 },
        // SAFETY: the format says that the union has a boolean.
        vk::PipelineExecutableStatisticFormatKHR::BOOL32 => f64::from(unsafe { value.b32 }),
        // SAFETY: the other formats have 64 bits.
        _ => unsafe { value.u64 as f64 },
    };
    (name.to_string_lossy().into_owned(), number)
}
