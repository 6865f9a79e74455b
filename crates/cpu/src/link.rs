//! From tables to steps: memory for every place, a kernel for every command, barriers between.

use super::descriptors::{ALIGN, QUANTISE_OUT, QUANTISE_X, Read, Shape};
use super::kernel::{self, Join, Launch, Request, quantize};
use super::memory::{Arena, Bound, Operand, ScalesAt};
use super::pack::{Packed, Packing};
use super::panel::Pack;
use super::pool::LinkedTable;
use super::simd::Isa;
use super::step::{Step, Steps};
use super::work::{By, Split};
use std::collections::BTreeMap;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};
use tabla_core::exec::Program;
use tabla_core::exec::state::state_bytes;
use tabla_core::op::list::Access;
use tabla_core::op::operands::{ACTIVATIONS, WEIGHT};
use tabla_core::op::table::{BufferId, DispatchCmd, PARAMS_BYTES_MAX, SLOTS_MAX, SlotInfo, Table};
use tabla_quant::Scales;

/// What commands are linked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The level.
    pub(super) isa: Isa,
    /// How exactly products are computed.
    pub(super) precision: Precision,
    /// Whether weights are packed, of types that can be.
    pub(super) packed: bool,
    /// Threads that share the work.
    pub(super) threads: usize,
}

/// What linking yields.
pub(super) struct Linking {
    /// For the pool.
    pub(super) tables: LinkedTable,
    /// The places that the host may write and read.
    pub(super) places: BTreeMap<BufferId, Operand>,
}

/// Links every table of a program.
pub(super) fn link(program: Program, target: Target) -> Result<Linking> {
    let launches = launches_of(&program, target)?;
    let layout = Layout::new(&program, &launches, target)?;
    let mut arena = Arena::new(layout.bytes)?;
    let mut operands = BTreeMap::new();
    for (place, range) in &layout.places {
        if let Some(bytes) = tensor(&program, *place) {
            arena.fill(range, bytes);
        }
        if let BufferId::Weight(index, _) = *place {
            program.tensors.release(index, 0..range.len());
        }
        operands.insert(*place, arena.operand(range.clone()));
    }
    let packed = Packed::new(&program, &packings(&program, &launches)?, target.threads)?;
    let memory = Memory {
        operands,
        packed,
        scratch: arena.operand(layout.scratch.clone()),
        quantized: arena.operand(layout.quantized.clone()),
        parts: arena.operand(layout.parts.clone()),
    };
    let mut places = memory.operands.clone();
    places.retain(|place, _| !matches!(place, BufferId::Weight(..) | BufferId::Constant(_)));

    let mut tables = Vec::with_capacity(launches.len());
    for (table, launches) in program.tables.iter().zip(launches) {
        tables.push(steps(&program, table, launches, &memory, target)?);
    }
    let tables = LinkedTable {
        tables,
        _keep: Box::new((arena, memory.packed, program)),
    };
    Ok(Linking { tables, places })
}

/// Bytes that the weights of a program take where they are packed.
pub(super) fn packed_bytes(program: &Program, target: Target) -> Result<u64> {
    let target = Target {
        packed: true,
        ..target
    };
    let launches = launches_of(program, target)?;
    let packings = packings(program, &launches)?;
    Ok(packings
        .values()
        .map(|packing| packing.bytes() as u64)
        .sum())
}

/// Memory by what it is for.
struct Memory {
    operands: BTreeMap<BufferId, Operand>,
    packed: Packed,
    scratch: Operand,
    quantized: Operand,
    parts: Operand,
}

/// Which kernels the commands of each table call.
fn launches_of(program: &Program, target: Target) -> Result<Vec<Vec<Launch>>> {
    let tables = program.tables.iter();
    tables
        .map(|table| launches(program, table, target))
        .collect()
}

/// Which kernel every command of a table calls.
fn launches(program: &Program, table: &Table, target: Target) -> Result<Vec<Launch>> {
    let launch = |cmd: &DispatchCmd| {
        let slots = cmd.slots().len();
        if slots != cmd.kernel.op.operands().len() {
            bail!(Internal, "{} has {slots} operands", cmd.kernel.op.name());
        }
        let request = Request {
            isa: target.isa,
            precision: target.precision,
            packed: target.packed,
            variant: cmd.kernel.dtype,
            params: table.params(cmd),
            scales: scales(program, table, cmd),
            threads: target.threads,
        };
        kernel::link(cmd.kernel.op, &request)
    };
    table
        .cmds
        .iter()
        .map(|cmd| launch(cmd).context(label(table, cmd)))
        .collect()
}

