//! Backend-independent part of linking: kernels, commands and bindings of a program.

use super::arena::Arena;
use super::pipelines;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use tabla_core::error::{Result, bail};
use tabla_core::exec::{Program, Programs};
use tabla_core::op::list::Op;
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, Cmds, DispatchCmd, KernelId, Table};

/// Maximum head dimension, limited by the workgroup memory of the attention kernels.
const HEAD_DIM_MAX: u32 = 576;

/// A command with indices of its kernel and bindings.
#[derive(Debug)]
pub(super) struct Command {
    /// Index into [`LinkPlan::kernels`].
    pub(super) pipeline: usize,
    /// Index into [`LinkPlan::bindings`].
    pub(super) group: usize,
    /// Byte range in the table's parameters.
    pub(super) params: Range<usize>,
    pub(super) grid: [u32; 3],
}

/// Linked tables of a program. `B` has the pipelines and bindings of their commands.
#[derive(Debug)]
pub(super) struct LinkedTables<B> {
    pub(super) tables: Arc<[Table]>,
    /// Commands of each table.
    pub(super) commands: Vec<Vec<Command>>,
    pub(super) bindings: B,
    /// Buffers of added tables; empty for the first program.
    pub(super) arena: Arena,
}

/// A table of an executor with its commands. `B` as in [`LinkedTables`].
#[derive(Debug)]
pub(super) struct LinkedTable<'a, B> {
    /// Index in the executor.
    pub(super) index: usize,
    pub(super) info: &'a Table,
    pub(super) commands: &'a [Command],
    pub(super) bindings: &'a B,
}

/// Returns a table that has these commands.
///
/// # Errors
///
/// `Argument` for an invalid table or range.
pub(super) fn find_table<'a, B>(
    programs: &'a Programs<LinkedTables<B>>,
    index: usize,
    cmds: &Cmds,
) -> Result<LinkedTable<'a, B>> {
    let (program, at) = programs.find(index)?;
    let commands = &program.commands[at];
    let mut ranges = cmds.ranges();
    if let Some(range) = ranges.find(|range| commands.get(range.clone()).is_none()) {
        bail!(Argument, "gpu: invalid commands {range:?} of table {index}");
    }
    Ok(LinkedTable {
        index,
        info: &program.tables[at],
        commands,
        bindings: &program.bindings,
    })
}

/// The kernels, commands and bindings of a program, for either replay mode.
pub(super) struct LinkPlan {
    pub(super) program: Program,
    /// The kernels of all commands, sorted.
    pub(super) kernels: Vec<KernelId>,
    /// Commands of each table.
    pub(super) commands: Vec<Vec<Command>>,
    /// Distinct bindings of all commands.
    pub(super) bindings: Vec<Bindings>,
}

/// A kernel and the buffers bound to it.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Bindings {
    pub(super) pipeline: usize,
    pub(super) buffers: Vec<BufferId>,
}

impl LinkPlan {
    /// # Errors
    ///
    /// `Unsupported` for an unsupported head dimension.
    pub(super) fn new(program: Program) -> Result<Self> {
        for table in &*program.tables {
            let mut cmds = table.cmds.iter();
            cmds.try_for_each(|cmd| check_heads(table, cmd))?;
        }
        let kernels = pipelines::used(&program.tables);
        let pipelines: BTreeMap<KernelId, usize> = kernels.iter().copied().zip(0..).collect();
        let mut known: HashMap<Bindings, usize> = HashMap::new();
        let mut command = |table: &Table, cmd: &DispatchCmd| {
            let pipeline = pipelines[&cmd.kernel];
            let buffers = cmd.slots().iter().map(|&s| table.slot(s).buffer).collect();
            let count = known.len();
            let bindings = Bindings { pipeline, buffers };
            let group = *known.entry(bindings).or_insert(count);
            let params = cmd.params as usize;
            Command {
                pipeline,
                group,
                params: params..params + cmd.params_bytes as usize,
                grid: cmd.grid,
            }
        };
        let tables = program.tables.iter();
        let commands = tables.map(|t| t.cmds.iter().map(|cmd| command(t, cmd)).collect());
        let commands = commands.collect();
        let mut bindings: Vec<_> = known.into_iter().collect();
        bindings.sort_by_key(|(_, index)| *index);
        Ok(Self {
            commands,
            kernels,
            bindings: bindings.into_iter().map(|(b, _)| b).collect(),
            program,
        })
    }

    /// Returns the linked tables.
    pub(super) fn finish<B>(self, bindings: B, arena: Arena) -> LinkedTables<B> {
        LinkedTables {
            tables: self.program.tables,
            commands: self.commands,
            bindings,
            arena,
        }
    }
}

/// Rejects head dimensions that the kernels do not support.
fn check_heads(table: &Table, cmd: &DispatchCmd) -> Result<()> {
    let params = table.params(cmd);
    let head_dim = match cmd.kernel.op {
        Op::RopeKv => bytemuck::pod_read_unaligned::<params::rope_kv::Params>(params).head_dim,
        Op::RopeKeys => bytemuck::pod_read_unaligned::<params::rope_keys::Params>(params).head_dim,
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
