//! Checks of tables of a file, whose bytes may be anything.
//!
//! A command of a table that passes [`check`] reads and writes only its own buffers, whatever its parameters are:
//!
//! - Indices of kernels, slots and names, and sizes of parameters are checked by [`read`](super::tables::read).
//! - A buffer has the size of its largest slot. Weights and constants are read-only, and their slots have the shapes
//!   of the tensors. No command writes a buffer that it also has as another operand.
//! - On a CPU, kernels get their operands as slices. An index out of range panics in the kernel; the thread pool
//!   catches the panic and the run fails. The few sizes that are computed while linking are checked there: working
//!   memory of kernels, and the number of units, which the threads divide among each other.
//! - On a GPU, every index into a buffer is restricted to the buffer, by the shader or by the device
//!   (`robustBufferAccess2`). The only accesses without an index are stores of whole tiles by cooperative matrices:
//!   [`verify`] checks that the rows and tokens of the product are within its output.
//! - [`verify`] limits parameters to ranges in which counters of loops do not overflow. A wrong parameter can still make
//!   a command slow; the driver of a GPU then resets the device, which is an error.
//! - The host relies on the step state, on histories, and on sampled tokens. They are written only by the operations
//!   that maintain them, once per stage, from the results of an argmax over the vocabulary.
//!
//! What a table computes is not checked: that needs the digest of the file.

use crate::device::{DeviceKind, Profile};
use crate::dtype::DType;
use crate::error::{Context, Error, ErrorKind, Result, bail};
use crate::load::CACHE_TYPES;
use crate::model::TableId;
use crate::op::list::{Access, Op};
use crate::op::operands::{advance, argmax_join};
use crate::op::pages::Pages;
use crate::op::params::{Bias, Logprobs, PAGE, Row, Sampler, State};
use crate::op::table::{BIASES_MAX, BufferId, DispatchCmd, SamplingStage, SlotInfo, Table};
use crate::plan::builder::WeightInfo;
use crate::plan::operands::parameter;
use crate::plan::verify;
use std::collections::BTreeMap;

/// What the tables of a file must fit: the rest of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    /// Name and number of tokens of each table, in order.
    pub tables: &'a [(TableId, u32)],
    /// Weights by index.
    pub weights: &'a [WeightInfo],
    /// Sizes of the constants in bytes, by index.
    pub constants: &'a [u64],
    /// Layout of the KV cache.
    pub pages: Pages,
    /// Number of rows of the page table: sequences, or beams of all recordings.
    pub sequences: u32,
    /// Positions per sequence.
    pub context: u32,
    /// Number of tokens in the vocabulary.
    pub vocab: u32,
}

/// Returns the error of a table of a file: what is a planning error in tables of a plan is a damaged file.
pub(crate) fn of_file(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Internal => Error::new(ErrorKind::Format, error.message()),
        _ => error,
    }
}

/// Checks tables that were read from a file.
///
/// # Errors
///
/// `Format` for a table that does not fit the rest of the model or is not valid, `TooLarge` if a device limit is
/// exceeded. The message names the table, and the command or the slot.
pub(super) fn check(tables: &[Table], expected: &Expected<'_>, profile: &Profile) -> Result<()> {
    let found = tables.iter().map(|table| (table.name, table.tokens));
    let wanted = expected.tables.iter();
    let wanted = wanted.map(|(id, tokens)| (id.name(), *tokens));
    if !found.clone().eq(wanted.clone()) {
        let [wanted, found] = [wanted.collect::<Vec<_>>(), found.collect()];
        bail!(Format, "expected the tables {wanted:?}, got {found:?}");
    }
    let mut paged = BTreeMap::new();
    for table in tables {
        let name = table.name;
        check_memory(table, expected).context(format_args!("table {name}"))?;
        for slot in &table.slots {
            let checked = check_slot(slot, table, expected, profile);
            let checked = checked.and_then(|()| check_pages(slot, &mut paged));
            checked.context(format_args!("table {name}: slot {}", slot.name))?;
        }
        verify::check(table, profile).map_err(of_file)?;
        check_stages(table, expected).context(format_args!("table {name}"))?;
    }
    Ok(())
}

/// Maximum memory of the activations of a table, in rows of the largest dimension of the model per token.
const ROWS_MAX: u64 = 64;

/// Maximum memory of the rows of a cache or of a recurrent state, in rows of the largest dimension of the model.
const CACHE_ROWS_MAX: u64 = 1024;