fn label<'a>(table: &'a Table, cmd: &DispatchCmd) -> &'a str {
    table
        .labels
        .get(cmd.label as usize)
        .map_or(cmd.kernel.op.name(), String::as_str)
}

/// Which weights are packed, and how.
fn packings(program: &Program, launches: &[Vec<Launch>]) -> Result<BTreeMap<u32, Packing>> {
    let mut packings = BTreeMap::new();
    for (table, launches) in program.tables.iter().zip(launches) {
        for (cmd, launch) in table.cmds.iter().zip(launches) {
            let slot = table.slot(cmd.slots()[WEIGHT]);
            let (Some(pack), BufferId::Weight(index, _)) = (launch.pack, slot.place) else {
                continue;
            };
            tensor_bytes(program, slot)?;
            let packing = Packing {
                pack,
                rows: slot.rows as usize,
                cols: slot.cols as usize,
            };
            packings.insert(index, packing);
        }
    }
    Ok(packings)
}

/// The scales of a command's weights, where they lie in tensors of their own.
fn scales<'a>(program: &'a Program, table: &Table, cmd: &DispatchCmd) -> Option<Scales<'a>> {
    match table.slot(cmd.slots()[WEIGHT]).place {
        BufferId::Weight(index, _) => program.tensors.scales(index),
        _ => None,
    }
}

/// The bytes of a tensor's place.
fn tensor(program: &Program, place: BufferId) -> Option<&[u8]> {
    match place {
        BufferId::Weight(i, _) => Some(program.tensors.weight(i)),
        BufferId::Constant(i) => Some(program.tensors.constant(i)),
        _ => None,
    }
}

/// The bytes of a slot's tensor, as many as the slot has.
fn tensor_bytes<'a>(program: &'a Program, slot: &SlotInfo) -> Result<Option<&'a [u8]>> {
    let Some(bytes) = tensor(program, slot.place) else {
        return Ok(None);
    };
    let wanted = usize::try_from(slot.bytes()).ok();
    match wanted.and_then(|n| bytes.get(..n)) {
        Some(bytes) => Ok(Some(bytes)),
        None => bail!(
            Format,
            "tensor {} has {} bytes of {}",
            slot.name,
            bytes.len(),
            slot.bytes()
        ),
    }
}

type Bytes = std::ops::Range<usize>;

/// Where everything lies in the arena.
#[derive(Default)]
struct Layout {
    bytes: usize,
    places: BTreeMap<BufferId, Bytes>,
    /// Shared by all commands, a stretch per thread: used within a command only.
    scratch: Bytes,
    /// Activations in int8 or bf16, which several commands may read.
    quantized: Bytes,
    /// What the threads of a command leave for its second step.
    parts: Bytes,
}

impl Layout {
    fn new(program: &Program, launches: &[Vec<Launch>], target: Target) -> Result<Self> {
        let threads = target.threads;
        let packs = launches.iter().flatten().any(|l| l.pack.is_some());
        let mut sizes: BTreeMap<BufferId, u64> = BTreeMap::new();
        let used = program.tables.iter().flat_map(|table| {
            let slots = table.cmds.iter().flat_map(DispatchCmd::slots);
            slots.map(|slot| table.slot(*slot))
        });
        for slot in used {
            let least = match (slot.place, tensor_bytes(program, slot)?) {
                (BufferId::State, _) => state_bytes(1) as u64,
                // Tensors stay where they are, unless f32 lie where f32 cannot. Beside packed
                // matrices vectors leave as well: each would keep a huge page of the file.
                (_, Some(b))
                    if slot.dtype != DType::F32
                        || Operand::of(b).suits_f32() && !(packs && slot.rows == 1) =>
                {
                    continue;
                }
                _ => 0,
            };
            let size = sizes.entry(slot.place).or_default();
            *size = slot.bytes().max(least).max(*size);
        }
        let mut layout = Self::default();
        for (place, bytes) in sizes {
            let range = layout.take(bytes)?;
            layout.places.insert(place, range);
        }
        let all = || launches.iter().flatten();
        let scratch = all().map(|l| l.scratch.next_multiple_of(ALIGN)).max();
        layout.scratch = layout.take((scratch.unwrap_or(0) * threads) as u64)?;
        let copies = |shape: Shape| {
            let tiles = if shape.tokens == 1 {
                threads
            } else {
                shape.tiles()
            };
            (tiles * shape.tile_bytes()) as u64
        };
        let quantized = all().filter_map(|l| l.quantize).map(copies).max();
        layout.quantized = layout.take(quantized.unwrap_or(0))?;
        let parts = all().filter_map(|l| l.join).map(|join| join.bytes as u64);
        layout.parts = layout.take(parts.max().unwrap_or(0))?;
        Ok(layout)
    }

