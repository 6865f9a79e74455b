//! Executor of tables whose commands run on two devices: a GPU, and the CPU as its host.
//!
//! Each device links the commands of its place, with the weights and buffers that they use. A run walks
//! the segments of a table, and transfers copy the active rows between the devices.

use super::{CommandTiming, Copying, Executor, Program, Programs, Span, Upload, reject_empty};
use crate::device::Profile;
use crate::error::{Result, bail};
use crate::op::list::Op;
use crate::op::operands::transfer;
use crate::op::params::State;
use crate::op::table::{BufferId, Cmds, DispatchCmd, LayerEnd, Place, Table};
use std::ops::Range;
use std::time::Instant;

/// Returns the tables with only the commands of a place, without transfers. The indices of slots and labels
/// do not change.
fn tables_of(tables: &[Table], place: Place) -> Vec<Table> {
    tables.iter().map(|table| part(table, place)).collect()
}

/// Returns whether a command is in the linked tables of a place.
fn is_linked(cmd: &DispatchCmd, place: Place) -> bool {
    cmd.place == place && cmd.kernel.op != Op::Transfer
}

fn part(table: &Table, place: Place) -> Table {
    let cmds = table.cmds.iter();
    let rank = |at: usize| {
        table.cmds[..at]
            .iter()
            .filter(|cmd| is_linked(cmd, place))
            .count()
    };
    Table {
        cmds: cmds.filter(|cmd| is_linked(cmd, place)).copied().collect(),
        layers: table
            .layers
            .iter()
            .map(|layer| LayerEnd {
                cmd: rank(layer.cmd),
                slot: layer.slot,
            })
            .collect(),
        head: rank(table.head),
        stages: table
            .stages
            .clone()
            .map(|stage| rank(stage.start)..rank(stage.end)),
        ..table.clone()
    }
}

/// Commands of a table that run together.
#[derive(Clone, Debug)]
struct Segment {
    /// Indices in the table.
    cmds: Range<usize>,
    /// Indices in the linked table; empty for a transfer.
    linked: Range<usize>,
    work: Work,
}

#[derive(Clone, Debug)]
enum Work {
    Run(Place),
    Transfer(Transfer),
}

/// Copy of activations from one device to the other.
#[derive(Clone, Debug)]
struct Transfer {
    from: BufferId,
    to: BufferId,
    place: Place,
    rows: usize,
    row_bytes: usize,
}

/// A linked table.
#[derive(Debug)]
struct SplitTable {
    segments: Vec<Segment>,
    /// Number of commands.
    cmds: usize,
    /// Index among the tables of the host, if it has commands there.
    host: Option<usize>,
}

impl SplitTable {
    fn new(table: &Table, host: Option<usize>) -> Self {
        let mut linked = [0, 0];
        let mut segments: Vec<Segment> = Vec::new();
        for (at, cmd) in table.cmds.iter().enumerate() {
            if cmd.kernel.op == Op::Transfer {
                segments.push(Segment {
                    cmds: at..at + 1,
                    linked: 0..0,
                    work: Work::Transfer(Transfer::new(table, cmd)),
                });
                continue;
            }
            let next = &mut linked[cmd.place as usize];
            *next += 1;
            match segments.last_mut() {
                Some(Segment {
                    cmds,
                    linked,
                    work: Work::Run(place),
                }) if *place == cmd.place => {
                    cmds.end = at + 1;
                    linked.end = *next;
                }
                _ => segments.push(Segment {
                    cmds: at..at + 1,
                    linked: *next - 1..*next,
                    work: Work::Run(cmd.place),
                }),
            }
        }
        Self {
            segments,
            cmds: table.cmds.len(),
            host,
        }
    }

    /// Returns the segments of a range of commands, cut to it.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = Part<'_>> {
        self.segments.iter().filter_map(move |segment| {
            let start = segment.cmds.start.max(range.start);
            let end = segment.cmds.end.min(range.end);
            let first = segment.linked.start + start.saturating_sub(segment.cmds.start);
            (start < end).then(|| Part {
                work: &segment.work,
                cmds: start..end,
                linked: first..first + (end - start),
            })
        })
    }
}

/// Commands of a segment.
struct Part<'a> {
    work: &'a Work,
    cmds: Range<usize>,
    linked: Range<usize>,
}

impl Transfer {
    fn new(table: &Table, cmd: &DispatchCmd) -> Self {
        let [from, to] = [transfer::AT.x, transfer::AT.y].map(|at| table.slot(cmd.slots()[at]));
        let bytes = usize::try_from(from.bytes()).expect("it is in memory");
        let rows = from.rows as usize;
        Self {
            from: from.buffer,
            to: to.buffer,
            place: cmd.place,
            rows,
            row_bytes: bytes / rows.max(1),
        }
    }
}

