//! Tables as key-value pairs of a GGUF file.
//!
//! Each property of tables, commands, slots and layers is a column: an array with the values of all tables in order.
//! Numbers are u32. Names occur once, in a list of strings that other columns refer to by index: kernels with their
//! storage types, kinds of slots, names of slots and labels. What follows from the list of operations is not stored:
//! the number of operands and of parameters, and the offsets of parameters.
//!
//! [`read`] checks every index, enumeration and size, and takes no more memory than the arrays of the file account
//! for. What a table must satisfy beyond that is in [`check`](super::check).

use crate::device::KernelVariant;
use crate::dtype::DType;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::format::Metadata;
use crate::format::write::Writer;
use crate::model::TableId;
use crate::op::fields;
use crate::op::list::Op;
use crate::op::params;
use crate::op::table::{BufferId, DispatchCmd, KernelId, LayerEnd, PARAMS_ALIGN, Place};
use crate::op::table::{SLOTS_MAX, SamplingStage, Slot, SlotInfo, Table};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

/// Tables that a file may have. Those of hooks are compiled when they are used.
const TABLES: [TableId; 8] = [
    TableId::Step,
    TableId::Batch,
    TableId::Embed,
    TableId::Classify,
    TableId::Encode,
    TableId::Align,
    TableId::HeadKeys,
    TableId::Draft,
];

/// Maximum size of a name in bytes: each slot and command has a copy.
const NAME_BYTES_MAX: usize = 512;

/// Place of the name of a storage type or a variant, if there is none.
const NONE: &str = "-";

/// Returns a digest of everything that defines the meaning of stored tables. A file with another version must not be
/// run.
pub(super) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let hash = blake3::hash(fields::definitions().as_bytes());
        hash.to_hex()[..16].to_string()
    });
    &VERSION
}

/// Distinct strings, each with its index.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    index: HashMap<String, u32>,
}

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        if let Some(index) = self.index.get(text) {
            return *index;
        }
        let index = word(self.list.len());
        self.list.push(text.to_string());
        self.index.insert(text.to_string(), index);
        index
    }
}

/// Adds tables to a file, with keys that start with `prefix`.
pub(super) fn write(to: &mut Writer<'_>, prefix: &str, tables: &[Table]) {
    let [mut kernels, mut kinds, mut strings] = [(); 3].map(|()| Strings::default());
    let mut columns = COLUMNS.map(|_| Vec::new());
    let mut add =
        |column: ColumnId, words: &[u32]| columns[column as usize].extend_from_slice(words);
    for table in tables {
        let counts = [table.cmds.len(), table.slots.len(), table.layers.len()];
        add(ColumnId::Tokens, &[table.tokens]);
        add(ColumnId::Counts, &counts.map(word));
        add(ColumnId::Head, &[word(table.head)]);
        add(
            ColumnId::Stages,
            &table.stages.clone().map(|stage| word(stage.start)),
        );
        for cmd in &table.cmds {
            add(ColumnId::Kernel, &[kernels.add(&kernel_text(cmd))]);
            add(ColumnId::Grid, &cmd.grid);
            let slots = &cmd.slots.map(|slot| slot.0.into());
            add(ColumnId::Slots, &slots[..cmd.slots().len()]);
            add(
                ColumnId::Params,
                &bytemuck::pod_collect_to_vec(table.params(cmd)),
            );
            let label = table.labels.get(cmd.label as usize);
            let label = label.map_or(cmd.kernel.op.name(), String::as_str);
            add(ColumnId::Label, &[strings.add(label)]);
        }
        for slot in &table.slots {
            let numbers = numbers(slot.buffer);
            let kind = BUFFERS
                .iter()
                .find(|(_, buffer)| buffer(numbers) == slot.buffer);
            let kind = format!("{} {}", kind.map_or(NONE, |kind| kind.0), slot.dtype.name());
            add(ColumnId::SlotKind, &[kinds.add(&kind)]);
            add(ColumnId::SlotBuffer, &numbers);
            add(ColumnId::SlotShape, &[slot.rows, slot.cols]);
            add(ColumnId::SlotName, &[strings.add(&slot.name)]);
        }
        for layer in &table.layers {
            add(ColumnId::LayerEnd, &[word(layer.cmd), layer.slot.0.into()]);
        }
    }
    let names: Vec<_> = tables.iter().map(|table| table.name).collect();
    to.list(&format!("{prefix}.names"), &names);
    to.list(&format!("{prefix}.kernels"), &kernels.list);
    to.list(&format!("{prefix}.kinds"), &kinds.list);
    to.list(&format!("{prefix}.strings"), &strings.list);
    for (column, words) in COLUMNS.iter().zip(&columns) {
        to.list(&format!("{prefix}.{column}"), words);
    }
}

