//! Converts tables to steps: memory for every buffer, a kernel for every command, barriers between
//! them.

use super::descriptors::{ALIGN, ActivationShape, QUANTIZE_OUT, QUANTIZE_X, WeightReader};
use super::hazards::Hazards;
use super::kernel::matmul::quantized::activations;
use super::kernel::{Join, Launch};
use super::launches::{
    Target, in_place, is_stored, label, launches_of, tensor, tensor_bytes, weight,
};
use super::memory::{Arena, Bound, OPERANDS_MAX, Operand, ScaleOperands};
use super::pack::{self, PackSpec, PackSpecs, PackedWeights, Panels, unpacked};
use super::panel::Pack;
use super::pool::LinkedTables;
use super::simd::Isa;
use super::step::{Step, Steps};
use super::work::{RunOn, Split};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tabla_core::dtype::DType;
use tabla_core::error::{Context, Error, ErrorKind, Result, bail};
use tabla_core::exec::state::state_bytes;
use tabla_core::exec::{Program, is_private};
use tabla_core::op::list::Access;
use tabla_core::op::operands::{ACTIVATIONS, WEIGHT};
use tabla_core::op::table::{self, BufferId, DispatchCmd, PARAMS_BYTES_MAX, Table};

/// Result of linking.
pub(super) struct LinkedProgram {
    /// Tables for the thread pool.
    pub(super) tables: LinkedTables,
    /// Memory of the tables, including what they share.
    pub(super) memory: Buffers,
    /// Buffers of the program that the host may read and write.
    pub(super) buffers: BTreeMap<BufferId, Operand>,
    /// Bytes of the weights that were packed.
    pub(super) packed_bytes: u64,
    /// Memory of the KV cache.
    pub(super) caches: CacheMemory,
}

/// Memory that starts with the KV cache.
pub(super) struct CacheMemory {
    arena: Arc<Arena>,
    bytes: usize,
}

impl fmt::Debug for CacheMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

impl CacheMemory {
    /// Asks for huge pages for the KV cache.
    pub(super) fn use_huge_pages(&self) {
        self.arena.use_huge_pages(self.bytes);
    }
}

/// Links every table of a program. Its tables share the memory of `linked`.
pub(super) fn link(program: Program, target: Target, linked: &Buffers) -> Result<LinkedProgram> {
    let launches = launches_of(&program, target, &linked.panels)?;
    link_launches(program, launches, target, linked)
}

/// Links the launches of a program.
pub(super) fn link_launches(
    program: Program,
    (launches, specs): (Vec<Vec<Launch>>, PackSpecs),
    target: Target,
    linked: &Buffers,
) -> Result<LinkedProgram> {
    // The sizes in a compiled model are checked before memory is taken.
    let specs = unpacked(specs, &linked.panels);
    let stored = pack::stored(&*program.tensors, &specs)?;
    let mut operands = linked.shared(&program.tables)?;
    let layout = ArenaLayout::new(&program, &launches, target.threads, linked, &operands)?;
    let mut arena = Arena::new(layout.bytes)?;
    let mut buffers = BTreeMap::new();
    for (buffer, range) in &layout.buffers {
        if let Some(bytes) = tensor(&program, *buffer) {
            arena.fill(range, bytes);
        } else {
            buffers.insert(*buffer, arena.operand(range.clone()));
        }
        if let BufferId::Weight(index, _) = *buffer {
            program.tensors.release(index, 0..range.len());
        }
        operands.insert(*buffer, arena.operand(range.clone()));
    }
    let specs = unpacked(specs, &stored);
    let packed = PackedWeights::new(&program, &specs, target.threads)?;
    let mut panels = linked.panels.clone();
    panels.extend(stored.iter().chain(&packed.panels));
    let own = |range: &Option<ByteRange>, linked: Operand| {
        let range = range.clone();
        range.map_or(linked, |range| arena.operand(range))
    };
    let memory = Buffers {
        operands,
        panels,
        scratch: own(&layout.scratch, linked.scratch),
        quantized: own(&layout.quantized, linked.quantized),
        parts: own(&layout.parts, linked.parts),
    };
    let made = |index| {
        let panels = memory.panels.get(&index);
        let panels = panels.filter(|_| !is_stored(&program, index));
        panels.map(|(_, spec)| spec.pack)
    };
    let is_copied = |buffer| memory.operands.contains_key(&buffer);
    let in_place = in_place(&program, &launches, &made, &is_copied, &|_| true);
    program.tensors.copy_in_place(&in_place)?;

    let mut tables = Vec::with_capacity(launches.len());
    for (table, launches) in program.tables.iter().zip(launches) {
        tables.push(steps(&program, table, launches, &memory, target)?);
    }
    let caches = CacheMemory {
        arena: Arc::new(arena),
        bytes: layout.caches,
    };
    let tables = LinkedTables {
        tables,
        _keep: Box::new((Arc::clone(&caches.arena), packed, program)),
    };
    Ok(LinkedProgram {
        tables,
        memory,
        buffers,
        packed_bytes: specs.values().map(PackSpec::bytes).sum::<usize>() as u64,
        caches,
    })
}

