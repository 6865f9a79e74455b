//! Checks of the operands and parameters of a command, which also hold for tables of a file.

use crate::builder::{SSM_KEY_MAX, TAPS_MAX};
use tabla_core::device::Profile;
use tabla_core::error::{Result, bail};
use tabla_core::op::fields::fields;
use tabla_core::op::functions::EXPERTS_MAX;
use tabla_core::op::list::{Op, Operand};
use tabla_core::op::operands::{WEIGHT, gemm, gemm_add, group_by_expert};
use tabla_core::op::params;
use tabla_core::op::table::{BufferId, DispatchCmd, Place, SlotInfo, Table};

/// Maximum of a parameter. Sums of two, and counters with the largest stride of a kernel, fit 32 bits.
const PARAMETER_MAX: u32 = 1 << 28;

/// Parameters that kernels divide by.
const DIVISORS: [&str; 4] = ["kv_heads", "part", "ring", "tile"];

/// Checks the operands and parameters of a command.
pub(super) fn check(table: &Table, cmd: &DispatchCmd, profile: &Profile) -> Result<()> {
    check_place(cmd, profile)?;
    for (operand, slot) in cmd.kernel.op.operands().iter().zip(cmd.slots()) {
        check_role(*operand, table.slot(*slot))?;
    }
    let weight = weight(table, cmd);
    if let (Some(weight), Some(dtype)) = (weight, cmd.kernel.dtype)
        && weight.dtype != dtype
    {
        bail!(
            Internal,
            "{}: expected the storage type {dtype} of the kernel, got {}",
            weight.name,
            weight.dtype
        );
    }
    check_params(table, cmd, weight)?;
    check_heads(table, cmd)?;
    check_matrix_stores(table, cmd)?;
    check_groups(table, cmd)
}

/// Checks that the device runs commands of this place and variant.
fn check_place(cmd: &DispatchCmd, profile: &Profile) -> Result<()> {
    let runs = match (cmd.place, cmd.kernel.variant) {
        (Place::Host, variant) => variant.is_none() && profile.host_experts.is_some(),
        (Place::Device, Some(variant)) => profile.variants.contains(&variant),
        (Place::Device, None) => true,
    };
    match runs {
        true => Ok(()),
        false => bail!(
            Unsupported,
            "the device does not run {}: no such kernel variant, or no experts on the CPU",
            cmd.name()
        ),
    }
}

/// Returns whether a buffer is that of an operand with this name; `None` for operands of any buffer.
fn has_role(name: &str, buffer: BufferId) -> Option<bool> {
    Some(match name {
        "state" => buffer == BufferId::State,
        "pages" => buffer == BufferId::Pages,
        "history" => buffer == BufferId::History,
        "samplers" => buffer == BufferId::Samplers,
        "biases" => buffer == BufferId::Biases,
        "breakers" => buffer == BufferId::Breakers,
        "masks" => buffer == BufferId::Masks,
        "logprobs" => buffer == BufferId::Logprobs,
        "k_cache" => matches!(buffer, BufferId::Keys(_)),
        // Latent attention has one cache for both.
        "v_cache" => matches!(buffer, BufferId::Keys(_) | BufferId::Values(_)),
        "conv_state" => matches!(buffer, BufferId::ConvState(_)),
        "recurrent_state" => matches!(buffer, BufferId::RecurrentState(_)),
        _ => return None,
    })
}

/// Returns whether the host relies on the content of a buffer, or on the pages of its rows.
fn is_structured(buffer: BufferId) -> bool {
    use BufferId::{Biases, Breakers, ConvState, History, Keys, Logprobs, Masks, Pages, Values};
    use BufferId::{RecurrentState, Samplers, State};
    let is_paged = matches!(
        buffer,
        Keys(_) | Values(_) | ConvState(_) | RecurrentState(_)
    );
    let is_of_host = matches!(
        buffer,
        Pages | State | History | Samplers | Biases | Breakers | Masks | Logprobs
    );
    is_paged || is_of_host
}

/// Checks that buffers whose content the host relies on, such as the step state, are used only as the operands of
/// their names: so only the operations that maintain them write them.
fn check_role(operand: Operand, info: &SlotInfo) -> Result<()> {
    let fits = has_role(operand.name, info.buffer);
    match fits.unwrap_or(!is_structured(info.buffer)) {
        true => Ok(()),
        false => bail!(
            Internal,
            "{}: the buffer {:?} cannot be the operand {}",
            info.name,
            info.buffer,
            operand.name
        ),
    }
}

/// Returns the matrix of a command whose first operand is one.
fn weight<'a>(table: &'a Table, cmd: &DispatchCmd) -> Option<&'a SlotInfo> {
    let info = table.slot(*cmd.slots().get(WEIGHT)?);
    let is_weight = matches!(info.buffer, BufferId::Weight(..));
    (is_weight && cmd.kernel.op.operands()[WEIGHT].name == "w").then_some(info)
}