/// A program in two parts, before they are linked.
#[expect(missing_debug_implementations, reason = "it contains trait objects")]
pub struct SplitProgram {
    /// Commands of the device, with all tables.
    pub device: Program,
    /// Commands of the host, with the tables that have any; `None` if there are none.
    pub host: Option<Program>,
    tables: Vec<SplitTable>,
    /// Size of the largest transfer in bytes.
    transfer_bytes: usize,
}

impl SplitProgram {
    /// Splits a program by the places of its commands.
    pub fn new(program: &Program) -> Self {
        let parts = |place| tables_of(&program.tables, place);
        let with = |tables: Vec<Table>| Program {
            tables: tables.into(),
            tensors: program.tensors.clone(),
        };
        let mut host = Vec::new();
        let mut tables = Vec::new();
        for (table, part) in program.tables.iter().zip(parts(Place::Host)) {
            let index = (!part.cmds.is_empty()).then_some(host.len());
            tables.push(SplitTable::new(table, index));
            host.extend(index.map(|_| part));
        }
        let segments = tables.iter().flat_map(|table| &table.segments);
        let transfers = segments.filter_map(|segment| match &segment.work {
            Work::Transfer(transfer) => Some(transfer.rows * transfer.row_bytes),
            Work::Run(_) => None,
        });
        Self {
            transfer_bytes: transfers.max().unwrap_or(0),
            device: with(parts(Place::Device)),
            host: (!host.is_empty()).then(|| with(host)),
            tables,
        }
    }
}

/// Tables of a program that were linked together.
#[derive(Debug)]
struct SplitTables {
    tables: Vec<SplitTable>,
    /// Index of the first table on the device, and on the host.
    first: [usize; 2],
}

impl SplitTables {
    /// Returns the index on the host of a table with commands there.
    fn host_table(&self, at: usize) -> usize {
        self.first[1] + self.tables[at].host.unwrap_or_default()
    }
}

/// Executor of a device and its host. Buffers that the caller reads and writes are those of the device.
#[expect(missing_debug_implementations, reason = "it contains trait objects")]
pub struct SplitExecutor {
    profile: Profile,
    device: Box<dyn Executor>,
    host: Box<dyn Executor>,
    programs: Programs<SplitTables>,
    /// Bytes of a transfer.
    bytes: Vec<u8>,
    /// Timings of the commands of each table.
    timings: Vec<Vec<CommandTiming>>,
    /// Start of timing, if timing is active.
    timed_since: Option<Instant>,
}

impl SplitExecutor {
    /// Creates the executor of the two parts of a program, which were linked to `device` and `host`.
    pub fn new(program: SplitProgram, device: Box<dyn Executor>, host: Box<dyn Executor>) -> Self {
        let profile = Profile {
            // The device waits for the host in each step.
            burst_tokens: 1,
            asynchronous: false,
            ..device.profile().clone()
        };
        let count = program.tables.len();
        let tables = SplitTables {
            tables: program.tables,
            first: [0, 0],
        };
        Self {
            profile,
            device,
            host,
            programs: Programs::new(tables, count),
            bytes: vec![0; program.transfer_bytes],
            timings: Vec::new(),
            timed_since: None,
        }
    }

    /// Replays a range of the commands of a table once.
    fn replay(&mut self, table: usize, range: &Range<usize>) -> Result<()> {
        let Self {
            device,
            host,
            programs,
            bytes,
            ..
        } = self;
        let (program, at) = programs.find(table)?;
        let info = &program.tables[at];
        if range.start > range.end || range.end > info.cmds {
            let count = info.cmds;
            bail!(
                Argument,
                "invalid command range {range:?}: the table has {count} commands"
            );
        }
        // Read when the host first needs it: the last step may have changed it.
        let mut active = None;
        for part in info.parts(range.clone()) {
            let began = Instant::now();
            let linked = part.linked.clone().into();
            if let Work::Run(Place::Device) = part.work {
                device.run(program.first[0] + at, linked, 1)?;
            } else {
                let active = match active {
                    Some(active) => active,
                    None => *active.insert(copy_state(&mut **device, &mut **host)?),
                };
                match part.work {
                    Work::Run(_) => host.run(program.host_table(at), linked, 1)?,
                    Work::Transfer(transfer) => {
                        let rows = transfer.rows.min(active);
                        let bytes = &mut bytes[..rows * transfer.row_bytes];
                        transfer.copy([&mut **device, &mut **host], bytes)?;
                    }
                }
            }
            let (Some(since), Some(timings)) = (self.timed_since, self.timings.get_mut(table))
            else {
                continue;
            };
            let Some(timings) = timings.get_mut(part.cmds) else {
                continue;
            };
            let linked = match part.work {
                Work::Transfer(_) => {
                    let timing = &mut timings[0];
                    timing.runs += 1;
                    timing.took += began.elapsed();
                    timing.begun = began - since;
                    continue;
                }
                Work::Run(Place::Device) => device.command_timings(program.first[0] + at),
                Work::Run(Place::Host) => host.command_timings(program.host_table(at)),
            };
            if let Some(linked) = linked.get(part.linked) {
                timings.copy_from_slice(linked);
            }
        }
        Ok(())
    }
}

