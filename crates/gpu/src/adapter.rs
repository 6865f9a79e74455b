//! Adapters: which GPUs there are, which one is taken, and how its device is opened.

use super::device::{Device, Failure, ready};
use super::options::Options;
use super::{forms, recorded, trial, upload};
use std::sync::Arc;
use tabla_core::device::{
    AdapterFacts, DeviceKind, Fusion, GpuFeatures, KernelVariant, Profile, Replay,
};
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::op::table::PARAMS_BYTES_MAX;

/// What the shaders need; everything else is optional.
const FEATURES: wgpu::Features = wgpu::Features::IMMEDIATES;
/// What kernels and tools can use where it is there.
const OPTIONAL: [(&str, wgpu::Features); 3] = [
    ("subgroups", wgpu::Features::SUBGROUP),
    ("cooperative_matrix", forms::MATRIX),
    ("timestamps", wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES),
];

/// Storage buffers of one kernel.
const BINDINGS: u32 = 8;
/// Lanes of a workgroup at most.
const LANES_MAX: u32 = 256;
/// Bytes of workgroup memory at most.
const WORKGROUP_BYTES_MAX: u32 = 16 << 10;
/// Tokens of a prefill chunk: a multiple of the mat-mat kernels' tile.
const CHUNK_TOKENS: u32 = 256;
/// Positions that a workgroup attends to, of few tokens: two tiles of its lanes.
const ATTENTION_PART: u32 = 256;
/// Tokens of the longest chain in one submission.
const CHAIN_TOKENS: u32 = 32;

/// The adapters of this machine, in the order of the indices of [`Options::adapter`].
pub fn adapters() -> Vec<AdapterFacts> {
    enumerate().iter().map(facts).collect()
}

/// Takes the adapter that `options` name, or else the discrete, then the integrated GPU.
/// `None` where there is no such GPU and none was named.
///
/// # Errors
///
/// `Argument` for a name that no adapter has, `Unsupported` for a named adapter that is
/// software or lacks what the shaders need, and for recorded replay where there is none; `Device`
/// where the driver refuses.
pub fn open(options: &Options) -> Result<Option<Device>> {
    let adapters = enumerate();
    let adapter = match &options.adapter {
        Some(wanted) => Some(named(&adapters, wanted, options)?),
        None => best(&adapters, options),
    };
    adapter.map(|a| tried(a, options)).transpose()
}

/// A device of an adapter with the forms of kernels that compute as they should: one that does not is
/// left, and the device asked for anew, whatever became of it meanwhile.
fn tried(adapter: &wgpu::Adapter, options: &Options) -> Result<Device> {
    let device = request(adapter, options)?;
    let forms = &device.profile.forms;
    let on_trial = forms.iter().filter(|form| forms::on_trial(**form));
    for &form in on_trial {
        if let Err(error) = trial::multiplies(&device, form) {
            tracing::warn!(%error, "this form of kernels is not used");
            let forms = forms.iter().copied().filter(|good| *good != form);
            let forms = Some(forms.collect());
            let options = options.clone();
            return tried(adapter, &Options { forms, ..options });
        }
    }
    Ok(device)
}

fn enumerate() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    // Debug builds would load the Khronos layer, which is 50 times slower.
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    ready(instance.enumerate_adapters(wgpu::Backends::PRIMARY))
}

fn kind(of: wgpu::DeviceType) -> &'static str {
    match of {
        wgpu::DeviceType::DiscreteGpu => "discrete",
        wgpu::DeviceType::IntegratedGpu => "integrated",
        wgpu::DeviceType::VirtualGpu => "virtual",
        wgpu::DeviceType::Other => "other",
        wgpu::DeviceType::Cpu => "software",
    }
}

/// Name and version of the driver.
fn driver(info: &wgpu::AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info)
}

fn is_software(adapter: &wgpu::Adapter) -> bool {
    adapter.get_info().device_type == wgpu::DeviceType::Cpu
}

fn facts(adapter: &wgpu::Adapter) -> AdapterFacts {
    let (info, limits, has) = (adapter.get_info(), adapter.limits(), adapter.features());
    let (features, without) = OPTIONAL.iter().partition(|(_, f)| has.contains(*f));
    let names = |some: Vec<&(&'static str, _)>| some.into_iter().map(|(name, _)| *name).collect();
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
        lacks: lacks(adapter),
        name: info.name,
    }
}