/// Checks that activations and rows of caches are not larger than tensors of a model of this size have them.
fn check_memory(table: &Table, expected: &Expected<'_>) -> Result<()> {
    use BufferId::{Alignment, ConvState, Hidden, Keys, Mel, RecurrentState, Scratch};
    use BufferId::{Transferred, Values};
    let weights = expected.weights.iter();
    let dims = weights.flat_map(|weight| [weight.rows, weight.cols]);
    let largest = dims.chain([expected.vocab, 1024]).max().unwrap_or(0);
    let row = u64::from(largest) * size_of::<f32>() as u64;
    let all = (row * ROWS_MAX).saturating_mul(table.tokens.into());
    for slot in &table.slots {
        let (bytes, limit) = match slot.buffer {
            Keys(_) | Values(_) | ConvState(_) | RecurrentState(_) => {
                let of_row = slot.bytes() / u64::from(slot.rows.max(1));
                (of_row, row * CACHE_ROWS_MAX)
            }
            Scratch(_) | Transferred(..) | Hidden | Alignment | Mel => (slot.bytes(), all),
            // They have the shapes of the model.
            _ => continue,
        };
        if bytes > limit {
            let name = &slot.name;
            bail!(
                Format,
                "slot {name}: {bytes} bytes exceed the limit of {limit}"
            );
        }
    }
    let scratch = table.arena_bytes();
    if scratch > all {
        bail!(
            Format,
            "activations of {scratch} bytes exceed the limit of {all}"
        );
    }
    Ok(())
}

/// Checks the storage type and shape of a slot.
fn check_slot(
    slot: &SlotInfo,
    table: &Table,
    expected: &Expected<'_>,
    profile: &Profile,
) -> Result<()> {
    let shape = [slot.rows, slot.cols];
    let wanted = match slot.buffer {
        BufferId::Weight(index, first) => {
            return check_weight(slot, [index, first], expected, profile);
        }
        BufferId::Constant(index) => {
            let bytes = usize::try_from(index)
                .ok()
                .and_then(|index| expected.constants.get(index));
            return match bytes {
                Some(bytes) if slot.bytes() <= *bytes => Ok(()),
                _ => bail!(Format, "no constant {index} of {} bytes", slot.bytes()),
            };
        }
        BufferId::Keys(_) | BufferId::Values(_) => {
            let Pages {
                whole_pool,
                ringed_pool,
                ..
            } = expected.pages;
            let pools = [whole_pool, ringed_pool];
            let mut rows = pools.into_iter().map(|pool| pool.saturating_mul(PAGE));
            let fits = CACHE_TYPES.contains(&slot.dtype) && rows.any(|rows| rows == slot.rows);
            return match fits {
                true => Ok(()),
                false => bail!(
                    Format,
                    "{shape:?} of {} is no KV cache of {pools:?} pages",
                    slot.dtype
                ),
            };
        }
        buffer => buffer_shape(buffer, shape, table.tokens, expected),
    };
    match wanted {
        Some((dtype, wanted)) if (dtype, wanted) != (slot.dtype, shape) => bail!(
            Format,
            "expected the shape {wanted:?} of {dtype}, got {shape:?} of {}",
            slot.dtype
        ),
        _ => Ok(()),
    }
}

/// Returns the storage type and the shape that a buffer of the host must have; `None` for other buffers. `cols` is kept
/// where the tables define it.
fn buffer_shape(
    buffer: BufferId,
    [_, cols]: [u32; 2],
    tokens: u32,
    expected: &Expected<'_>,
) -> Option<(DType, [u32; 2])> {
    let Expected {
        pages,
        sequences,
        context,
        vocab,
        ..
    } = *expected;
    let bits = vocab.div_ceil(u32::BITS);
    let state = words::<Row>()
        .saturating_mul(tokens)
        .saturating_add(words::<State>());
    let (dtype, shape) = match buffer {
        BufferId::State => (DType::U32, [1, state]),
        BufferId::Pages => (DType::U32, [sequences, pages.stride()]),
        BufferId::History => (DType::U32, [sequences, context]),
        BufferId::Samplers => (DType::U32, [sequences, words::<Sampler>()]),
        BufferId::Biases => (DType::U32, [sequences, BIASES_MAX * words::<Bias>()]),
        BufferId::Breakers | BufferId::Masks => (DType::U32, [sequences, bits]),
        BufferId::Logprobs => (DType::U32, [sequences, words::<Logprobs>()]),
        BufferId::ConvState(_) | BufferId::RecurrentState(_) => {
            (DType::F32, [pages.states_pool, cols])
        }
        BufferId::Logits => (DType::F32, [1, vocab]),
        BufferId::Scores => (DType::F32, [tokens, vocab]),
        BufferId::Mel => (DType::F32, [tokens, cols]),
        _ => return None,
    };
    Some((dtype, shape))
}

/// Returns the number of words of a struct.
fn words<T>() -> u32 {
    u32::try_from(size_of::<T>() / size_of::<u32>()).unwrap_or(u32::MAX)
}

