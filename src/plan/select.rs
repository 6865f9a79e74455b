//! Operation and storage type become a kernel; its tile and the work become a grid.

use crate::device::{Form, Profile};
use crate::error::{Result, bail};
use crate::op::builder::{Draft, Node};
use crate::op::list::Op;
use crate::op::shaders::{SHADERS, attention};
use crate::op::table::{DispatchCmd, KernelId, SLOTS_MAX, Slot, Table};

/// Parameters begin at multiples of this many bytes.
const PARAMS_ALIGN: usize = 16;

pub(super) fn select(draft: Draft, profile: &Profile) -> Result<Table> {
    let mut table = Table {
        name: draft.name,
        tokens: draft.tokens,
        cmds: Vec::with_capacity(draft.nodes.len()),
        params: Vec::new(),
        slots: draft.slots,
        labels: Vec::with_capacity(draft.nodes.len()),
        layers: draft.layers,
        head: draft.head,
        pick: draft.pick,
    };
    for node in draft.nodes {
        let cmd = command(&node, &mut table, profile)?;
        table.cmds.push(cmd);
        table.labels.push(node.label);
    }
    Ok(table)
}

/// Tokens that are no prompt but one of each of several sequences: their products stay as near to
/// those of one token as they can, so that a sequence picks the same tokens in company as alone.
const FEW_TOKENS: u32 = 16;

/// Whether a form is made for the shape of a command.
fn suits(form: Form, node: &Node) -> bool {
    match (form, node.op) {
        (Form::Tile, Op::Attention) => {
            let p: attention::Params = bytemuck::pod_read_unaligned(&node.params);
            p.tokens > 1 && p.head_dim.is_multiple_of(8) && p.head_dim <= 512
        }
        (Form::Matrix8 | Form::Matrix16, _) => node.work[1] > FEW_TOKENS,
        _ => true,
    }
}

fn command(node: &Node, table: &mut Table, profile: &Profile) -> Result<DispatchCmd> {
    let forms = profile.forms.iter().filter(|form| suits(**form, node));
    let forms: Vec<Form> = forms.copied().collect();
    let Some(kernel) = KernelId::find(node.op, node.variant, &forms) else {
        let variant = node.variant.map_or("", |v| v.name());
        bail!(
            Unsupported,
            "{}: no kernel {} for {variant}",
            node.label,
            node.op.name()
        );
    };
    let shader = &SHADERS[usize::from(kernel.0)];
    let units = node.work[0].div_ceil(shader.units);
    let tokens = node.work[1].div_ceil(shader.tokens);
    let x = units.min(profile.grid_max);
    let grid = [x, tokens, units.div_ceil(x.max(1))];
    if grid.iter().any(|&n| n > profile.grid_max) {
        bail!(
            TooLarge,
            "{}: a grid of {grid:?} is over {}",
            node.label,
            profile.grid_max
        );
    }
    let mut slots = [Slot(0); SLOTS_MAX];
    slots[..node.slots.len()].copy_from_slice(&node.slots);
    let params = table.params.len().next_multiple_of(PARAMS_ALIGN);
    table.params.resize(params, 0);
    table.params.extend_from_slice(&node.params);
    let small = |n: usize| u32::try_from(n).expect("tables are small");
    Ok(DispatchCmd {
        kernel,
        op: node.op,
        n_slots: u8::try_from(node.slots.len()).expect("at most SLOTS_MAX"),
        slots,
        params: small(params),
        params_bytes: small(node.params.len()),
        grid,
        label: small(table.labels.len()),
    })
}
