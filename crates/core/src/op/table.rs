//! Tables: flat arrays of commands with their parameters and slots, as plain data.

pub use super::kernel::KernelId;
use super::list::Op;
use crate::device::ProblemSize;
use crate::dtype::DType;
use std::collections::BTreeMap;
use std::ops::Range;

/// Index into [`Table::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u16);

/// Maximum number of tokens of a decode batch, with one token per sequence. Tables with at most this
/// number of tokens use kernels with nearly the rounding of those for one token, so that batching
/// hardly changes logits on a GPU; on a CPU the bits are the same.
pub const FEW_TOKENS: u32 = 32;

/// Maximum number of operands of a command.
pub const SLOTS_MAX: usize = 8;

/// Maximum size of the parameters of a command in bytes.
pub const PARAMS_BYTES_MAX: usize = 64;

/// Alignment of the parameters of a command in bytes.
pub const PARAMS_ALIGN: usize = 16;

/// Device that runs a command of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The device of the model.
    #[default]
    Device,
    /// The CPU, while the model is on a GPU. A table without such commands runs on one device.
    Host,
}

impl Place {
    /// Returns the other place.
    pub fn other(self) -> Self {
        match self {
            Self::Device => Self::Host,
            Self::Host => Self::Device,
        }
    }
}

/// A kernel launch: kernel, operands, parameters and grid.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DispatchCmd {
    /// Kernel to run.
    pub kernel: KernelId,
    /// Number of operands in `slots`.
    pub n_slots: u8,
    /// Operands, in the order of the list of operations.
    pub slots: [Slot; SLOTS_MAX],
    /// Byte offset of the parameters in [`Table::params`].
    pub params: u32,
    /// Size of the parameters in bytes.
    pub params_bytes: u32,
    /// Number of workgroups in x, y and z. Unused on the CPU, which distributes work over threads.
    pub grid: [u32; 3],
    /// Index into [`Table::labels`].
    pub label: u32,
    /// Where it runs. [`Op::Transfer`] reads its input from the memory of the other place.
    pub place: Place,
}

const _: () = assert!(size_of::<DispatchCmd>() == 48);

impl DispatchCmd {
    /// Returns the operands.
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..usize::from(self.n_slots)]
    }

    /// Returns the place of the memory that it reads.
    pub fn reads_from(&self) -> Place {
        match self.kernel.op {
            Op::Transfer => self.place.other(),
            _ => self.place,
        }
    }
}

/// Maximum number of tokens with a logit bias per sequence.
pub const BIASES_MAX: u32 = 512;

/// Buffer that backs a slot. Slots with the same buffer share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferId {
    /// Model tensor by index, and its first row: 0 unless the tensor is split because of the
    /// device's binding limit.
    Weight(u32, u32),
    /// Tensor computed at load time, such as RoPE frequencies.
    Constant(u32),
    /// Key cache of a layer.
    Keys(u32),
    /// Value cache of a layer.
    Values(u32),
    /// Last inputs of the convolution of a recurrent layer, one row per state.
    ConvState(u32),
    /// State of a recurrent layer, one row per state.
    RecurrentState(u32),
    /// Page tables of the KV cache and of the states, one row per sequence.
    Pages,
    /// Step state.
    State,
    /// Tokens of each sequence by position.
    History,
    /// Sampler parameters of each sequence.
    Samplers,
    /// Logit biases, up to [`BIASES_MAX`] per sequence.
    Biases,
    /// DRY sequence breakers: one bit per token and sequence.
    Breakers,
    /// Tokens that the grammar of each sequence allows: one bit per token.
    Masks,
    /// Log-probabilities of tokens, per sequence.
    Logprobs,
    /// Logits of the row that the next token is sampled from.
    Logits,
    /// Logits of all rows of a table with several rows.
    Scores,
    /// Output rows of an `embed` table.
    Hidden,
    /// Log-mel spectrogram of a speech model.
    Mel,
    /// Attention scores that align tokens with audio.
    Alignment,
    /// Captured values of a pass, `[tokens, width]`, by the number of the hooks.
    Captured(u32),
    /// Scales of the adapters of each sequence, `[sequences, adapters]`, by the number of the
    /// hooks.
    AdapterScales(u32),
    /// Residual stream from which a `lens` table computes logits, `[tokens, dim]`, by the number of the
    /// hooks.
    Residual(u32),
    /// Logits of a `lens` table, by the number of the hooks.
    LensLogits(u32),
    /// Activations that a transfer copies from one device to the other or back, by the number of elements
    /// of a row and a number.
    Transferred(u32, u32),
    /// Scratch buffer, by its number in the arena.
    Scratch(u32),
}

/// Description of a slot.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// Name in listings.
    pub name: String,
    /// Storage type.
    pub dtype: DType,
    /// Number of rows: tokens, or rows of a matrix.
    pub rows: u32,
    /// Number of elements per row.
    pub cols: u32,
    /// Buffer that backs the slot.
    pub buffer: BufferId,
}

impl SlotInfo {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        let elements = u64::from(self.rows) * u64::from(self.cols);
        self.dtype
            .bytes(elements)
            .expect("shapes are checked when a slot is created")
    }
}

/// End of a model layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerEnd {
    /// Index of the first command after the layer.
    pub cmd: usize,
    /// Output of the layer, `[tokens, dim]`.
    pub slot: Slot,
}

