//! The table: a flat array of commands and what they refer to, plain data all through.

pub use super::kernel::KernelId;
use crate::device::ProblemSize;
use crate::dtype::DType;
use std::collections::BTreeMap;
use std::ops::Range;

/// An index into [`Table::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u16);

/// Operands of a command at most.
pub const SLOTS_MAX: usize = 8;

/// Bytes of a command's parameters at most.
pub const PARAMS_BYTES_MAX: usize = 64;

/// One launch: which kernel, on which slots, with which parameters, how wide.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DispatchCmd {
    /// The kernel.
    pub kernel: KernelId,
    /// How many of `slots` count.
    pub n_slots: u8,
    /// The operands, in the order of the list.
    pub slots: [Slot; SLOTS_MAX],
    /// Where its parameters begin in [`Table::params`].
    pub params: u32,
    /// How many bytes they are.
    pub params_bytes: u32,
    /// Workgroups in x, y and z. The CPU splits work by its own threads instead.
    pub grid: [u32; 3],
    /// Index into [`Table::labels`].
    pub label: u32,
}

const _: () = assert!(size_of::<DispatchCmd>() == 44);

impl DispatchCmd {
    /// The operands.
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..usize::from(self.n_slots)]
    }
}

/// Tokens of a sequence whose logits something is added to, at most.
pub const BIASES_MAX: u32 = 512;

/// Where the bytes of a slot live. Two slots of one place share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferId {
    /// A tensor of the model by its index, from this row on: 0, but where a device binds no more
    /// than parts of it.
    Weight(u32, u32),
    /// A tensor that loading computed: RoPE frequencies.
    Constant(u32),
    /// The keys of a layer.
    Keys(u32),
    /// The values of a layer.
    Values(u32),
    /// The pages of each sequence in them.
    Pages,
    /// The step state.
    State,
    /// The tokens by position.
    History,
    /// How each sequence picks its tokens.
    Samplers,
    /// What each sequence adds to logits, [`BIASES_MAX`] tokens of each.
    Biases,
    /// A bit for each token and sequence: whether no repetition holds it (DRY).
    Breakers,
    /// Which tokens the grammar of each sequence lets through, a bit for each.
    Masks,
    /// What each sequence was told of the probabilities of tokens.
    LogProbs,
    /// The logits of the row that the next token is picked from.
    Logits,
    /// The logits of every row of a `step` table of several.
    Scores,
    /// The rows that an `embed` table ends with.
    Hidden,
    /// Working memory, by its number in the arena.
    Scratch(u32),
}

/// What a slot is.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// Name in listings.
    pub name: String,
    /// How its numbers are stored.
    pub dtype: DType,
    /// Rows: tokens, or rows of a matrix.
    pub rows: u32,
    /// Elements of a row.
    pub cols: u32,
    /// Where it lives.
    pub place: BufferId,
}

impl SlotInfo {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        let elements = u64::from(self.rows) * u64::from(self.cols);
        self.dtype
            .bytes(elements)
            .expect("shapes are checked when a slot is made")
    }
}

/// Where a layer of the model ends.
#[derive(Clone, Copy, Debug)]
pub struct LayerEnd {
    /// The first command behind it.
    pub cmd: usize,
    /// Its result, `[tokens, dim]`.
    pub slot: Slot,
}

/// A compiled sequence of commands.
#[derive(Clone, Debug)]
pub struct Table {
    /// `step`, `batch` or `embed`.
    pub name: &'static str,
    /// Tokens that go through it at once, at most.
    pub tokens: u32,
    /// The commands.
    pub cmds: Vec<DispatchCmd>,
    /// The parameters of all commands.
    pub params: Vec<u8>,
    /// The slots that commands refer to.
    pub slots: Vec<SlotInfo>,
    /// What each command is for: the weight it reads, or its operation.
    pub labels: Vec<String>,
    /// Where each layer ends.
    pub layers: Vec<LayerEnd>,
    /// The first command of the head: with those before it, the cache is filled and nothing more.
    pub head: usize,
    /// The commands of each [`SamplingStage`], behind the body; none where it picks no tokens.
    pub tails: [Range<usize>; SamplingStage::COUNT],
}

