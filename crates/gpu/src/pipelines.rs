//! Shader sources, and compilation of the pipelines that tables use.

use super::device::Device;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use tabla_core::device::KernelVariant;
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::op::list::{Access, Op};
use tabla_core::op::params;
use tabla_core::op::table::{KernelId, Table};
use tabla_core::reserve;
use tabla_shaders::{KernelSpec, expand};

/// Starts of lines that a custom shader must not change: grids and parameters depend on them.
const FIXED: [&str; 3] = ["const UNITS", "const TOKENS", "struct Params"];

/// The source of a kernel, and whether it is the built-in one.
#[derive(Debug)]
pub(super) struct KernelSource {
    pub(super) wgsl: String,
    pub(super) built_in: bool,
}

/// A kernel compiled by wgpu.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) compute: wgpu::ComputePipeline,
}

/// Pipelines by kernel. Each is compiled once, when a table first needs it.
#[derive(Debug)]
pub(super) struct CompiledKernels<P>(Mutex<BTreeMap<KernelId, P>>);

impl<P> Default for CompiledKernels<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P: Clone> CompiledKernels<P> {
    /// Returns the kernels that are not compiled.
    pub(super) fn missing(&self, kernels: &[KernelId]) -> Vec<KernelId> {
        let compiled = self.0.lock();
        let missing = kernels
            .iter()
            .filter(|kernel| !compiled.contains_key(kernel));
        missing.copied().collect()
    }

    /// Adds pipelines. One that another thread added meanwhile is kept.
    pub(super) fn add(&self, kernels: &[KernelId], pipelines: Vec<P>) {
        let mut compiled = self.0.lock();
        for (kernel, pipeline) in kernels.iter().zip(pipelines) {
            compiled.entry(*kernel).or_insert(pipeline);
        }
    }

    /// Returns the pipelines of compiled kernels.
    pub(super) fn find(&self, kernels: &[KernelId]) -> Vec<P> {
        let compiled = self.0.lock();
        let pipelines = kernels.iter().map(|kernel| compiled.get(kernel).cloned());
        pipelines
            .map(|p| p.expect("the kernel was added"))
            .collect()
    }
}

/// Validates the custom shaders of the device's shader folder, if any. The built-in shaders are
/// validated at build time.
///
/// # Errors
///
/// `Format` for a custom shader that wgpu rejects or that changes the interface.
pub fn shaders(device: &Device) -> Result<()> {
    let Some(folder) = &device.shader_path else {
        return Ok(());
    };
    for &op in Op::ALL {
        let variants = KernelId::dtypes(op).map(Some);
        for variant in variants.chain([None]) {
            KernelId::all(op, variant, KernelVariant::ALL)
                .try_for_each(|kernel| custom_source(device, folder, kernel).map(drop))?;
        }
    }
    Ok(())
}

/// Returns the kernels that the tables use, sorted.
pub(super) fn used(tables: &[Table]) -> Vec<KernelId> {
    let mut kernels: Vec<KernelId> = tables
        .iter()
        .flat_map(|t| t.cmds.iter().map(|c| c.kernel))
        .collect();
    kernels.sort_unstable();
    kernels.dedup();
    kernels
}

/// Compiles kernels with `make` on worker threads, while this thread runs `concurrent`.
pub(super) fn compile<P: Send, T>(
    device: &Device,
    kernels: &[KernelId],
    make: &(dyn Fn(KernelId, &KernelSource) -> Result<P> + Sync),
    concurrent: impl FnOnce() -> Result<T>,
) -> Result<(Vec<P>, T)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = kernels.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let workers = kernels.chunks(share).map(|chunk| {
            let work = move || -> Result<Vec<P>> {
                let compile_one = |k: &KernelId| make(*k, &kernel_source(device, *k)?);
                chunk.iter().map(compile_one).collect()
            };
            let thread = reserve::thread("tabla-kernels");
            let spawned = thread.and_then(|thread| thread.spawn_scoped(scope, work));
            spawned.map_err(|e| {
                Error::new(ErrorKind::Memory, "cannot spawn a compiler thread").caused_by(e)
            })
        });
        let workers = workers.collect::<Result<Vec<_>>>()?;
        let result = concurrent();
        let results = workers.into_iter().map(|w| match w.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let compiled = results.collect::<Result<Vec<_>>>()?;
        Ok((compiled.into_iter().flatten().collect(), result?))
    })
}