/// Converts an index to a word.
fn word(n: usize) -> u32 {
    u32::try_from(n).expect("tables are small")
}

/// Names of the columns of numbers.
#[rustfmt::skip]
const COLUMNS: [&str; 14] = [
    "tokens", "counts", "head", "stages",
    "command.kernel", "command.grid", "command.slots", "command.params", "command.label",
    "slot.kind", "slot.buffer", "slot.shape", "slot.name", "layer.end",
];

/// Index of a column in [`COLUMNS`].
#[rustfmt::skip]
#[derive(Clone, Copy)]
enum ColumnId {
    Tokens, Counts, Head, Stages,
    Kernel, Grid, Slots, Params, Label,
    SlotKind, SlotBuffer, SlotShape, SlotName, LayerEnd,
}

/// Returns place, operation, storage type and variant of a command: `device gemv q4_0 subgroup+int8`.
fn kernel_text(cmd: &DispatchCmd) -> String {
    let KernelId { op, dtype, variant } = cmd.kernel;
    let place = match cmd.place {
        Place::Device => "device",
        Place::Host => "host",
    };
    let dtype = dtype.map_or(NONE, DType::name);
    let variant = variant.map_or(NONE, KernelVariant::name);
    format!("{place} {} {dtype} {variant}", op.name())
}

/// Parses the text of a kernel; `None` if there is no such kernel.
fn kernel(text: &str) -> Option<(KernelId, Place)> {
    let mut parts = text.split(' ');
    let mut next = || parts.next();
    let (place, op, dtype, variant) = (next()?, next()?, next()?, next()?);
    let place = match place {
        "device" => Place::Device,
        "host" => Place::Host,
        _ => return None,
    };
    let op = *Op::ALL.iter().find(|known| known.name() == op)?;
    let dtype = match dtype {
        NONE => None,
        name => Some(DType::from_name(name)?),
    };
    let named = |known: &&KernelVariant| known.name() == variant;
    let variant = match variant {
        NONE => None,
        _ => Some(*KernelVariant::ALL.iter().find(named)?),
    };
    let kernel = KernelId { op, dtype, variant };
    let mut all = KernelId::all(op, dtype, KernelVariant::ALL);
    (next().is_none() && all.any(|known| known == kernel)).then_some((kernel, place))
}

/// Constructor of a buffer from its numbers.
type Buffer = fn([u32; 2]) -> BufferId;