/// Buffers by purpose.
#[derive(Debug)]
pub(super) struct Buffers {
    /// All buffers except tensors that are used in place.
    pub(super) operands: BTreeMap<BufferId, Operand>,
    pub(super) panels: Panels,
    scratch: Operand,
    quantized: Operand,
    parts: Operand,
}

impl Buffers {
    /// No memory.
    pub(super) fn none() -> Self {
        let none = Operand::of(&[]);
        Self {
            operands: BTreeMap::new(),
            panels: BTreeMap::new(),
            scratch: none,
            quantized: none,
            parts: none,
        }
    }

    /// Returns the buffers that these tables share.
    fn shared(&self, tables: &[Table]) -> Result<BTreeMap<BufferId, Operand>> {
        let mut shared = BTreeMap::new();
        for (buffer, slot) in table::buffers(tables) {
            let Some(operand) = self.operands.get(&buffer).filter(|_| !is_private(buffer)) else {
                continue;
            };
            if operand.size() as u64 >= slot.bytes() {
                shared.insert(buffer, *operand);
            } else if !matches!(buffer, BufferId::Weight(..)) {
                bail!(
                    Internal,
                    "added tables need {} bytes for {}, but the linked buffer has {}",
                    slot.bytes(),
                    slot.name,
                    operand.size()
                );
            }
        }
        Ok(shared)
    }
}

type ByteRange = std::ops::Range<usize>;

/// Layout of the arena. Memory that is shared is `None`, or not listed.
#[derive(Default)]
pub(super) struct ArenaLayout {
    pub(super) bytes: usize,
    /// Bytes of the KV cache, which is at the start.
    caches: usize,
    pub(super) buffers: BTreeMap<BufferId, ByteRange>,
    /// Scratch memory, one part per thread; used only within a command.
    scratch: Option<ByteRange>,
    /// int8 or bf16 activations, which several commands may read.
    quantized: Option<ByteRange>,
    /// Partial results that the first step of a command passes to the second.
    parts: Option<ByteRange>,
}

impl ArenaLayout {
    pub(super) fn new(
        program: &Program,
        launches: &[Vec<Launch>],
        threads: usize,
        linked: &Buffers,
        shared: &BTreeMap<BufferId, Operand>,
    ) -> Result<Self> {
        let mut layout = Self::default();
        let is_cache = |id: &BufferId| matches!(id, BufferId::Keys(_) | BufferId::Values(_));
        let sizes = sizes(program, launches, shared)?.into_iter();
        let (caches, others): (Vec<_>, Vec<_>) = sizes.partition(|(id, _)| is_cache(id));
        for (buffer, bytes) in caches {
            let range = layout.take(bytes)?;
            layout.buffers.insert(buffer, range);
        }
        layout.caches = layout.bytes;
        for (buffer, bytes) in others {
            let range = layout.take(bytes)?;
            layout.buffers.insert(buffer, range);
        }
        let all = || launches.iter().flatten();
        let too_large = |what| Error::new(ErrorKind::TooLarge, what);
        let scratch = all().map(|l| l.scratch).max().unwrap_or(0);
        let scratch = scratch.checked_next_multiple_of(ALIGN);
        let scratch = scratch.and_then(|bytes| bytes.checked_mul(threads));
        let scratch = scratch.ok_or_else(|| too_large("working memory exceeds 64 bits"))?;
        layout.scratch = layout.take_over(linked.scratch, scratch)?;
        let copies = |shape: ActivationShape| {
            let tiles = if shape.tokens == 1 {
                threads
            } else {
                shape.tiles()
            };
            tiles.saturating_mul(shape.tile_bytes())
        };
        let quantized = all().filter_map(|l| l.quantize).map(copies).max();
        layout.quantized = layout.take_over(linked.quantized, quantized.unwrap_or(0))?;
        let parts = all().filter_map(|l| l.join).map(|join| join.bytes);
        layout.parts = layout.take_over(linked.parts, parts.max().unwrap_or(0))?;
        Ok(layout)
    }

    /// Takes memory unless the linked memory is large enough. Tables never run at the same time.
    fn take_over(&mut self, linked: Operand, bytes: usize) -> Result<Option<ByteRange>> {
        let own = (linked.size() < bytes).then(|| self.take(bytes as u64));
        own.transpose()
    }