/// Copies the step state without its rows to the host; returns the number of active rows. Commands of the
/// host read no rows.
fn copy_state(device: &mut dyn Executor, host: &mut dyn Executor) -> Result<usize> {
    let mut bytes = [0; size_of::<State>()];
    device.read(BufferId::State, 0, &mut bytes)?;
    host.write(BufferId::State, 0, &bytes)?;
    let state: State = bytemuck::pod_read_unaligned(&bytes);
    Ok(usize::try_from(state.active_rows).unwrap_or(usize::MAX))
}

impl Transfer {
    fn copy(&self, [device, host]: [&mut dyn Executor; 2], bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (source, target) = match self.place {
            Place::Host => (device, host),
            Place::Device => (host, device),
        };
        source.read(self.from, 0, bytes)?;
        target.write(self.to, 0, bytes)
    }
}

impl Executor for SplitExecutor {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn upload(&self) -> Option<Upload> {
        self.device.upload()
    }

    fn add_tables(&mut self, program: Program) -> Result<usize> {
        reject_empty(&program)?;
        let SplitProgram {
            device,
            host,
            tables,
            transfer_bytes,
        } = SplitProgram::new(&program);
        let on_host = host.map(|host| self.host.add_tables(host)).transpose()?;
        let on_device = match self.device.add_tables(device) {
            Ok(first) => first,
            Err(error) => {
                on_host.map_or(Ok(()), |first| self.host.remove_tables(first))?;
                return Err(error);
            }
        };
        self.bytes.resize(transfer_bytes.max(self.bytes.len()), 0);
        let count = tables.len();
        let first = [on_device, on_host.unwrap_or_default()];
        Ok(self.programs.add(SplitTables { tables, first }, count))
    }

    fn remove_tables(&mut self, first: usize) -> Result<()> {
        let (indices, SplitTables { tables, first }) = self.programs.remove(first)?;
        for timings in self
            .timings
            .iter_mut()
            .take(indices.end)
            .skip(indices.start)
        {
            timings.clear();
        }
        if tables.iter().any(|table| table.host.is_some()) {
            self.host.remove_tables(first[1])?;
        }
        self.device.remove_tables(first[0])
    }

    fn run(&mut self, table: usize, cmds: Cmds, times: u32) -> Result<()> {
        for _ in 0..times {
            for range in cmds.ranges() {
                self.replay(table, &range)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        self.device.write(buffer, offset, bytes)
    }

    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.device.read(buffer, offset, bytes)
    }

    fn duplicate(&mut self, buffer: BufferId, from: usize, to: usize, bytes: usize) -> Result<()> {
        self.device.duplicate(buffer, from, to, bytes)
    }

    fn copy(&mut self, spans: &[Span]) -> Result<Copying> {
        self.device.copy(spans)
    }

    fn take(&mut self, copying: Copying, bytes: &mut [u8]) -> Result<()> {
        self.device.take(copying, bytes)
    }

    fn time_commands(&mut self) -> Result<()> {
        self.device.time_commands()?;
        self.host.time_commands()?;
        let commands = |program: &SplitTables, at: usize| program.tables[at].cmds;
        let counts = self.programs.by_table(commands);
        let timings = counts
            .into_iter()
            .map(|n| vec![CommandTiming::default(); n]);
        self.timings = timings.collect();
        self.timed_since = Some(Instant::now());
        Ok(())
    }

    fn end_timing(&mut self) {
        self.device.end_timing();
        self.host.end_timing();
        self.timed_since = None;
    }

    fn command_timings(&self, table: usize) -> &[CommandTiming] {
        self.timings.get(table).map_or(&[], Vec::as_slice)
    }
}