fn embedded(file: &str) -> Option<String> {
    tabla_shaders::source(file).map(str::to_string)
}

fn kernel_spec(kernel: KernelId) -> KernelSpec<'static> {
    KernelSpec {
        stem: kernel.op.name(),
        dtype: kernel.dtype.map(DType::name),
        variant: kernel.variant.map(KernelVariant::name),
    }
}

fn built_in(kernel: KernelId) -> KernelSource {
    let wgsl = expand(kernel_spec(kernel), &embedded);
    KernelSource {
        wgsl: wgsl.expect("the build expands every built-in kernel"),
        built_in: true,
    }
}

/// Returns the source of a kernel, where files of the folder override the built-in ones.
fn custom_source(device: &Device, folder: &Path, kernel: KernelId) -> Result<KernelSource> {
    let built_in = built_in(kernel);
    let read = |file: &str| {
        let custom = std::fs::read_to_string(folder.join(file));
        custom.ok().or_else(|| embedded(file))
    };
    let prefix = format!(
        "shaders: {}: {}",
        folder
            .join(kernel.op.name())
            .with_extension("wgsl")
            .display(),
        kernel.name()
    );
    let wgsl = expand(kernel_spec(kernel), &read)
        .map_err(|e| Error::new(ErrorKind::Format, format_args!("{prefix}: {e}")))?;
    if wgsl == built_in.wgsl {
        return Ok(built_in);
    }
    for start in FIXED {
        let line = |text: &str| {
            let line = text.lines().find(|l| l.starts_with(start));
            line.map(str::to_string)
        };
        if line(&wgsl) != line(&built_in.wgsl) {
            bail!(
                Format,
                "{prefix}: `{start}` differs from the built-in shader"
            );
        }
    }
    let (_, error) = device.with_error_scopes(|| device.module(&kernel.name(), &wgsl));
    if let Some(error) = error {
        bail!(Format, "{prefix}: {error}");
    }
    Ok(KernelSource {
        wgsl,
        built_in: false,
    })
}

fn kernel_source(device: &Device, kernel: KernelId) -> Result<KernelSource> {
    match &device.shader_path {
        Some(folder) => custom_source(device, folder, kernel),
        None => Ok(built_in(kernel)),
    }
}

/// Creates the pipeline of a kernel with wgpu, from the cache if possible.
pub(super) fn pipeline(
    device: &Device,
    cache: Option<&wgpu::PipelineCache>,
    kernel: KernelId,
    source: &KernelSource,
) -> Result<Pipeline> {
    let ((layout, compute), error) =
        device.with_error_scopes(|| create(device, cache, kernel, source));
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
    source: &KernelSource,
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
    let pipeline_layout = device
        .wgpu
        .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: u32::try_from(params::bytes(kernel.op)).expect("at most 64 bytes"),
        });
    let module = if source.built_in {
        device.trusted_module(&name, &source.wgsl)
    } else {
        device.module(&name, &source.wgsl)
    };
    let compute = device
        .wgpu
        .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_compiled_once() {
        let kernel = |op| KernelId::all(op, None, &[]).next().expect("a kernel");
        let [add, scale] = [Op::Add, Op::Scale].map(kernel);
        let compiled = CompiledKernels::default();
        assert_eq!(compiled.missing(&[add, scale]), [add, scale]);
        compiled.add(&[add], vec!['a']);
        assert_eq!(compiled.missing(&[add, scale]), [scale]);
        // Another thread was faster.
        compiled.add(&[add, scale], vec!['b', 's']);
        assert_eq!(compiled.find(&[scale, add]), ['s', 'a']);
        assert!(compiled.missing(&[add, scale]).is_empty());
    }
}