/// Kinds of buffers, without those of hooks, which no file has.
const BUFFERS: [(&str, Buffer); 21] = [
    ("weight", |[n, first]| BufferId::Weight(n, first)),
    ("constant", |[n, _]| BufferId::Constant(n)),
    ("keys", |[n, _]| BufferId::Keys(n)),
    ("values", |[n, _]| BufferId::Values(n)),
    ("conv_state", |[n, _]| BufferId::ConvState(n)),
    ("recurrent_state", |[n, _]| BufferId::RecurrentState(n)),
    ("pages", |_| BufferId::Pages),
    ("state", |_| BufferId::State),
    ("history", |_| BufferId::History),
    ("samplers", |_| BufferId::Samplers),
    ("biases", |_| BufferId::Biases),
    ("breakers", |_| BufferId::Breakers),
    ("masks", |_| BufferId::Masks),
    ("logprobs", |_| BufferId::Logprobs),
    ("logits", |_| BufferId::Logits),
    ("scores", |_| BufferId::Scores),
    ("hidden", |_| BufferId::Hidden),
    ("mel", |_| BufferId::Mel),
    ("alignment", |_| BufferId::Alignment),
    ("transferred", |[cols, n]| BufferId::Transferred(cols, n)),
    ("scratch", |[n, _]| BufferId::Scratch(n)),
];

/// Returns the numbers of a buffer; those that it does not have are 0.
fn numbers(buffer: BufferId) -> [u32; 2] {
    use BufferId::{Constant, ConvState, Keys, RecurrentState, Scratch, Values};
    match buffer {
        BufferId::Weight(a, b) | BufferId::Transferred(a, b) => [a, b],
        Constant(n) | Keys(n) | Values(n) | ConvState(n) | RecurrentState(n) | Scratch(n) => [n, 0],
        _ => [0; 2],
    }
}

/// A column that is read from its start.
struct Column {
    key: String,
    words: Vec<u32>,
    at: usize,
}

impl Column {
    /// Returns the next words.
    fn words(&mut self, count: usize) -> Result<&[u32]> {
        let end = self.at.saturating_add(count);
        let Some(words) = self.words.get(self.at..end) else {
            bail!(
                Format,
                "{}: expected at least {end} numbers, got {}",
                self.key,
                self.words.len()
            );
        };
        self.at = end;
        Ok(words)
    }

    /// Returns the next `N` words.
    fn next<const N: usize>(&mut self) -> Result<[u32; N]> {
        let mut next = [0; N];
        next.copy_from_slice(self.words(N)?);
        Ok(next)
    }

    /// Returns the next word, which must be less than `limit`, as an index.
    fn index(&mut self, limit: usize) -> Result<usize> {
        let [word] = self.next()?;
        self.checked(word, limit)
    }

    /// Returns a word of this column, which must be less than `limit`, as an index.
    fn checked(&self, word: u32, limit: usize) -> Result<usize> {
        match usize::try_from(word) {
            Ok(index) if index < limit => Ok(index),
            _ => bail!(
                Format,
                "{}: expected a number less than {limit}, got {word}",
                self.key
            ),
        }
    }

    /// Checks that no words are left.
    fn end(&self) -> Result<()> {
        match self.words.len() == self.at {
            true => Ok(()),
            false => bail!(
                Format,
                "{}: expected {} numbers, got {}",
                self.key,
                self.at,
                self.words.len()
            ),
        }
    }
}

/// Columns in the order of [`COLUMNS`].
struct Input([Column; COLUMNS.len()]);

/// Lists that columns refer to.
struct Lists {
    kernels: Vec<(KernelId, Place)>,
    kinds: Vec<(Buffer, DType)>,
    strings: Vec<String>,
}

/// Reads the tables of a file with keys that start with `prefix`.
///
/// # Errors
///
/// `Format` with the key or the table, and what was expected.
pub(super) fn read(metadata: &Metadata, prefix: &str) -> Result<Vec<Table>> {
    let names = strings(metadata, prefix, "names")?;
    let lists = Lists::read(metadata, prefix)?;
    let mut columns = Input::read(metadata, prefix)?;
    let mut tables = Vec::with_capacity(names.len());
    for (at, name) in names.into_iter().enumerate() {
        let Some(id) = TABLES.into_iter().find(|id| id.name() == name) else {
            bail!(Format, "{prefix}.names: unknown table {name:?}");
        };
        let table = columns.table(id, &lists);
        tables.push(table.context(format_args!("table {at} {name}"))?);
    }
    columns.0.iter().try_for_each(Column::end)?;
    Ok(tables)
}