    fn take(&mut self, bytes: u64) -> Result<ByteRange> {
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
            _ => bail!(Memory, "cannot address {bytes} bytes after {start}"),
        }
    }
}

/// Sizes of the buffers that are not shared, in bytes.
fn sizes(
    program: &Program,
    launches: &[Vec<Launch>],
    shared: &BTreeMap<BufferId, Operand>,
) -> Result<BTreeMap<BufferId, u64>> {
    let packs = launches.iter().flatten().any(|l| l.pack.is_some());
    let mut sizes: BTreeMap<BufferId, u64> = BTreeMap::new();
    let used = program.tables.iter().flat_map(|table| {
        let slots = table.cmds.iter().flat_map(DispatchCmd::slots);
        slots.map(|slot| table.slot(*slot))
    });
    for slot in used.filter(|slot| !shared.contains_key(&slot.buffer)) {
        let least = match (slot.buffer, tensor_bytes(program, slot)?) {
            (BufferId::State, _) => state_bytes(1) as u64,
            // Tensors are used in place unless f32 values are misaligned. If matrices are packed,
            // vectors are copied too: each would keep a huge page of the file resident.
            (_, Some([])) => continue,
            (_, Some(b))
                if slot.dtype != DType::F32
                    || Operand::of(b).is_f32_aligned() && !(packs && slot.rows == 1) =>
            {
                continue;
            }
            _ => 0,
        };
        let size = sizes.entry(slot.buffer).or_default();
        *size = slot.bytes().max(least).max(*size);
    }
    Ok(sizes)
}