/// Compiled sequence of commands.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name: `step`, `batch` or `embed`.
    pub name: &'static str,
    /// Maximum number of tokens per pass.
    pub tokens: u32,
    /// Commands in order of execution.
    pub cmds: Vec<DispatchCmd>,
    /// Parameters of all commands.
    pub params: Vec<u8>,
    /// Slots that commands refer to.
    pub slots: Vec<SlotInfo>,
    /// Label of each command: the name of its weight, or of its operation.
    pub labels: Vec<String>,
    /// Ends of the layers.
    pub layers: Vec<LayerEnd>,
    /// Index of the first command of the output projection; the commands before it fill the KV
    /// cache.
    pub head: usize,
    /// Commands of each [`SamplingStage`], after the body; empty if the table does not sample.
    pub stages: [Range<usize>; SamplingStage::COUNT],
}

/// Commands that sample tokens from logits, after the body of a table. A pass replays one stage.
/// Each stage supports all parameters of the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SamplingStage {
    /// Largest logit.
    Greedy,
    /// Random sampling with the common samplers.
    Sampled,
    /// Random sampling with all samplers, and log-probabilities.
    Full,
}

impl SamplingStage {
    /// Number of stages.
    pub const COUNT: usize = Self::ALL.len();
    /// All stages, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Greedy, Self::Sampled, Self::Full];

    /// Returns the name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Sampled => "sampled",
            Self::Full => "full",
        }
    }
}

/// Commands of a table to replay: two ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cmds {
    /// First range.
    pub body: Range<usize>,
    /// Second range; may be empty.
    pub stage: Range<usize>,
}

impl From<Range<usize>> for Cmds {
    fn from(body: Range<usize>) -> Self {
        let stage = body.end..body.end;
        Self { body, stage }
    }
}

impl Cmds {
    /// Returns the non-empty ranges.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + Clone + use<'_> {
        let both = [&self.body, &self.stage].into_iter();
        both.filter(|range| !range.is_empty()).cloned()
    }
}

impl Table {
    /// Returns the parameters of a command.
    pub fn params(&self, cmd: &DispatchCmd) -> &[u8] {
        let start = cmd.params as usize;
        &self.params[start..start + cmd.params_bytes as usize]
    }

    /// Returns the commands before the sampling stages.
    pub fn body(&self) -> Range<usize> {
        let stages = self.stages.iter().filter(|stage| !stage.is_empty());
        0..stages
            .map(|stage| stage.start)
            .min()
            .unwrap_or(self.cmds.len())
    }

    /// Returns the sampling stage of a command.
    pub fn stage_of(&self, at: usize) -> Option<SamplingStage> {
        let stages = SamplingStage::ALL.into_iter().zip(&self.stages);
        stages
            .into_iter()
            .find(|(_, range)| range.contains(&at))
            .map(|(stage, _)| stage)
    }

    /// Returns the commands of a pass with a sampling stage, as one range if they are contiguous.
    pub fn pass(&self, stage: SamplingStage) -> Cmds {
        let (body, stage) = (self.body(), self.stages[stage as usize].clone());
        if stage.start == body.end {
            return (body.start..stage.end).into();
        }
        Cmds { body, stage }
    }

    /// Description of a slot.
    pub fn slot(&self, slot: Slot) -> &SlotInfo {
        &self.slots[usize::from(slot.0)]
    }

    /// Returns the problem size of a command with these operands.
    pub fn extent(&self, slots: &[Slot]) -> ProblemSize {
        extent(&self.slots, slots)
    }

    /// Returns the layer of a command; commands before the first layer belong to it. `None` after
    /// the last layer.
    pub fn layer_of(&self, at: usize) -> Option<usize> {
        self.layers.iter().position(|layer| at < layer.cmd)
    }

    /// Returns the size of all scratch buffers in bytes.
    pub fn arena_bytes(&self) -> u64 {
        let buffers = buffers(std::slice::from_ref(self)).into_values();
        let scratch = buffers.filter(|slot| matches!(slot.buffer, BufferId::Scratch(_)));
        scratch.map(SlotInfo::bytes).sum()
    }
}

/// Returns the problem size of a command with these operands among all slots.
pub fn extent(all: &[SlotInfo], slots: &[Slot]) -> ProblemSize {
    let is_weight = |info: &&SlotInfo| matches!(info.buffer, BufferId::Weight(..));
    let infos = || slots.iter().map(|slot| &all[usize::from(slot.0)]);
    let x = infos().find(|info| !is_weight(info));
    let weight = infos().find(is_weight).map(|w| [w.rows, w.cols]);
    ProblemSize {
        shape: weight.unwrap_or([1, x.map_or(0, |x| x.cols)]),
        multiple_tokens: x.is_some_and(|x| x.rows > 1),
    }
}

/// Returns the buffers that the commands of these tables use, each with its largest slot.
pub fn buffers(tables: &[Table]) -> BTreeMap<BufferId, &SlotInfo> {
    let mut buffers: BTreeMap<BufferId, &SlotInfo> = BTreeMap::new();
    for table in tables {
        for slot in table.cmds.iter().flat_map(DispatchCmd::slots) {
            let slot = table.slot(*slot);
            let largest = buffers.entry(slot.buffer).or_insert(slot);
            if slot.bytes() > largest.bytes() {
                *largest = slot;
            }
        }
    }
    buffers
}
