//! Enumeration and selection of adapters, and opening of devices.

use super::device::{Device, Failure, ready};
use super::options::DeviceOptions;
use super::{recorded, self_test, upload, variants};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tabla_core::device::{AdapterFacts, DeviceKind, GpuFeatures, KernelVariant, Profile, Replay};
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::op::table::PARAMS_BYTES_MAX;

/// Features required by the shaders.
const FEATURES: wgpu::Features = wgpu::Features::IMMEDIATES;
/// Optional features of kernels and tools.
const OPTIONAL: [(&str, wgpu::Features); 3] = [
    ("subgroups", wgpu::Features::SUBGROUP),
    ("cooperative_matrix", variants::MATRIX),
    ("timestamps", wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES),
];

/// Files of kernel drivers for GPUs on Linux: DRM, NVIDIA (which may create its device files only when
/// they are needed), NVIDIA Tegra, WSL, Arm, Qualcomm, Imagination, Vivante.
const GPU_FILES: [&str; 10] = [
    "dev/dri",
    "dev/nvidiactl",
    "proc/driver/nvidia",
    "dev/nvmap",
    "dev/nvhost-ctrl",
    "dev/dxg",
    "dev/mali0",
    "dev/kgsl-3d0",
    "dev/pvrsrvkm",
    "dev/galcore",
];

/// Maximum number of storage buffers of a kernel.
const BINDINGS: u32 = 8;
/// Maximum number of invocations of a workgroup.
const LANES_MAX: u32 = 256;
/// Maximum workgroup memory in bytes.
const WORKGROUP_BYTES_MAX: u32 = 16 << 10;
/// Number of tokens of a prefill chunk: a multiple of the tile of the gemm kernels.
const CHUNK_TOKENS: u32 = 256;
/// Minimum number of positions per workgroup in split attention: enough for the fixed work of a workgroup.
const ATTENTION_PART: u32 = 128;
/// Maximum time of waiting for a result. A software adapter needs minutes for a chunk of a large model.
const TIMEOUT: Duration = Duration::from_secs(120);
const SOFTWARE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Maximum number of decode steps in one submission.
const BURST_TOKENS: u32 = 32;

/// Returns the adapters of this machine; the order is that of the indices in [`DeviceOptions::adapter`].
pub fn adapters() -> Vec<AdapterFacts> {
    enumerate().iter().map(facts).collect()
}

/// Opens the adapter selected by `options`. Without a selection, prefers discrete over integrated
/// GPUs, and returns `None` if no adapter is suitable. On Linux, if software adapters are not allowed and
/// no kernel driver of a GPU has files, it loads no drivers.
///
/// # Errors
///
/// `Argument` if no adapter matches the name, `Unsupported` if the named adapter is a software
/// adapter or lacks required features, or if recorded replay is requested but not supported;
/// `Device` for errors of the driver.
pub fn open(options: &DeviceOptions) -> Result<Option<Device>> {
    if options.adapter.is_none() && !options.allow_software && !has_gpu(Path::new("/")) {
        return Ok(None);
    }
    let adapters = enumerate();
    let adapter = match &options.adapter {
        Some(name) => Some(named(&adapters, name, options)?),
        None => best(&adapters, options),
    };
    adapter.map(|a| open_tested(a, options)).transpose()
}

/// Whether a GPU may be present. Loading the Vulkan drivers takes longer than loading a small model,
/// and Mesa's software driver is often installed where there is no GPU.
fn has_gpu(root: &Path) -> bool {
    cfg!(not(target_os = "linux")) || GPU_FILES.iter().any(|file| root.join(file).exists())
}

/// Opens a device and self-tests its experimental kernel variants. If a variant fails, disables it
/// and opens a new device, because the failure may have lost the first one.
fn open_tested(adapter: &wgpu::Adapter, options: &DeviceOptions) -> Result<Device> {
    let device = request(adapter, options)?;
    let variants = &device.profile.variants;
    let experimental = variants.iter().filter(|v| variants::is_experimental(**v));
    for &failed in experimental {
        if let Err(error) = self_test::check_gemm(&device, failed) {
            tracing::warn!(%error, "kernel variant disabled: the self-test failed");
            let variants = variants.iter().copied().filter(|v| *v != failed);
            let variants = Some(variants.collect());
            let options = options.clone();
            return open_tested(
                adapter,
                &DeviceOptions {
                    variants,
                    ..options
                },
            );
        }
    }
    Ok(device)
}