/// What the shaders need and the adapter has not.
fn lacks(adapter: &wgpu::Adapter) -> Vec<String> {
    let limits = adapter.limits();
    let mut lacks = Vec::new();
    if !adapter.features().contains(FEATURES) {
        lacks.push("immediates".to_string());
    }
    let params = u32::try_from(PARAMS_BYTES_MAX).expect("a small constant");
    let wanted = [
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
    for (what, has, needs) in wanted {
        if has < needs {
            lacks.push(format!("{what}: {has} of {needs}"));
        }
    }
    lacks
}

fn best<'a>(adapters: &'a [wgpu::Adapter], options: &Options) -> Option<&'a wgpu::Adapter> {
    let able = adapters
        .iter()
        .filter(|a| (options.allow_software || !is_software(a)) && lacks(a).is_empty());
    able.min_by_key(|a| match a.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    })
}

fn named<'a>(
    adapters: &'a [wgpu::Adapter],
    wanted: &str,
    options: &Options,
) -> Result<&'a wgpu::Adapter> {
    let part = wanted.to_lowercase();
    let found = match wanted.parse::<usize>() {
        Ok(index) => adapters.get(index),
        Err(_) => adapters
            .iter()
            .find(|a| a.get_info().name.to_lowercase().contains(&part)),
    };
    let Some(adapter) = found else {
        bail!(
            Argument,
            "gpu: no adapter is called {wanted}; there are {}",
            adapters.len()
        );
    };
    if is_software(adapter) && !options.allow_software {
        bail!(Unsupported, "gpu: adapter {wanted} is software");
    }
    let lacks = lacks(adapter);
    if !lacks.is_empty() {
        bail!(
            Unsupported,
            "gpu: adapter {wanted} lacks {}",
            lacks.join(", ")
        );
    }
    Ok(adapter)
}

fn request(adapter: &wgpu::Adapter, options: &Options) -> Result<Device> {
    let forms = forms::of(adapter, options);
    let limits = limits(adapter, options);
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("tabla"),
        required_features: forms
            .iter()
            .fold(FEATURES, |all, form| all | forms::features(*form))
            .union(timestamps(adapter, options))
            .union(kept(adapter, options)),
        experimental_features: forms::experimental(&forms),
        required_limits: limits.clone(),
        // Large blocks to place buffers in would be wasted: the large buffers are weights.
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
        errors.error.get_or_init(|| e.to_string());
    }));
    let losses = Arc::clone(&failure);
    wgpu.set_device_lost_callback(move |reason, message| {
        losses.lose(format!("{reason:?}: {message}"));
    });
    let recorded = match options.replay {
        Replay::Encoded => false,
        Replay::Auto => recorded::able(&wgpu).is_ok(),
        Replay::Recorded => recorded::able(&wgpu).map(|()| true)?,
    };
    let info = adapter.get_info();
    Ok(Device {
        profile: Arc::new(profile(&info, &limits, forms)),
        wgpu,
        queue,
        failure,
        shader_folder: options.shader_folder.clone(),
        kernel_folder: options.kernel_folder.clone(),
        pci: [info.vendor, info.device],
        recorded,
        hearing: Arc::default(),
        turn: Arc::default(),
    })
}

/// What timing commands needs, where the device has it.
fn timestamps(adapter: &wgpu::Adapter, options: &Options) -> wgpu::Features {
    let needs = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES;
    if options.features == GpuFeatures::All && adapter.features().contains(needs) {
        needs
    } else {
        wgpu::Features::empty()
    }
}

/// What keeping compiled kernels needs through wgpu, where the device has it.
fn kept(adapter: &wgpu::Adapter, options: &Options) -> wgpu::Features {
    if options.features == GpuFeatures::All && options.kernel_folder.is_some() {
        adapter.features() & wgpu::Features::PIPELINE_CACHE
    } else {
        wgpu::Features::empty()
    }
}

fn limits(adapter: &wgpu::Adapter, options: &Options) -> wgpu::Limits {
    if options.features == GpuFeatures::All {
        return adapter.limits();
    }
    wgpu::Limits {
        max_immediate_size: u32::try_from(PARAMS_BYTES_MAX).expect("a small constant"),
        ..wgpu::Limits::default().or_worse_values_from(&adapter.limits())
    }
}

fn profile(info: &wgpu::AdapterInfo, limits: &wgpu::Limits, forms: Vec<KernelVariant>) -> Profile {
    Profile {
        kind: DeviceKind::Gpu,
        driver: driver(info),
        name: info.name.clone(),
        backend: info.backend.to_str().to_string(),
        threads: 0,
        cache_bytes: 0,
        grid_max: limits.max_compute_workgroups_per_dimension,
        binding_bytes_max: limits
            .max_storage_buffer_binding_size
            .min(limits.max_buffer_size),
        weight_bytes: upload::weight_bytes,
        bindings_max: limits.max_storage_buffers_per_shader_stage,
        forms,
        choices: Vec::new(),
        // A norm that every workgroup computes again has to be measured to pay.
        fusion: Fusion::None,
        attention_part: ATTENTION_PART,
        chunk_tokens: CHUNK_TOKENS,
        burst_tokens: CHAIN_TOKENS,
        asynchronous: true,
    }
}