/// Returns a list of strings.
fn strings<'a>(metadata: &'a Metadata, prefix: &str, name: &str) -> Result<Vec<&'a str>> {
    let key = format!("{prefix}.{name}");
    metadata.strs(&key)?.ok_or_else(|| missing(&key))
}

fn missing(key: &str) -> Error {
    Error::new(ErrorKind::Format, format_args!("{key} is missing"))
}

impl Lists {
    fn read(metadata: &Metadata, prefix: &str) -> Result<Self> {
        let parsed = |text: &str, name: &str| {
            let message = format_args!("{prefix}.{name}: unknown entry {text:?}");
            Error::new(ErrorKind::Format, message)
        };
        let kernels = strings(metadata, prefix, "kernels")?.into_iter();
        let kernels = kernels.map(|text| kernel(text).ok_or_else(|| parsed(text, "kernels")));
        let kind = |text: &str| {
            let (kind, dtype) = text.split_once(' ')?;
            let (_, buffer) = BUFFERS.iter().find(|(name, _)| *name == kind)?;
            Some((*buffer, DType::from_name(dtype)?))
        };
        let kinds = strings(metadata, prefix, "kinds")?.into_iter();
        let kinds = kinds.map(|text| kind(text).ok_or_else(|| parsed(text, "kinds")));
        let names = strings(metadata, prefix, "strings")?;
        if let Some(long) = names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
            bail!(
                Format,
                "{prefix}.strings: {long:?} has {} bytes, expected at most {NAME_BYTES_MAX}",
                long.len()
            );
        }
        Ok(Self {
            kernels: kernels.collect::<Result<_>>()?,
            kinds: kinds.collect::<Result<_>>()?,
            strings: names.into_iter().map(String::from).collect(),
        })
    }
}

impl Input {
    fn read(metadata: &Metadata, prefix: &str) -> Result<Self> {
        let mut columns = COLUMNS.map(|name| Column {
            key: format!("{prefix}.{name}"),
            words: Vec::new(),
            at: 0,
        });
        for Column { key, words, .. } in &mut columns {
            *words = metadata.u32s(key)?.ok_or_else(|| missing(key))?;
        }
        Ok(Self(columns))
    }

    fn of(&mut self, name: ColumnId) -> &mut Column {
        &mut self.0[name as usize]
    }

    fn table(&mut self, id: TableId, lists: &Lists) -> Result<Table> {
        let [cmds, slots, layers] = self.of(ColumnId::Counts).next()?;
        // No more than the columns have, so that no more memory is taken.
        let limited = |word, of: ColumnId| {
            let all = self.0[of as usize].words.len();
            self.0[ColumnId::Counts as usize].checked(word, all + 1)
        };
        let cmds = limited(cmds, ColumnId::Kernel)?;
        let slots = limited(slots, ColumnId::SlotKind)?;
        let layers = limited(layers, ColumnId::LayerEnd)?;
        let mut table = Table {
            name: id.name(),
            tokens: self.of(ColumnId::Tokens).next::<1>()?[0],
            cmds: Vec::with_capacity(cmds),
            params: Vec::new(),
            slots: Vec::with_capacity(slots),
            labels: Vec::with_capacity(cmds),
            layers: Vec::with_capacity(layers),
            head: self.of(ColumnId::Head).index(cmds + 1)?,
            stages: self.stages(cmds)?,
        };
        for at in 0..slots {
            let slot = self.slot(lists).context(format_args!("slot {at}"))?;
            table.slots.push(slot);
        }
        for at in 0..cmds {
            self.command(&mut table, lists)
                .context(format_args!("command {at}"))?;
        }
        for _ in 0..layers {
            let [cmd, slot] = self.of(ColumnId::LayerEnd).next()?;
            let cmd = self.of(ColumnId::LayerEnd).checked(cmd, cmds + 1)?;
            let slot = slot_index(self.of(ColumnId::LayerEnd), slot, slots)?;
            table.layers.push(LayerEnd { cmd, slot });
        }
        Ok(table)
    }

