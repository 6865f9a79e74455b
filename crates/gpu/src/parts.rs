//! LinkedTable tables in plain data: kernels, commands, and the places that commands bind.

use super::pipelines;
use std::collections::HashMap;
use std::ops::Range;
use tabla_core::error::{Result, bail};
use tabla_core::exec::Program;
use tabla_core::op::table::{BufferId, DispatchCmd, KernelId, Table};

/// A command in terms of what was made for it.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) pipeline: usize,
    pub(super) group: usize,
    pub(super) params: Range<usize>,
    pub(super) grid: [u32; 3],
}

/// A range of the commands of a table.
///
/// # Errors
///
/// `Argument` where there are none.
pub(super) fn in_table<'a>(
    commands: &'a [Vec<Command>],
    table: usize,
    range: &Range<usize>,
) -> Result<&'a [Command]> {
    let all = commands.get(table);
    let Some(commands) = all.and_then(|all| all.get(range.clone())) else {
        bail!(Argument, "gpu: no commands {range:?} in table {table}");
    };
    Ok(commands)
}

/// What a program comes down to, however it is replayed.
pub(super) struct Parts {
    pub(super) program: Program,
    /// The kernels of all tables, by their numbers.
    pub(super) kernels: Vec<KernelId>,
    /// The commands of each table; indices go into the vectors beside.
    pub(super) commands: Vec<Vec<Command>>,
    pub(super) groups: Vec<Group>,
}

/// A kernel and the places that it is bound to.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) pipeline: usize,
    pub(super) places: Vec<BufferId>,
}

impl Parts {
    pub(super) fn new(program: Program) -> Self {
        let kernels = pipelines::used(&program.tables);
        let mut known: HashMap<Group, usize> = HashMap::new();
        let mut command = |table: &Table, cmd: &DispatchCmd| {
            let at = kernels.binary_search(&cmd.kernel);
            let pipeline = at.expect("the kernels are those of the tables");
            let places = cmd.slots().iter().map(|&s| table.slot(s).place).collect();
            let count = known.len();
            let group = *known.entry(Group { pipeline, places }).or_insert(count);
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
        let mut groups: Vec<_> = known.into_iter().collect();
        groups.sort_by_key(|(_, at)| *at);
        Self {
            commands,
            kernels,
            groups: groups.into_iter().map(|(group, _)| group).collect(),
            program,
        }
    }
}
