//! Linking of a program for replay through wgpu: buffers, pipelines and bind groups.

use super::arena::Arena;
use super::device::Device;
use super::link_plan::{Bindings, LinkPlan, LinkedTables};
use super::pipeline_cache::{self, PipelineCacheFile};
use super::pipelines::{self, CompiledKernels, Pipeline};
use super::upload::create_arena;
use tabla_core::error::{Result, bail};
use tabla_core::exec::Program;
use tabla_core::op::table::KernelId;

pub(super) type EncodedTables = LinkedTables<EncodedBindings>;

/// The pipelines and bind groups of commands.
#[derive(Debug)]
pub(super) struct EncodedBindings {
    pub(super) pipelines: Vec<Pipeline>,
    pub(super) groups: Vec<wgpu::BindGroup>,
}

/// Links a program, which shares the buffers of `linked`.
pub(super) fn link(device: &Device, program: Program, linked: &Arena) -> Result<EncodedTables> {
    let plan = LinkPlan::new(program)?;
    let fill = || create_arena(device, &plan.program, linked);
    let (pipelines, arena) = compile(device, &plan.kernels, fill)?;
    let bind = |bindings: &Bindings| {
        let kernel = plan.kernels[bindings.pipeline];
        let layout = &pipelines[bindings.pipeline].layout;
        bind(device, kernel, layout, bindings, [&arena, linked])
    };
    let groups = plan.bindings.iter().map(bind).collect::<Result<_>>()?;
    device.check()?;
    Ok(plan.finish(EncodedBindings { pipelines, groups }, arena))
}

/// Compiles the kernels that the device lacks, while `fill` creates the buffers. Returns the pipelines of all.
fn compile(
    device: &Device,
    kernels: &[KernelId],
    fill: impl FnOnce() -> Result<Arena>,
) -> Result<(Vec<Pipeline>, Arena)> {
    let compiled = device.kernels(|| Ok(CompiledKernels::<Pipeline>::default()))?;
    let missing = compiled.missing(kernels);
    if missing.is_empty() {
        return Ok((compiled.find(kernels), fill()?));
    }
    let file = PipelineCacheFile::read(device);
    let cache = pipeline_cache::create(device, &file);
    let make = |kernel, text: &_| pipelines::pipeline(device, cache.as_ref(), kernel, text);
    let (pipelines, arena) = pipelines::compile(device, &missing, &make, fill)?;
    compiled.add(&missing, pipelines);
    if let Some(bytes) = cache.and_then(|cache| cache.get_data()) {
        file.replace(&bytes);
    }
    Ok((compiled.find(kernels), arena))
}

/// Creates a bind group with buffers of the first arena that has them.
fn bind(
    device: &Device,
    kernel: KernelId,
    layout: &wgpu::BindGroupLayout,
    bindings: &Bindings,
    arenas: [&Arena; 2],
) -> Result<wgpu::BindGroup> {
    let name = kernel.name();
    let entries: Vec<_> = (0..)
        .zip(&bindings.buffers)
        .map(|(binding, &id)| wgpu::BindGroupEntry {
            binding,
            resource: arenas
                .iter()
                .find_map(|arena| arena.find(id))
                .expect("the arenas have all buffers of the tables")
                .buffer
                .as_entire_binding(),
        })
        .collect();
    let descriptor = wgpu::BindGroupDescriptor {
        label: Some(&name),
        layout,
        entries: &entries,
    };
    let (group, error) = device.with_error_scopes(|| device.wgpu.create_bind_group(&descriptor));
    if let Some(error) = error {
        device.check()?;
        bail!(Device, "gpu: {name}: {error}");
    }
    Ok(group)
}
