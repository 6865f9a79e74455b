//! Backend-independent part of linking: kernels, commands and bindings of a program.

use super::pipelines;
use std::collections::HashMap;
use std::ops::Range;
use tabla_core::error::{Result, bail};
use tabla_core::exec::Program;
use tabla_core::op::table::{BufferId, DispatchCmd, KernelId, Table};

/// A command with indices of its pipeline and bindings.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) pipeline: usize,
    /// Index into [`LinkPlan::bindings`].
    pub(super) group: usize,
    /// Byte range in the table's parameters.
    pub(super) params: Range<usize>,
    pub(super) grid: [u32; 3],
}

/// Returns a range of the commands of a table.
///
/// # Errors
///
/// `Argument` for an invalid table or range.
pub(super) fn in_table<'a>(
    commands: &'a [Vec<Command>],
    table: usize,
    range: &Range<usize>,
) -> Result<&'a [Command]> {
    let all = commands.get(table);
    let Some(commands) = all.and_then(|all| all.get(range.clone())) else {
        bail!(Argument, "gpu: invalid commands {range:?} of table {table}");
    };
    Ok(commands)
}

/// The kernels, commands and bindings of a program, for either replay mode.
pub(super) struct LinkPlan {
    pub(super) program: Program,
    /// Kernels of all tables, sorted.
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
    pub(super) fn new(program: Program) -> Self {
        let kernels = pipelines::used(&program.tables);
        let mut known: HashMap<Bindings, usize> = HashMap::new();
        let mut command = |table: &Table, cmd: &DispatchCmd| {
            let index = kernels.binary_search(&cmd.kernel);
            let pipeline = index.expect("`kernels` has all kernels of the tables");
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
        Self {
            commands,
            kernels,
            bindings: bindings.into_iter().map(|(b, _)| b).collect(),
            program,
        }
    }
}