    fn take(&mut self, bytes: u64) -> Result<Bytes> {
        let start = self.bytes;
        let end = usize::try_from(bytes)
            .ok()
            .and_then(|n| start.checked_add(n));
        let next = end.and_then(|end| end.checked_next_multiple_of(ALIGN));
        match (end, next) {
            (Some(end), Some(next)) => {
                self.bytes = next;
                Ok(start..end)
            }
            _ => bail!(Memory, "{bytes} bytes cannot be addressed beside {start}"),
        }
    }
}

/// The steps of a table.
fn steps(
    program: &Program,
    table: &Table,
    launches: Vec<Launch>,
    memory: &Memory,
    target: Target,
) -> Result<Steps> {
    let mut steps = Vec::new();
    let mut first = Vec::with_capacity(table.cmds.len() + 1);
    let mut hazards = Hazards::default();
    let mut made: Option<Made> = None;
    for (at, (cmd, launch)) in table.cmds.iter().zip(launches).enumerate() {
        first.push(steps.len());
        let mut step = step(program, table, cmd, (&launch, memory)).context(label(table, cmd))?;
        if let Some(shape) = launch.quantize {
            let x = table.slot(cmd.slots()[ACTIVATIONS]).place;
            let mut before = quantizing(&mut step, shape, memory, target.isa);
            match made {
                Some(m) if (m.x, m.shape) == (x, shape) => before.made_by = Some(m.cmd),
                _ => {
                    before.barrier = hazards.meet(&before);
                    made = Some(Made { x, shape, cmd: at });
                }
            }
            steps.push(before);
        }
        step.barrier = hazards.meet(&step);
        let written = cmd.slots().iter().zip(cmd.kernel.op.operands());
        let mut written = written.filter(|(_, o)| o.access != Access::Read);
        if made.is_some_and(|m| written.any(|(s, _)| table.slot(*s).place == m.x)) {
            made = None;
        }
        let join = launch.join.map(|join| join.step(&step));
        steps.push(step);
        if let Some(mut join) = join {
            join.barrier = hazards.meet(&join);
            steps.push(join);
        }
    }
    first.push(steps.len());
    let Some(state) = memory.operands.get(&BufferId::State).copied() else {
        bail!(Internal, "table {} has no state", table.name);
    };
    Ok(Steps {
        steps,
        first,
        state,
    })
}

impl Join {
    /// The second step of a command. The parts are its last operand, which it reads.
    fn step(self, first: &Step) -> Step {
        Step {
            entry: self.entry,
            split: self.split,
            bound: Bound {
                writes: first.bound.writes & !(1 << (first.bound.count - 1)),
                ..first.bound
            },
            ..*first
        }
    }
}

/// The activations that lie quantized.
#[derive(Clone, Copy)]
struct Made {
    x: BufferId,
    shape: Shape,
    cmd: usize,
}

