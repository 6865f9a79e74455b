//! Linking of a program for recorded replay: buffers, pipelines and descriptor sets.

use super::context::{self, Context};
use super::kernels::{self, Buffers, Layouts, Pipeline, Sets};
use super::spirv;
use crate::arena::Arena;
use crate::link_plan::{LinkPlan, LinkedTables};
use crate::pipeline_cache::PipelineCacheFile;
use crate::pipelines::{self, CompiledKernels};
use crate::upload::create_arena;
use tabla_core::error::Result;
use tabla_core::exec::Program;
use tabla_core::op::table::KernelId;

/// Linked tables with the descriptor sets of their commands.
pub(super) type RecordedTables = LinkedTables<Sets>;

/// Links a program, which shares the buffers of `linked`, and adds the kernels that it needs. Returns
/// its tables and its own buffers.
pub(super) fn link(
    context: &Context,
    program: Program,
    (layouts, compiled): (&Layouts, &mut CompiledKernels<Pipeline>),
    linked: (&Arena, &Buffers),
) -> Result<(RecordedTables, Buffers)> {
    let device = &context.device;
    let plan = LinkPlan::new(program, &compiled.kernels)?;
    let fill = || create_arena(device, &plan.program, linked.0);
    let (pipelines, arena) = compile(context, layouts, &plan.kernels, fill)?;
    compiled.add(&plan.kernels, pipelines);
    let guard = context.lock()?;
    let buffers = arena.entries().iter().map(|entry| {
        let buffer = context::buffer(device, entry)?;
        Ok((entry.id, (buffer, entry.buffer.size())))
    });
    let buffers = buffers.collect::<Result<Buffers>>()?;
    let sets = layouts.bind(context, &plan.bindings, [&buffers, linked.1])?;
    drop(guard);
    Ok((plan.finish(sets, arena), buffers))
}

/// Compiles kernels, while `fill` creates the buffers.
fn compile(
    context: &Context,
    layouts: &Layouts,
    kernels: &[KernelId],
    fill: impl FnOnce() -> Result<Arena>,
) -> Result<(Vec<Pipeline>, Arena)> {
    if kernels.is_empty() {
        return Ok((Vec::new(), fill()?));
    }
    let options = spirv::options(context)?;
    let file = PipelineCacheFile::read(&context.device);
    let cache = kernels::create_cache(context, &file);
    let make = |kernel: KernelId, text: &_| {
        let pipeline = kernels::pipeline(context, layouts, &options, cache, (kernel, text))?;
        Ok((pipeline, layouts.pipelines[kernel.op.operands().len()]))
    };
    let compiled = pipelines::compile(&context.device, kernels, &make, fill);
    if compiled.is_ok() {
        kernels::save_cache(context, cache, &file);
    }
    context.destroy(cache);
    compiled
}
