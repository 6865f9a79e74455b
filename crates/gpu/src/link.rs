//! Linking: creates buffers, pipelines and bind groups for tables, and uploads weights.

use super::arena::Arena;
use super::device::Device;
use super::link_plan::{Bindings, LinkPlan};
use super::pipeline_cache::{self, PipelineCacheFile};
use super::pipelines;
use super::readback::Readback;
use super::recorded;
use super::run::EncodedExecutor;
use super::upload::create_arena;
use tabla_core::error::{Result, bail};
use tabla_core::exec::{Copies, Executor, Program};
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, DispatchCmd, Table};

/// Maximum head dimension, limited by the workgroup memory of the attention kernels.
const HEAD_DIM_MAX: u32 = 512;

/// Links tables to a device.
///
/// # Errors
///
/// `Unsupported` for an unsupported head dimension, `TooLarge` for a tensor over the device's
/// limit, `Memory` if an allocation fails, `Format` for an invalid custom shader, `Device` and
/// `DeviceLost` from the driver.
pub fn link(device: Device, program: Program) -> Result<Box<dyn Executor>> {
    for table in &*program.tables {
        table
            .cmds
            .iter()
            .try_for_each(|cmd| check_heads(table, cmd))?;
    }
    let plan = LinkPlan::new(program);
    if device.recorded {
        recorded::link(&device, plan)
    } else {
        link_encoded(device, plan)
    }
}

/// Links for replay through wgpu.
fn link_encoded(device: Device, plan: LinkPlan) -> Result<Box<dyn Executor>> {
    let file = PipelineCacheFile::read(&device);
    let cache = pipeline_cache::create(&device, &file);
    let make = |kernel, text: &_| pipelines::pipeline(&device, cache.as_ref(), kernel, text);
    let fill = || create_arena(&device, &plan.program);
    let (pipelines, arena) = pipelines::compile(&device, &plan.kernels, &make, fill)?;
    if let Some(bytes) = cache.and_then(|cache| cache.get_data()) {
        file.replace(&bytes);
    }
    let bind = |bindings: &Bindings| {
        let name = plan.kernels[bindings.pipeline].name();
        let layout = &pipelines[bindings.pipeline].layout;
        bind(&device, &arena, (&name, layout), &bindings.buffers)
    };
    let groups = plan.bindings.iter().map(bind).collect::<Result<_>>()?;
    let readback = Readback::new(&device)?;
    device.check()?;
    Ok(Box::new(EncodedExecutor {
        tables: plan.program.tables,
        commands: plan.commands,
        pipelines: pipelines.into_iter().map(|p| p.compute).collect(),
        groups,
        arena,
        readback,
        copies: Copies::default(),
        timer: None,
        device,
    }))
}

/// Rejects head dimensions that the kernels do not support.
fn check_heads(table: &Table, cmd: &DispatchCmd) -> Result<()> {
    let params = table.params(cmd);
    let head_dim = match cmd.kernel.op {
        Op::RopeKv => bytemuck::pod_read_unaligned::<params::rope_kv::Params>(params).head_dim,
        Op::Attention => bytemuck::pod_read_unaligned::<params::attention::Params>(params).head_dim,
        Op::AttendPart => {
            bytemuck::pod_read_unaligned::<params::attend_part::Params>(params).head_dim
        }
        Op::SelfAttention => {
            bytemuck::pod_read_unaligned::<params::self_attention::Params>(params).head_dim
        }
        _ => return Ok(()),
    };
    if head_dim == 0 || head_dim > HEAD_DIM_MAX || !head_dim.is_multiple_of(2) {
        bail!(
            Unsupported,
            "gpu: unsupported head dimension {head_dim}, expected an even number up to {HEAD_DIM_MAX}"
        );
    }
    Ok(())
}

fn bind(
    device: &Device,
    arena: &Arena,
    (name, layout): (&str, &wgpu::BindGroupLayout),
    buffers: &[BufferId],
) -> Result<wgpu::BindGroup> {
    let entries: Vec<_> = (0..)
        .zip(buffers)
        .map(|(binding, &id)| wgpu::BindGroupEntry {
            binding,
            resource: arena
                .find(id)
                .expect("the arena has all buffers of the tables")
                .buffer
                .as_entire_binding(),
        })
        .collect();
    let descriptor = wgpu::BindGroupDescriptor {
        label: Some(name),
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