/// How tokens are picked from logits: commands behind the body of a table, of which one set is
/// replayed. What one picks, those behind it pick too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SamplingStage {
    /// The largest.
    Greedy,
    /// A draw from what the usual samplers leave.
    Sampled,
    /// A draw from what all samplers leave, and the probabilities of tokens.
    Full,
}

impl SamplingStage {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// Every tail, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Greedy, Self::Sampled, Self::Full];

    /// Its name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Sampled => "sampled",
            Self::Full => "full",
        }
    }
}

/// What is replayed of a table: a range of its commands, and one behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cmds {
    /// The first range.
    pub body: Range<usize>,
    /// The second one; it may be empty.
    pub tail: Range<usize>,
}

impl From<Range<usize>> for Cmds {
    fn from(body: Range<usize>) -> Self {
        let tail = body.end..body.end;
        Self { body, tail }
    }
}

impl Cmds {
    /// The ranges that have commands.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + Clone + use<'_> {
        let both = [&self.body, &self.tail].into_iter();
        both.filter(|range| !range.is_empty()).cloned()
    }
}

impl Table {
    /// The parameters of a command.
    pub fn params(&self, cmd: &DispatchCmd) -> &[u8] {
        let start = cmd.params as usize;
        &self.params[start..start + cmd.params_bytes as usize]
    }

    /// The commands in front of its tails.
    pub fn body(&self) -> Range<usize> {
        let tails = self.tails.iter().filter(|tail| !tail.is_empty());
        0..tails
            .map(|tail| tail.start)
            .min()
            .unwrap_or(self.cmds.len())
    }

    /// The tail that a command belongs to.
    pub fn tail_of(&self, at: usize) -> Option<SamplingStage> {
        let tails = SamplingStage::ALL.into_iter().zip(&self.tails);
        tails
            .into_iter()
            .find(|(_, range)| range.contains(&at))
            .map(|(tail, _)| tail)
    }

    /// A whole pass that picks tokens, in one range where that can be.
    pub fn pass(&self, tail: SamplingStage) -> Cmds {
        let (body, tail) = (self.body(), self.tails[tail as usize].clone());
        if tail.start == body.end {
            return (body.start..tail.end).into();
        }
        Cmds { body, tail }
    }

    /// What a slot is.
    pub fn slot(&self, slot: Slot) -> &SlotInfo {
        &self.slots[usize::from(slot.0)]
    }

    /// What a command with these operands works on.
    pub fn extent(&self, slots: &[Slot]) -> ProblemSize {
        let is_weight = |info: &&SlotInfo| matches!(info.place, BufferId::Weight(..));
        let infos = || slots.iter().map(|slot| self.slot(*slot));
        let x = infos().find(|info| !is_weight(info));
        let weight = infos().find(is_weight).map(|w| [w.rows, w.cols]);
        ProblemSize {
            shape: weight.unwrap_or([1, x.map_or(0, |x| x.cols)]),
            many: x.is_some_and(|x| x.rows > 1),
        }
    }

    /// The layer that a command belongs to, with what comes before the first one; `None` behind the
    /// last.
    pub fn layer_of(&self, at: usize) -> Option<usize> {
        self.layers.iter().position(|layer| at < layer.cmd)
    }

    /// Bytes of working memory that its scratch places need.
    pub fn arena_bytes(&self) -> u64 {
        let places = places(std::slice::from_ref(self)).into_values();
        let scratch = places.filter(|slot| matches!(slot.place, BufferId::Scratch(_)));
        scratch.map(SlotInfo::bytes).sum()
    }
}

/// The places that commands of tables touch, which share them, each with the largest of its slots.
pub fn places(tables: &[Table]) -> BTreeMap<BufferId, &SlotInfo> {
    let mut places: BTreeMap<BufferId, &SlotInfo> = BTreeMap::new();
    for table in tables {
        for slot in table.cmds.iter().flat_map(DispatchCmd::slots) {
            let slot = table.slot(*slot);
            let largest = places.entry(slot.place).or_insert(slot);
            if slot.bytes() > largest.bytes() {
                *largest = slot;
            }
        }
    }
    places
}