/// Checks the ranges of the integer parameters. The matrix of a product has the rows and columns of its parameters.
fn check_params(table: &Table, cmd: &DispatchCmd, weight: Option<&SlotInfo>) -> Result<()> {
    let words = table.params(cmd).as_chunks().0;
    let cols = |operand: usize| table.slot(cmd.slots()[operand]).cols;
    for (field, word) in fields(cmd.kernel.op).iter().zip(words) {
        let value = u32::from_le_bytes(*word);
        let range = match (field.name.as_str(), weight) {
            _ if field.is_float => continue,
            // Only compared with positions; the largest number is no limit.
            ("end" | "reach", _) => continue,
            ("tokens", _) => 1..=table.tokens,
            ("rows", Some(weight)) => weight.rows..=weight.rows,
            ("cols", Some(weight)) => weight.cols..=weight.cols,
            ("channels", _) => cols(0)..=cols(0),
            ("experts", _) => 1..=EXPERTS_MAX,
            ("key_dim", _) => 1..=SSM_KEY_MAX,
            ("taps", _) => 1..=TAPS_MAX,
            // Kernels read four columns at a time.
            ("head_dim", _) => 4..=PARAMETER_MAX,
            (name, _) if DIVISORS.contains(&name) => 1..=PARAMETER_MAX,
            _ => 0..=PARAMETER_MAX,
        };
        if !range.contains(&value) {
            bail!(
                Internal,
                "parameter {}: expected {} to {}, got {value}",
                field.name,
                range.start(),
                range.end()
            );
        }
    }
    Ok(())
}

/// Returns a parameter of a command by its name.
pub fn parameter(table: &Table, cmd: &DispatchCmd, name: &str) -> Option<u32> {
    let at = fields(cmd.kernel.op)
        .iter()
        .position(|field| field.name == name)?;
    let word = table.params(cmd).as_chunks().0.get(at)?;
    Some(u32::from_le_bytes(*word))
}

/// Checks that all heads are columns of the queries, or of the results of a recurrence.
fn check_heads(table: &Table, cmd: &DispatchCmd) -> Result<()> {
    let heads = parameter(table, cmd, "heads").unwrap_or(0);
    for (name, dim) in [("q", "head_dim"), ("y", "value_dim")] {
        let mut operands = cmd.kernel.op.operands().iter();
        let at = operands.position(|operand| operand.name == name);
        let (Some(at), Some(dim)) = (at, parameter(table, cmd, dim)) else {
            continue;
        };
        let slot = table.slot(cmd.slots()[at]);
        if u64::from(heads) * u64::from(dim) > slot.cols.into() {
            bail!(
                Internal,
                "{}: {heads} heads of {dim} columns exceed its {} columns",
                slot.name,
                slot.cols
            );
        }
    }
    Ok(())
}

/// Checks that the results of a product are within its output. Kernels with cooperative matrices store whole tiles
/// without further checks.
fn check_matrix_stores(table: &Table, cmd: &DispatchCmd) -> Result<()> {
    const { assert!(gemm::AT.y == gemm_add::AT.y) };
    if !matches!(cmd.kernel.op, Op::Gemm | Op::GemmAdd) {
        return Ok(());
    }
    let p: params::gemm::Params = bytemuck::pod_read_unaligned(table.params(cmd));
    let y = table.slot(cmd.slots()[gemm::AT.y]);
    let [stored, all] = [[p.tokens, p.width], [y.rows, y.cols]]
        .map(|[rows, cols]| u64::from(rows) * u64::from(cols));
    if u64::from(p.first) + u64::from(p.rows) > u64::from(p.width) || stored > all {
        bail!(
            Internal,
            "{}: rows {} from {} on, of {} rows of {} tokens, exceed its shape [{}, {}]",
            y.name,
            p.rows,
            p.first,
            p.width,
            p.tokens,
            y.rows,
            y.cols
        );
    }
    Ok(())
}

/// Checks that the tiles of pairs of token and expert are as many as the pairs can fill, and within their buffer.
fn check_groups(table: &Table, cmd: &DispatchCmd) -> Result<()> {
    if cmd.kernel.op != Op::GroupByExpert {
        return Ok(());
    }
    let p: params::group_by_expert::Params = bytemuck::pod_read_unaligned(table.params(cmd));
    let tiles = table.slot(cmd.slots()[group_by_expert::AT.tiles]);
    let pairs = u64::from(p.tokens) * u64::from(p.k);
    let filled = pairs.min(pairs / u64::from(p.tile.max(1)) + u64::from(p.experts) + 1);
    let [count, words] = [p.count, p.tile].map(u64::from);
    let all = u64::from(tiles.rows) * u64::from(tiles.cols);
    if count < filled || count * (2 + words) > all {
        bail!(
            Internal,
            "{}: {count} tiles of {words} pairs, expected at least {filled} in {all} words",
            tiles.name
        );
    }
    Ok(())
}
