//! Linking: tables get buffers, pipelines and bind groups, and weights go to the device.

use super::arena::Arena;
use super::device::Device;
use super::pipelines::{self, Pipeline};
use super::readback::Readback;
use super::run::{Command, Linked};
use super::upload::{self, Stream};
use crate::error::{Result, bail};
use crate::exec::{Executor, Program, Tensors};
use crate::op::list::Op;
use crate::op::shaders;
use crate::op::table::{DispatchCmd, Place, Table};
use std::collections::HashMap;

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
    let pipelines = pipelines::compile(&device, &program.tables)?;
    let arena = Arena::new(&device, &program.tables)?;
    send(&device, &arena, &*program.tensors)?;
    let mut groups = Groups::default();
    let commands = program
        .tables
        .iter()
        .map(|t| commands(&device, t, &arena, &pipelines, &mut groups))
        .collect::<Result<_>>()?;
    let readback = Readback::new(&device)?;
    device.failure.check()?;
    Ok(Box::new(Linked {
        tables: program.tables,
        commands,
        pipelines: pipelines.into_iter().map(|p| p.compute).collect(),
        groups: groups.made,
        arena,
        readback,
        device,
    }))
}

/// Refuses heads that the kernels would get wrong.
fn heads(table: &Table, cmd: &DispatchCmd) -> Result<()> {
    let params = table.params(cmd);
    let head_dim = match cmd.op {
        Op::RopeKv => bytemuck::pod_read_unaligned::<shaders::rope_kv::Params>(params).head_dim,
        Op::Attention => {
            bytemuck::pod_read_unaligned::<shaders::attention::Params>(params).head_dim
        }
        Op::AttendPart => {
            bytemuck::pod_read_unaligned::<shaders::attend_part::Params>(params).head_dim
        }
        Op::SelfAttention => {
            bytemuck::pod_read_unaligned::<shaders::self_attention::Params>(params).head_dim
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

fn send(device: &Device, arena: &Arena, tensors: &dyn Tensors) -> Result<()> {
    let mut stream = Stream::new(device);
    for entry in arena.entries() {
        match entry.place {
            Place::Weight(index, first) => {
                upload::weight(&mut stream, entry, tensors, (index, first))?;
            }
            Place::Constant(i) => upload::constant(&mut stream, entry, tensors.constant(i))?,
            _ => {}
        }
    }
    stream.wait()
}

/// Bind groups, one for each kernel and choice of places.
#[derive(Default)]
struct Groups {
    made: Vec<wgpu::BindGroup>,
    known: HashMap<(usize, Vec<Place>), usize>,
}

fn commands(
    device: &Device,
    table: &Table,
    arena: &Arena,
    pipelines: &[Pipeline],
    groups: &mut Groups,
) -> Result<Vec<Command>> {
    let command = |cmd: &DispatchCmd| {
        let at = pipelines.binary_search_by_key(&cmd.kernel.0, |p| p.kernel.0);
        let pipeline = at.expect("every kernel of the tables is compiled");
        let places: Vec<_> = cmd.slots().iter().map(|&s| table.slot(s).place).collect();
        let key = (pipeline, places);
        let group = match groups.known.get(&key) {
            Some(&group) => group,
            None => {
                groups
                    .made
                    .push(bind(device, arena, &pipelines[pipeline], &key.1)?);
                groups.known.insert(key, groups.made.len() - 1);
                groups.made.len() - 1
            }
        };
        let params = cmd.params as usize;
        Ok(Command {
            pipeline,
            group,
            params: params..params + cmd.params_bytes as usize,
            grid: cmd.grid,
        })
    };
    table.cmds.iter().map(command).collect()
}

fn bind(
    device: &Device,
    arena: &Arena,
    pipeline: &Pipeline,
    places: &[Place],
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
        label: Some(pipeline.kernel.name()),
        layout: &pipeline.layout,
        entries: &entries,
    };
    let (group, error) = device.caught(|| device.wgpu.create_bind_group(&descriptor));
    if let Some(error) = error {
        device.failure.check()?;
        bail!(Device, "gpu: {}: {error}", pipeline.kernel.name());
    }
    Ok(group)
}