fn enumerate() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    // The default flags of debug builds load the Khronos validation layer, which is 50 times slower.
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    ready(instance.enumerate_adapters(wgpu::Backends::PRIMARY))
}

fn kind(device_type: wgpu::DeviceType) -> &'static str {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => "discrete",
        wgpu::DeviceType::IntegratedGpu => "integrated",
        wgpu::DeviceType::VirtualGpu => "virtual",
        wgpu::DeviceType::Other => "other",
        wgpu::DeviceType::Cpu => "software",
    }
}

/// Returns the name and version of the driver.
fn driver(info: &wgpu::AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info)
}

fn is_software(adapter: &wgpu::Adapter) -> bool {
    adapter.get_info().device_type == wgpu::DeviceType::Cpu
}

fn facts(adapter: &wgpu::Adapter) -> AdapterFacts {
    let (info, limits, has) = (adapter.get_info(), adapter.limits(), adapter.features());
    let (features, without) = OPTIONAL.iter().partition(|(_, f)| has.contains(*f));
    let names = |list: Vec<&(&'static str, _)>| list.into_iter().map(|(name, _)| *name).collect();
    AdapterFacts {
        kind: kind(info.device_type),
        backend: info.backend.to_str().to_string(),
        driver: driver(&info),
        vendor: info.vendor,
        buffer_bytes_max: limits.max_buffer_size,
        binding_bytes_max: limits.max_storage_buffer_binding_size,
        workgroup_bytes_max: limits.max_compute_workgroup_storage_size,
        subgroup_sizes: [info.subgroup_min_size, info.subgroup_max_size],
        features: names(features),
        without: names(without),
        lacks: missing(adapter),
        name: info.name,
    }
}

/// Returns the required features and limits that the adapter lacks.
fn missing(adapter: &wgpu::Adapter) -> Vec<String> {
    let limits = adapter.limits();
    let mut missing = Vec::new();
    if !adapter.features().contains(FEATURES) {
        missing.push("immediates".to_string());
    }
    let params = u32::try_from(PARAMS_BYTES_MAX).expect("a small constant");
    let required = [
        ("bytes of immediates", limits.max_immediate_size, params),
        (
            "storage buffers",
            limits.max_storage_buffers_per_shader_stage,
            BINDINGS,
        ),
        (
            "lanes in a workgroup",
            limits.max_compute_invocations_per_workgroup,
            LANES_MAX,
        ),
        (
            "bytes of workgroup memory",
            limits.max_compute_workgroup_storage_size,
            WORKGROUP_BYTES_MAX,
        ),
    ];
    for (name, limit, required) in required {
        if limit < required {
            missing.push(format!("{name}: {limit} of {required}"));
        }
    }
    missing
}

fn best<'a>(adapters: &'a [wgpu::Adapter], options: &DeviceOptions) -> Option<&'a wgpu::Adapter> {
    let suitable = adapters
        .iter()
        .filter(|a| (options.allow_software || !is_software(a)) && missing(a).is_empty());
    suitable.min_by_key(|a| match a.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    })
}

fn named<'a>(
    adapters: &'a [wgpu::Adapter],
    name: &str,
    options: &DeviceOptions,
) -> Result<&'a wgpu::Adapter> {
    let part = name.to_lowercase();
    let adapter = match name.parse::<usize>() {
        Ok(index) => adapters.get(index),
        Err(_) => adapters
            .iter()
            .find(|a| a.get_info().name.to_lowercase().contains(&part)),
    };
    let Some(adapter) = adapter else {
        bail!(
            Argument,
            "gpu: no adapter matches {name}; number of available adapters: {}",
            adapters.len()
        );
    };
    if is_software(adapter) && !options.allow_software {
        bail!(Unsupported, "gpu: adapter {name} is a software adapter");
    }
    let missing = missing(adapter);
    if !missing.is_empty() {
        bail!(
            Unsupported,
            "gpu: adapter {name} lacks {}",
            missing.join(", ")
        );
    }
    Ok(adapter)
}