    /// Returns the command ranges of the stages, each from its start to that of the next one.
    fn stages(&mut self, cmds: usize) -> Result<[Range<usize>; SamplingStage::COUNT]> {
        let starts = self
            .of(ColumnId::Stages)
            .next::<{ SamplingStage::COUNT }>()?;
        let mut stages = [const { 0..0 }; SamplingStage::COUNT];
        let mut end = cmds;
        for (stage, start) in stages.iter_mut().zip(starts).rev() {
            let start = self.of(ColumnId::Stages).checked(start, end + 1)?;
            *stage = start..end;
            end = start;
        }
        Ok(stages)
    }

    fn slot(&mut self, lists: &Lists) -> Result<SlotInfo> {
        let (buffer, dtype) = lists.kinds[self.of(ColumnId::SlotKind).index(lists.kinds.len())?];
        let numbers = self.of(ColumnId::SlotBuffer).next()?;
        let buffer = buffer(numbers);
        if self::numbers(buffer) != numbers {
            bail!(
                Format,
                "{}: unexpected numbers {numbers:?} of {buffer:?}",
                self.of(ColumnId::SlotBuffer).key
            );
        }
        let [rows, cols] = self.of(ColumnId::SlotShape).next()?;
        let bytes = dtype.bytes(u64::from(rows) * u64::from(cols));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            bail!(
                Format,
                "{}: [{rows}, {cols}] is no shape of {dtype}",
                self.of(ColumnId::SlotShape).key
            );
        }
        Ok(SlotInfo {
            name: lists.strings[self.of(ColumnId::SlotName).index(lists.strings.len())?].clone(),
            dtype,
            rows,
            cols,
            buffer,
        })
    }

    /// Reads a command; the slots of the table must have been read.
    fn command(&mut self, table: &mut Table, lists: &Lists) -> Result<()> {
        let (kernel, place) =
            lists.kernels[self.of(ColumnId::Kernel).index(lists.kernels.len())?];
        let mut slots = [Slot(0); SLOTS_MAX];
        let n_slots = kernel.op.operands().len().min(SLOTS_MAX);
        for slot in &mut slots[..n_slots] {
            let [word] = self.of(ColumnId::Slots).next()?;
            *slot = slot_index(self.of(ColumnId::Slots), word, table.slots.len())?;
        }
        let bytes = params::bytes(kernel.op);
        let start = table.params.len().next_multiple_of(PARAMS_ALIGN);
        let words = self.of(ColumnId::Params).words(bytes / size_of::<u32>())?;
        table.params.resize(start, 0);
        table
            .params
            .extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let label = self.of(ColumnId::Label).index(lists.strings.len())?;
        let small = |n: usize| {
            let failed = |_| Error::new(ErrorKind::Format, format_args!("{n} exceeds 32 bits"));
            u32::try_from(n).map_err(failed)
        };
        table.cmds.push(DispatchCmd {
            kernel,
            n_slots: u8::try_from(n_slots).unwrap_or_default(),
            slots,
            params: small(start)?,
            params_bytes: small(bytes)?,
            grid: self.of(ColumnId::Grid).next()?,
            label: small(table.labels.len())?,
            place,
        });
        table.labels.push(lists.strings[label].clone());
        Ok(())
    }
}

/// Returns a word of a column as a slot of a table with this number of slots.
fn slot_index(column: &Column, word: u32, slots: usize) -> Result<Slot> {
    let limit = slots.min(usize::from(u16::MAX) + 1);
    let index = column.checked(word, limit)?;
    // Less than 2^16.
    Ok(Slot(u16::try_from(index).unwrap_or_default()))
}
