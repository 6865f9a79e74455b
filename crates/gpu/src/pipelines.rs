//! Shader texts and the pipelines compiled from them, only for kernels that tables use.

use super::device::Device;
use std::path::Path;
use tabla_core::device::KernelVariant;
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::op::list::{Access, Op};
use tabla_core::op::params;
use tabla_core::op::table::{KernelId, Table};
use tabla_shaders::{KernelSource, expand, source};

/// Lines that a shader may not change: grids and parameters follow the built-in ones.
const FIXED: [&str; 3] = ["const UNITS", "const TOKENS", "struct Params"];

/// The whole text of a kernel, and whether it is the built-in one.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) wgsl: String,
    pub(super) built_in: bool,
}

/// A kernel compiled by wgpu.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) compute: wgpu::ComputePipeline,
}

/// Checks the shaders of the device's folder, where it has one; the built-in ones were checked
/// when they were built in.
///
/// # Errors
///
/// `Format` for a file of the shader folder that wgpu refuses or that changes the interface.
pub fn shaders(device: &Device) -> Result<()> {
    let Some(folder) = &device.shader_folder else {
        return Ok(());
    };
    for &op in Op::ALL {
        let variants = KernelId::dtypes(op).map(Some);
        let one = KernelId::dtypes(op).next().is_none().then_some(None);
        for variant in variants.chain(one) {
            KernelId::all(op, variant, KernelVariant::ALL)
                .try_for_each(|kernel| own_text(device, folder, kernel).map(drop))?;
        }
    }
    Ok(())
}

/// The kernels that these tables use, by their numbers.
pub(super) fn used(tables: &[Table]) -> Vec<KernelId> {
    let mut kernels: Vec<KernelId> = tables
        .iter()
        .flat_map(|t| t.cmds.iter().map(|c| c.kernel))
        .collect();
    kernels.sort_unstable();
    kernels.dedup();
    kernels
}

/// Compiles kernels by `make` on threads of their own, and does `meanwhile` on this one.
pub(super) fn compile<P: Send, T>(
    device: &Device,
    kernels: &[KernelId],
    make: &(dyn Fn(KernelId, &Text) -> Result<P> + Sync),
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(Vec<P>, T)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = kernels.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let workers = kernels.chunks(share).map(|some| {
            let work = move || -> Result<Vec<P>> {
                let one = |k: &KernelId| make(*k, &text(device, *k)?);
                some.iter().map(one).collect()
            };
            let thread = std::thread::Builder::new().name("tabla-kernels".to_string());
            let running = thread.spawn_scoped(scope, work);
            running.map_err(|e| Error::new(ErrorKind::Memory, "no thread for kernels").caused_by(e))
        });
        let workers = workers.collect::<Result<Vec<_>>>()?;
        let done = meanwhile();
        let results = workers.into_iter().map(|w| match w.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let compiled = results.collect::<Result<Vec<_>>>()?;
        Ok((compiled.into_iter().flatten().collect(), done?))
    })
}

fn embedded(file: &str) -> Option<String> {
    source(file).map(str::to_string)
}

fn kernel_source(kernel: KernelId) -> KernelSource<'static> {
    KernelSource {
        stem: kernel.op.name(),
        dtype: kernel.dtype.map(DType::name),
        form: kernel.form.map(KernelVariant::name),
    }
}

fn built_in(kernel: KernelId) -> Text {
    let wgsl = expand(kernel_source(kernel), &embedded);
    Text {
        wgsl: wgsl.expect("the build expanded it"),
        built_in: true,
    }
}

/// The text of a kernel with the folder's files in front of the built-in ones.
fn own_text(device: &Device, folder: &Path, kernel: KernelId) -> Result<Text> {
    let built_in = built_in(kernel);
    let read = |file: &str| {
        let own = std::fs::read_to_string(folder.join(file));
        own.ok().or_else(|| embedded(file))
    };
    let at = format!(
        "shaders: {}: {}",
        folder
            .join(kernel.op.name())
            .with_extension("wgsl")
            .display(),
        kernel.name()
    );
    let wgsl = expand(kernel_source(kernel), &read)
        .map_err(|e| Error::new(ErrorKind::Format, format_args!("{at}: {e}")))?;
    if wgsl == built_in.wgsl {
        return Ok(built_in);
    }
    for start in FIXED {
        let line = |text: &str| {
            let found = text.lines().find(|l| l.starts_with(start));
            found.map(str::to_string)
        };
        if line(&wgsl) != line(&built_in.wgsl) {
            bail!(Format, "{at}: `{start}` is not as built in");
        }
    }
    let (_, error) = device.caught(|| device.module(&kernel.name(), &wgsl));
    if let Some(error) = error {
        bail!(Format, "{at}: {error}");
    }
    Ok(Text {
        wgsl,
        built_in: false,
    })
}

fn text(device: &Device, kernel: KernelId) -> Result<Text> {
    match &device.shader_folder {
        Some(folder) => own_text(device, folder, kernel),
        None => Ok(built_in(kernel)),
    }
}

/// Compiles a kernel by wgpu, or has it out of the cache.
pub(super) fn pipeline(
    device: &Device,
    cache: Option<&wgpu::PipelineCache>,
    kernel: KernelId,
    text: &Text,
) -> Result<Pipeline> {
    let ((layout, compute), error) = device.caught(|| create(device, cache, kernel, text));
    match error {
        Some(error) => {
            device.check()?;
            bail!(Device, "gpu: kernel {}: {error}", kernel.name())
        }
        None => Ok(Pipeline { layout, compute }),
    }
}

fn create(
    device: &Device,
    cache: Option<&wgpu::PipelineCache>,
    kernel: KernelId,
    text: &Text,
) -> (wgpu::BindGroupLayout, wgpu::ComputePipeline) {
    let name = kernel.name();
    let label = Some(&*name);
    let entries: Vec<_> = (0..)
        .zip(kernel.op.operands())
        .map(|(binding, operand)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage {
                    read_only: operand.access == Access::Read,
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let layout = device
        .wgpu
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label,
            entries: &entries,
        });
    let whole = device
        .wgpu
        .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: u32::try_from(params::bytes(kernel.op)).expect("at most 64 bytes"),
        });
    let module = if text.built_in {
        device.trusted_module(&name, &text.wgsl)
    } else {
        device.module(&name, &text.wgsl)
    };
    let compute = device
        .wgpu
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&whole),
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions {
                // The shaders write workgroup memory before they read it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache,
        });
    (layout, compute)
}
