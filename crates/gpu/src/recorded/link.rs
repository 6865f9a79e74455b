//! Linking of a program for recorded replay: buffers, pipelines and descriptor sets.

use super::context::{self, Context};
use super::kernels::{self, Buffers, Pipeline, RecordedBindings, RecordedKernels};
use super::spirv;
use super::subgroups::SubgroupSizes;
use crate::arena::Arena;
use crate::device::Device;
use crate::link_plan::{LinkPlan, LinkedTables};
use crate::pipeline_cache::PipelineCacheFile;
use crate::pipelines;
use crate::upload::create_arena;
use tabla_core::error::Result;
use tabla_core::exec::Program;
use tabla_core::op::table::KernelId;

pub(super) type RecordedTables = LinkedTables<RecordedBindings>;

/// Links a program, which shares the buffers of the tables linked before. Returns its tables and its own buffers.
pub(super) fn link(
    context: &Context,
    program: Program,
    linked_arena: &Arena,
    linked_buffers: &Buffers,
) -> Result<(RecordedTables, Buffers)> {
    let device = &context.device;
    let kernels = RecordedKernels::of(device)?;
    let plan = LinkPlan::new(program)?;
    let fill = || create_arena(device, &plan.program, linked_arena);
    let (pipelines, arena) = compile(device, kernels, &plan.kernels, fill)?;
    let guard = context.lock()?;
    let buffers = arena.entries().iter().map(|entry| {
        let buffer = context::buffer(device, entry)?;
        Ok((entry.id, (buffer, entry.buffer.size())))
    });
    let buffers = buffers.collect::<Result<Buffers>>()?;
    let all = [&buffers, linked_buffers];
    let bindings = kernels
        .layouts
        .bind(context, pipelines, &plan.bindings, all)?;
    drop(guard);
    Ok((plan.finish(bindings, arena), buffers))
}

/// Compiles the kernels that the device lacks, while `fill` creates the buffers. Returns the pipelines of all.
fn compile(
    device: &Device,
    RecordedKernels {
        compiled,
        layouts,
        context,
    }: &RecordedKernels,
    kernels: &[KernelId],
    fill: impl FnOnce() -> Result<Arena>,
) -> Result<(Vec<Pipeline>, Arena)> {
    let missing = compiled.missing(kernels);
    if missing.is_empty() {
        return Ok((compiled.find(kernels), fill()?));
    }
    let options = spirv::options(context)?;
    let sizes = SubgroupSizes::new(context)?;
    let file = PipelineCacheFile::read(device);
    let cache = kernels::create_cache(context, &file);
    let make = |kernel: KernelId, text: &_| {
        let pipeline = kernels::pipeline(context, layouts, (&options, &sizes), cache, kernel, text)?;
        Ok((pipeline, layouts.pipelines[kernel.op.operands().len()]))
    };
    let made = pipelines::compile(device, &missing, &make, fill);
    if made.is_ok() {
        kernels::save_cache(context, cache, &file);
    }
    context.destroy(cache);
    let (pipelines, arena) = made?;
    compiled.add(&missing, pipelines);
    Ok((compiled.find(kernels), arena))
}