/// Checks the slot of a weight, or of its rows from `first` on.
fn check_weight(
    slot: &SlotInfo,
    [index, first]: [u32; 2],
    expected: &Expected<'_>,
    profile: &Profile,
) -> Result<()> {
    let weight = usize::try_from(index)
        .ok()
        .and_then(|index| expected.weights.get(index));
    let Some(weight) = weight else {
        bail!(
            Format,
            "weight {index} does not exist, the model has {}",
            expected.weights.len()
        );
    };
    let end = first.checked_add(slot.rows);
    let rows_fit = match profile.kind {
        // A CPU reads whole weights.
        DeviceKind::Cpu => (first, slot.rows) == (0, weight.rows),
        DeviceKind::Gpu => end.is_some_and(|end| end <= weight.rows),
    };
    if !rows_fit || (slot.dtype, slot.cols) != (weight.dtype, weight.cols) {
        bail!(
            Format,
            "expected the weight {index} of shape [{}, {}] in {}, got rows {first} to {end:?} of {} columns in {}",
            weight.rows,
            weight.cols,
            weight.dtype,
            slot.cols,
            slot.dtype
        );
    }
    Ok(())
}

/// Checks that all tables have the same rows in a page of a cache.
fn check_pages(slot: &SlotInfo, paged: &mut BTreeMap<BufferId, (DType, u32, u32)>) -> Result<()> {
    use BufferId::{ConvState, Keys, RecurrentState, Values};
    if !matches!(
        slot.buffer,
        Keys(_) | Values(_) | ConvState(_) | RecurrentState(_)
    ) {
        return Ok(());
    }
    let own = (slot.dtype, slot.rows, slot.cols);
    let known = *paged.entry(slot.buffer).or_insert(own);
    match known == own {
        true => Ok(()),
        false => bail!(
            Format,
            "tables disagree about {:?}: {known:?} and {own:?}",
            slot.buffer
        ),
    }
}

/// Checks that the stages of a table sample a token of the vocabulary for each row and advance each row once.
fn check_stages(table: &Table, expected: &Expected<'_>) -> Result<()> {
    let samples = [TableId::Step, TableId::Draft]
        .iter()
        .any(|id| id.name() == table.name);
    let is_speech = table
        .cmds
        .iter()
        .any(|cmd| cmd.kernel.op == Op::SpeechFilter);
    for (at, cmd) in table.cmds.iter().enumerate() {
        let vocab = parameter(table, cmd, "vocab");
        if vocab.is_some_and(|vocab| vocab != expected.vocab) {
            bail!(
                Format,
                "command {at}: expected {} tokens, got {vocab:?}",
                expected.vocab
            );
        }
        let ends_stage = table
            .stages
            .iter()
            .any(|stage| stage.end == at + 1 && !stage.is_empty());
        if (cmd.kernel.op == Op::Advance) != ends_stage {
            bail!(
                Format,
                "command {at}: {} ends stages, and nothing else",
                Op::Advance.name()
            );
        }
    }
    for (stage, range) in SamplingStage::ALL.into_iter().zip(&table.stages) {
        let Some((last, cmds)) = table.cmds.get(range.clone()).and_then(<[_]>::split_last) else {
            if samples && !(is_speech && stage == SamplingStage::Full) {
                bail!(Format, "no commands of the stage {}", stage.name());
            }
            continue;
        };
        if parameter(table, last, "tokens") != Some(table.tokens)
            || !samples_tokens(table, cmds, last)
        {
            bail!(
                Format,
                "stage {}: expected a token of an argmax for each row",
                stage.name()
            );
        }
    }
    Ok(())
}

/// Returns whether the ids that `advance` stores are the result of an argmax among `cmds`.
fn samples_tokens(table: &Table, cmds: &[DispatchCmd], advance: &DispatchCmd) -> bool {
    let buffer = |cmd: &DispatchCmd, at: usize| table.slot(cmd.slots()[at]).buffer;
    let writer = |written: BufferId, before: usize| {
        let writes = |cmd: &DispatchCmd| {
            let operands = cmd.kernel.op.operands().iter().enumerate();
            operands
                .into_iter()
                .any(|(at, operand)| operand.access != Access::Read && buffer(cmd, at) == written)
        };
        cmds[..before].iter().rposition(writes)
    };
    let Some(at) = writer(buffer(advance, advance::AT.ids), cmds.len()) else {
        return false;
    };
    let tokens = |cmd: &DispatchCmd| parameter(table, cmd, "tokens") == Some(table.tokens);
    match cmds[at].kernel.op {
        Op::Argmax => tokens(&cmds[at]),
        Op::ArgmaxJoin => {
            let join = &cmds[at];
            let parts = writer(buffer(join, argmax_join::AT.parts), at).map(|at| &cmds[at]);
            let count = |cmd: &DispatchCmd| parameter(table, cmd, "parts");
            let is_same = |part: &DispatchCmd| tokens(part) && count(part) == count(join);
            let is_part = |part: &DispatchCmd| part.kernel.op == Op::ArgmaxPart && is_same(part);
            tokens(join) && parts.is_some_and(is_part)
        }
        _ => false,
    }
}
