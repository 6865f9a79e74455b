//! Linking: tables get buffers, pipelines and bind groups, and weights go to the device.

use super::arena::Arena;
use super::device::Device;
use super::parts::{Group, Parts};
use super::pipeline_cache::{self, PipelineCache};
use super::pipelines;
use super::readback::Readback;
use super::recorded;
use super::run::LinkedTable;
use super::upload::filled;
use tabla_core::error::{Result, bail};
use tabla_core::exec::{Copies, Executor, Program};
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, DispatchCmd, Table};

/// Elements of a head at most, by the workgroup memory of the attention kernels.
const HEAD_DIM_MAX: u32 = 512;

/// Links tables to a device.
///
/// # Errors
///
/// `Unsupported` for heads that the kernels are not made for, `TooLarge` for a tensor over the
/// device's limit, `Memory` where it has no room, `Format` for a shader of the folder, `Device`
/// and `DeviceLost` from the driver.
pub fn link(device: Device, program: Program) -> Result<Box<dyn Executor>> {
    for table in &*program.tables {
        table.cmds.iter().try_for_each(|cmd| heads(table, cmd))?;
    }
    let parts = Parts::new(program);
    if device.recorded {
        recorded::link(&device, parts)
    } else {
        encoded(device, parts)
    }
}

/// Links for replay through wgpu.
fn encoded(device: Device, parts: Parts) -> Result<Box<dyn Executor>> {
    let kept = PipelineCache::read(&device);
    let cache = pipeline_cache::cache(&device, &kept);
    let make = |kernel, text: &_| pipelines::pipeline(&device, cache.as_ref(), kernel, text);
    let fill = || filled(&device, &parts.program);
    let (pipelines, arena) = pipelines::compile(&device, &parts.kernels, &make, fill)?;
    if let Some(bytes) = cache.and_then(|cache| cache.get_data()) {
        kept.replace(&bytes);
    }
    let bind = |group: &Group| {
        let name = parts.kernels[group.pipeline].name();
        let layout = &pipelines[group.pipeline].layout;
        bind(&device, &arena, (&name, layout), &group.places)
    };
    let groups = parts.groups.iter().map(bind).collect::<Result<_>>()?;
    let readback = Readback::new(&device)?;
    device.check()?;
    Ok(Box::new(LinkedTable {
        tables: parts.program.tables,
        commands: parts.commands,
        pipelines: pipelines.into_iter().map(|p| p.compute).collect(),
        groups,
        arena,
        readback,
        copies: Copies::default(),
        clock: None,
        device,
    }))
}

/// Refuses heads that the kernels would get wrong.
fn heads(table: &Table, cmd: &DispatchCmd) -> Result<()> {
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
            "gpu: heads of {head_dim} elements; even numbers up to {HEAD_DIM_MAX} are known"
        );
    }
    Ok(())
}

fn bind(
    device: &Device,
    arena: &Arena,
    (name, layout): (&str, &wgpu::BindGroupLayout),
    places: &[BufferId],
) -> Result<wgpu::BindGroup> {
    let entries: Vec<_> = (0..)
        .zip(places)
        .map(|(binding, &place)| wgpu::BindGroupEntry {
            binding,
            resource: arena
                .find(place)
                .expect("the arena has every place of the tables")
                .buffer
                .as_entire_binding(),
        })
        .collect();
    let descriptor = wgpu::BindGroupDescriptor {
        label: Some(name),
        layout,
        entries: &entries,
    };
    let (group, error) = device.caught(|| device.wgpu.create_bind_group(&descriptor));
    if let Some(error) = error {
        device.check()?;
        bail!(Device, "gpu: {name}: {error}");
    }
    Ok(group)
}