fn step(
    program: &Program,
    table: &Table,
    cmd: &DispatchCmd,
    (launch, memory): (&Launch, &Memory),
) -> Result<Step> {
    let mut operands = [Operand::of(&[]); SLOTS_MAX];
    let mut writes = 0;
    let mut count = 0;
    for (slot, operand) in cmd.slots().iter().zip(cmd.kernel.op.operands()) {
        let info = table.slot(*slot);
        operands[count] = match memory.operands.get(&info.place) {
            Some(memory) => *memory,
            None => match tensor_bytes(program, info)? {
                Some(bytes) => Operand::of(bytes),
                None => bail!(Internal, "{} has no memory", info.name),
            },
        };
        if operand.access != Access::Read {
            if tensor(program, info.place).is_some() {
                bail!(Internal, "{} is a tensor and is written", info.name);
            }
            writes |= 1 << count;
        }
        count += 1;
    }
    let mut read = launch.read;
    if let BufferId::Weight(index, _) = table.slot(cmd.slots()[WEIGHT]).place {
        match (launch.pack, memory.packed.panels(index)) {
            (Some(_), Some((panels, _))) => operands[WEIGHT] = panels,
            (Some(_), None) => bail!(Internal, "weight {index} is not packed"),
            (None, Some((panels, Pack::Blocks(layout)))) => {
                // Else the file would be in memory beside them.
                if let Some(Read::Rows(_, from)) = &mut read {
                    (operands[WEIGHT], *from) = (panels, Some(layout));
                }
            }
            (None, _) => {}
        }
    }
    if launch.scratch > 0 {
        let bytes = launch.scratch.next_multiple_of(ALIGN);
        operands[count] = memory.scratch.per_thread(bytes);
        writes |= 1 << count;
        count += 1;
    }
    if launch.join.is_some() {
        operands[count] = memory.parts;
        writes |= 1 << count;
        count += 1;
    }
    let scales = scales(program, table, cmd);
    let mut params = [0; PARAMS_BYTES_MAX];
    let bytes = table.params(cmd);
    params[..bytes.len()].copy_from_slice(bytes);
    let step = Step {
        entry: launch.entry,
        bound: Bound {
            operands,
            writes,
            count,
            params,
            read,
            product: launch.product,
            codes: launch.codes,
            scales: scales.as_ref().map(ScalesAt::of),
            tokens: launch.tokens,
            by: launch.by,
        },
        split: launch.split,
        barrier: false,
        made_by: None,
    };
    check(&step, cmd)?;
    Ok(step)
}

/// Refuses a command that names the memory it writes twice: its threads would meet there.
fn check(step: &Step, cmd: &DispatchCmd) -> Result<()> {
    for i in (0..step.bound.count).filter(|&i| step.bound.writes(i)) {
        for j in (0..step.bound.count).filter(|&j| j != i) {
            if step.bound.operands[i].overlaps(step.bound.operands[j]) {
                let names = cmd.kernel.op.operands();
                let name = |i: usize| names.get(i).map_or("scratch", |o| o.name);
                return Err(Error::new(
                    ErrorKind::Internal,
                    format_args!("{} and {} share memory", name(i), name(j)),
                ));
            }
        }
    }
    Ok(())
}

/// The step that quantizes a product's activations, which become one more operand of it.
fn quantizing(step: &mut Step, shape: Shape, memory: &Memory, isa: Isa) -> Step {
    let bytes = shape.tile_bytes();
    // One row is quantized by every thread for itself: cheaper than to wait for another.
    let alone = shape.tokens == 1;
    let out = if alone {
        memory.quantized.per_thread(bytes)
    } else {
        memory.quantized
    };
    step.bound.operands[step.bound.count] = out;
    step.bound.count += 1;
    let mut operands = [Operand::of(&[]); SLOTS_MAX];
    (operands[QUANTISE_X], operands[QUANTISE_OUT]) = (step.bound.operands[ACTIVATIONS], out);
    let mut params = [0; PARAMS_BYTES_MAX];
    let shape_bytes = bytemuck::bytes_of(&shape);
    params[..shape_bytes.len()].copy_from_slice(shape_bytes);
    Step {
        entry: quantize::entry(shape, isa),
        bound: Bound {
            operands,
            writes: 1 << QUANTISE_OUT,
            count: 2,
            params,
            read: None,
            product: None,
            codes: None,
            scales: None,
            tokens: shape.tokens as usize,
            by: By::All,
        },
        split: if alone {
            Split::Each
        } else {
            Split::Tiles(shape.tile as usize)
        },
        barrier: false,
        made_by: None,
    }
}

/// What was touched since the last barrier.
#[derive(Default)]
struct Hazards {
    touched: Vec<Touch>,
}

#[derive(Clone, Copy)]
struct Touch {
    operand: Operand,
    written: bool,
    /// The first thread keeps its own order.
    by: By,
}

impl Touch {
    fn conflicts(self, other: Self) -> bool {
        (self.written || other.written)
            && [self.by, other.by] != [By::First; 2]
            && !self.operand.same_copies(other.operand)
            && self.operand.overlaps(other.operand)
    }
}

impl Hazards {
    /// Takes note of a step and says whether the threads must meet before it.
    fn meet(&mut self, step: &Step) -> bool {
        let touches = (0..step.bound.count).map(|i| Touch {
            operand: step.bound.operands[i],
            written: step.bound.writes(i),
            by: step.bound.by,
        });
        let touches: Vec<Touch> = touches.collect();
        let meet = touches
            .iter()
            .any(|t| self.touched.iter().any(|u| t.conflicts(*u)));
        if meet {
            self.touched.clear();
        }
        self.touched.extend(touches);
        meet
    }
}