fn request(adapter: &wgpu::Adapter, options: &DeviceOptions) -> Result<Device> {
    let variants = variants::available(adapter, options);
    let limits = limits(adapter, options);
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("tabla"),
        required_features: required_features(&variants)
            .union(timestamps(adapter, options))
            .union(pipeline_cache(adapter, options)),
        experimental_features: variants::experimental(&variants),
        required_limits: limits.clone(),
        // Avoids large suballocation blocks: most memory is weights, in large buffers.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    let (wgpu, queue) = ready(adapter.request_device(&descriptor)).map_err(|e| {
        let name = adapter.get_info().name;
        Error::new(ErrorKind::Device, format_args!("gpu: {name}: {e}")).caused_by(e)
    })?;
    let failure = Arc::new(Failure::default());
    let errors = Arc::clone(&failure);
    wgpu.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
        errors.set_error(&e);
    }));
    let losses = Arc::clone(&failure);
    wgpu.set_device_lost_callback(move |reason, message| {
        losses.set_lost(format!("{reason:?}: {message}"));
    });
    let recorded = match options.replay {
        Replay::Encoded => false,
        Replay::Auto => recorded::check_support(&wgpu).is_ok(),
        Replay::Recorded => recorded::check_support(&wgpu).map(|()| true)?,
    };
    let info = adapter.get_info();
    Ok(Device {
        profile: Arc::new(profile(&info, &limits, variants, recorded::cores(adapter))),
        wgpu,
        queue,
        failure,
        shader_path: options.shader_path.clone(),
        pipeline_cache_path: options.pipeline_cache_path.clone(),
        pci: [info.vendor, info.device],
        // Waking up takes longer than the remaining time of most tokens. But a thread that spins
        // takes a core from a software adapter.
        spin: if is_software(adapter) {
            Duration::ZERO
        } else {
            Duration::from_millis(1)
        },
        timeout: options.timeout.unwrap_or(match is_software(adapter) {
            true => SOFTWARE_TIMEOUT,
            false => TIMEOUT,
        }),
        recorded,
        kernels: Arc::default(),
        poll_lock: Arc::default(),
        queue_lock: Arc::default(),
    })
}

/// Returns the features that the kernels of these variants require.
fn required_features(variants: &[KernelVariant]) -> wgpu::Features {
    let features = variants.iter().map(|v| variants::features(*v));
    features.fold(FEATURES, wgpu::Features::union)
}

/// Returns the kernel variants that an adapter supports, and the features that [`open`] requests for them.
pub fn requested_features(adapter: &wgpu::Adapter) -> (Vec<KernelVariant>, wgpu::Features) {
    let variants = variants::available(adapter, &DeviceOptions::default());
    let features = required_features(&variants);
    (variants, features)
}

/// Returns the features for timing commands, or none if unsupported or disabled.
fn timestamps(adapter: &wgpu::Adapter, options: &DeviceOptions) -> wgpu::Features {
    let features = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES;
    if options.features == GpuFeatures::All && adapter.features().contains(features) {
        features
    } else {
        wgpu::Features::empty()
    }
}

/// Returns the feature for wgpu's pipeline cache, or none if unsupported or disabled.
fn pipeline_cache(adapter: &wgpu::Adapter, options: &DeviceOptions) -> wgpu::Features {
    if options.features == GpuFeatures::All && options.pipeline_cache_path.is_some() {
        adapter.features() & wgpu::Features::PIPELINE_CACHE
    } else {
        wgpu::Features::empty()
    }
}

fn limits(adapter: &wgpu::Adapter, options: &DeviceOptions) -> wgpu::Limits {
    if options.features == GpuFeatures::All {
        return adapter.limits();
    }
    wgpu::Limits {
        max_immediate_size: u32::try_from(PARAMS_BYTES_MAX).expect("a small constant"),
        ..wgpu::Limits::default().or_worse_values_from(&adapter.limits())
    }
}

fn profile(
    info: &wgpu::AdapterInfo,
    limits: &wgpu::Limits,
    variants: Vec<KernelVariant>,
    cores: u32,
) -> Profile {
    Profile {
        kind: DeviceKind::Gpu,
        driver: driver(info),
        name: info.name.clone(),
        backend: info.backend.to_str().to_string(),
        threads: 0,
        cores,
        cache_bytes: 0,
        grid_max: limits.max_compute_workgroups_per_dimension,
        binding_bytes_max: limits
            .max_storage_buffer_binding_size
            .min(limits.max_buffer_size),
        weight_bytes: upload::weight_bytes,
        bindings_max: limits.max_storage_buffers_per_shader_stage,
        variants,
        tuned_kernels: Vec::new(),
        attention_part: ATTENTION_PART,
        chunk_tokens: CHUNK_TOKENS,
        burst_tokens: BURST_TOKENS,
        asynchronous: true,
        host_experts: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn gpus_are_recognized_by_their_device_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        std::fs::create_dir(root.join("dev")).expect("a temporary folder");
        assert!(!has_gpu(root));
        std::fs::create_dir(root.join("dev/dri")).expect("a temporary folder");
        assert!(has_gpu(root));
    }
}