/// Builds the steps of a table.
fn steps(
    program: &Program,
    table: &Table,
    launches: Vec<Launch>,
    memory: &Buffers,
    target: Target,
) -> Result<Steps> {
    let others = |l: &Launch| usize::from(l.quantize.is_some()) + usize::from(l.join.is_some());
    let others: usize = launches.iter().map(others).sum();
    let mut steps = Vec::with_capacity(table.cmds.len() + others);
    let mut first = Vec::with_capacity(table.cmds.len() + 1);
    let mut hazards = Hazards::default();
    let mut last_quantized: Option<QuantizedInput> = None;
    for (at, (cmd, launch)) in table.cmds.iter().zip(launches).enumerate() {
        first.push(steps.len());
        let mut step = step(program, table, cmd, &launch, memory).context(label(table, cmd))?;
        check_units(&step, target.threads).context(label(table, cmd))?;
        if let Some(shape) = launch.quantize {
            let x = table.slot(cmd.slots()[ACTIVATIONS]).buffer;
            let mut before = quantize_step(&mut step, shape, memory, target.isa);
            match last_quantized {
                Some(m) if (m.x, m.shape) == (x, shape) => before.computed_by = Some(m.cmd),
                _ => {
                    before.barrier = hazards.needs_barrier(&before);
                    last_quantized = Some(QuantizedInput { x, shape, cmd: at });
                }
            }
            steps.push(before);
        }
        step.barrier = hazards.needs_barrier(&step);
        let written = cmd.slots().iter().zip(cmd.kernel.op.operands());
        let mut written = written.filter(|(_, o)| o.access != Access::Read);
        if last_quantized.is_some_and(|m| written.any(|(s, _)| table.slot(*s).buffer == m.x)) {
            last_quantized = None;
        }
        let join = launch.join.map(|join| join.step(&step));
        steps.push(step);
        if let Some(mut join) = join {
            join.barrier = hazards.needs_barrier(&join);
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
    /// Returns the second step of a command, which reads the partial results in its last operand.
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

/// Activations that an earlier step has quantized.
#[derive(Clone, Copy)]
struct QuantizedInput {
    x: BufferId,
    shape: ActivationShape,
    cmd: usize,
}

fn step(
    program: &Program,
    table: &Table,
    cmd: &DispatchCmd,
    launch: &Launch,
    memory: &Buffers,
) -> Result<Step> {
    let mut operands = [Operand::of(&[]); OPERANDS_MAX];
    let mut writes = 0;
    let mut count = 0;
    for (slot, operand) in cmd.slots().iter().zip(cmd.kernel.op.operands()) {
        let info = table.slot(*slot);
        operands[count] = match memory.operands.get(&info.buffer) {
            Some(memory) => *memory,
            None => match tensor_bytes(program, info)? {
                Some(bytes) => Operand::of(bytes),
                None => bail!(Internal, "no memory for operand {}", info.name),
            },
        };
        if operand.access != Access::Read {
            if tensor(program, info.buffer).is_some() {
                bail!(Internal, "command writes to the tensor {}", info.name);
            }
            writes |= 1 << count;
        }
        count += 1;
    }
    let mut reader = launch.reader;
    let weight = weight(table, cmd);
    if let Some(index) = weight
        && let Some(panels) = panels_of(index, launch, memory, &mut reader)?
    {
        operands[WEIGHT] = panels;
    }
    reject_unreadable(table, cmd, &operands)?;
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
    let scales = weight.and_then(|weight| program.tensors.scales(weight));
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
            reader,
            matmul: launch.matmul,
            codes: launch.codes,
            scales: scales.as_ref().map(ScaleOperands::of),
            tokens: launch.tokens,
            run_on: launch.run_on,
        },
        split: launch.split,
        barrier: false,
        computed_by: None,
    };
    reject_aliasing(&step, cmd)?;
    Ok(step)
}

/// Rejects a command whose kernel cannot read the only layout that a compiled model has of a weight.
fn reject_unreadable(table: &Table, cmd: &DispatchCmd, operands: &[Operand]) -> Result<()> {
    for (slot, operand) in cmd.slots().iter().zip(operands) {
        let info = table.slot(*slot);
        if matches!(info.buffer, BufferId::Weight(..)) && operand.size() == 0 && info.bytes() > 0 {
            bail!(
                Unsupported,
                "weight {}: the compiled model has only panels of it, which this kernel does not read",
                info.name
            );
        }
    }
    Ok(())
}

/// Returns the panels of a weight if a command reads them; sets its reader.
fn panels_of(
    index: u32,
    launch: &Launch,
    memory: &Buffers,
    reader: &mut Option<WeightReader>,
) -> Result<Option<Operand>> {
    let packed = memory.panels.get(&index);
    match (
        launch.pack,
        packed.map(|(panels, spec)| (*panels, spec.pack)),
    ) {
        (Some(_), None) => bail!(Internal, "weight {index} is not packed"),
        (Some(_), Some((panels, _))) => Ok(Some(panels)),
        (None, Some((panels, Pack::Blocks(layout)))) => {
            // Use the panels; otherwise the file data would stay in memory as well.
            let Some(WeightReader::Rows(_, from)) = reader else {
                return Ok(None);
            };
            *from = Some(layout);
            Ok(Some(panels))
        }
        (None, _) => Ok(None),
    }
}

/// Rejects a command if the numbers of its units overflow, or their offsets in an output 64 bits: the parts of threads
/// would overlap. Where addresses have 32 bits, in WebAssembly, offsets wrap around only if parameters contradict the
/// buffers, which a sandbox tolerates.
fn check_units(step: &Step, threads: usize) -> Result<()> {
    let outputs = (0..step.bound.count).filter(|&i| step.bound.writes(i));
    let bytes = outputs.map(|i| step.bound.operands[i].size()).max();
    let bytes = bytes.unwrap_or(0) as u64;
    let units = step
        .units_max()
        .filter(|n| n.checked_mul(threads).is_some());
    match units.and_then(|units| bytes.checked_mul(units as u64)) {
        Some(_) => Ok(()),
        None => bail!(TooLarge, "{:?} has too many units", step.split),
    }
}

/// Rejects a command whose output overlaps another operand, because its threads would race.
fn reject_aliasing(step: &Step, cmd: &DispatchCmd) -> Result<()> {
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

/// Returns the step that quantizes the activations of a matrix product, and adds them as an operand
/// of the product.
fn quantize_step(step: &mut Step, shape: ActivationShape, memory: &Buffers, isa: Isa) -> Step {
    let bytes = shape.tile_bytes();
    // Each thread quantizes a single row for itself, which is cheaper than a barrier.
    let alone = shape.tokens == 1;
    let out = if alone {
        memory.quantized.per_thread(bytes)
    } else {
        memory.quantized
    };
    step.bound.operands[step.bound.count] = out;
    step.bound.count += 1;
    let mut operands = [Operand::of(&[]); OPERANDS_MAX];
    (operands[QUANTIZE_X], operands[QUANTIZE_OUT]) = (step.bound.operands[ACTIVATIONS], out);
    let mut params = [0; PARAMS_BYTES_MAX];
    let shape_bytes = bytemuck::bytes_of(&shape);
    params[..shape_bytes.len()].copy_from_slice(shape_bytes);
    Step {
        entry: activations::entry(shape, isa),
        bound: Bound {
            operands,
            writes: 1 << QUANTIZE_OUT,
            count: 2,
            params,
            reader: None,
            matmul: None,
            codes: None,
            scales: None,
            tokens: shape.tokens as usize,
            run_on: RunOn::AllThreads,
        },
        split: if alone {
            Split::PerThread
        } else {
            Split::Tiles(shape.tile as usize)
        },
        barrier: false,
        computed_by: None,
    }
}
