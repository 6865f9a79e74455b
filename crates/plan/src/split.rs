//! Splits weights that exceed the binding limit of a device into parts of rows, with one command
//! per part.

use crate::builder::{Graph, Node};
use bytemuck::Pod;
use std::collections::BTreeMap;
use tabla_core::device::Profile;
use tabla_core::error::{Result, bail};
use tabla_core::op::list::Op;
use tabla_core::op::params::{embed, embed_add, experts, gemm, gemv, grouped_gemm};
use tabla_core::op::table::{BufferId, Place, Slot, SlotInfo};

/// Granularity of parts in rows: a multiple of the tile height of all kernels, except large tiles on matrices.
const ROWS: u32 = 64;

/// Slot with a part of the rows of a weight.
struct Part {
    slot: Slot,
    first: u32,
    rows: u32,
}

pub(super) fn split(graph: &mut Graph, profile: &Profile) -> Result<()> {
    let mut parts: BTreeMap<u16, Vec<Part>> = BTreeMap::new();
    for at in 0..graph.nodes.len() {
        if let Some((slot, rows)) = oversized_weight(graph, &graph.nodes[at], profile)
            && !parts.contains_key(&slot.0)
        {
            parts.insert(slot.0, parts_of(graph, slot, rows)?);
        }
    }
    graph.replace(|node, nodes| {
        let split = |at: &usize| parts.contains_key(&node.slots[*at].0);
        match (0..node.slots.len()).find(split) {
            Some(at) => {
                for part in &parts[&node.slots[at].0] {
                    nodes.push(narrow(&node, at, part)?);
                }
            }
            None => nodes.push(node),
        }
        Ok(())
    })
}

/// Returns the weight of a node if it must be split, and the number of rows per part.
fn oversized_weight(graph: &Graph, node: &Node, profile: &Profile) -> Option<(Slot, u32)> {
    // The CPU reads whole weights.
    if node.place == Place::Host {
        return None;
    }
    // The same granularity for all operations, so that they can share parts; experts are not divided.
    let unit = match node.op {
        Op::Embed | Op::EmbedAdd | Op::Gemm | Op::GemmAdd => ROWS,
        Op::Gemv | Op::GemvAdd => ROWS,
        Op::Experts => {
            let p: experts::Params = bytemuck::pod_read_unaligned(&node.params);
            p.rows / p.experts.max(1)
        }
        Op::GroupedGemm => {
            let p: grouped_gemm::Params = bytemuck::pod_read_unaligned(&node.params);
            p.rows / p.experts.max(1)
        }
        _ => return None,
    };
    let info = |slot: &Slot| &graph.slots[usize::from(slot.0)];
    let weight = |slot: &Slot| matches!(info(slot).buffer, BufferId::Weight(..));
    let slot = *node.slots.iter().find(|slot| weight(slot))?;
    let w = info(&slot);
    let fits = |rows| (profile.weight_bytes)(w.dtype, rows, w.cols) <= profile.binding_bytes_max;
    if fits(w.rows) || unit == 0 {
        return None;
    }
    // Binary search for the largest number of units that fits; size increases with rows.
    let (mut least, mut most) = (0, w.rows / unit);
    while least < most {
        let middle = most - (most - least) / 2;
        if fits(middle * unit) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    (least > 0).then_some((slot, least * unit))
}

/// Splits a slot into parts of `rows` rows; the slot itself becomes the first part.
fn parts_of(graph: &mut Graph, slot: Slot, rows: u32) -> Result<Vec<Part>> {
    let whole = graph.slots[usize::from(slot.0)].clone();
    let BufferId::Weight(index, _) = whole.buffer else {
        bail!(
            Internal,
            "{}: cannot split a slot that is not a weight",
            whole.name
        );
    };
    let mut parts = Vec::new();
    for first in (0..whole.rows).step_by(rows as usize) {
        let rows = rows.min(whole.rows - first);
        let info = SlotInfo {
            name: format!("{}[{first}..{}]", whole.name, first + rows),
            rows,
            buffer: BufferId::Weight(index, first),
            ..whole.clone()
        };
        let slot = if first == 0 {
            graph.slots[usize::from(slot.0)] = info;
            slot
        } else {
            let Ok(last) = u16::try_from(graph.slots.len()) else {
                bail!(TooLarge, "table exceeds the limit of {} slots", u16::MAX);
            };
            graph.slots.push(info);
            Slot(last)
        };
        parts.push(Part { slot, first, rows });
    }
    Ok(parts)
}

/// Returns the node that processes a part of operand `at`.
fn narrow(node: &Node, at: usize, part: &Part) -> Result<Node> {
    let mut node = node.clone();
    node.slots[at] = part.slot;
    let &Part { first, rows, .. } = part;
    match node.op {
        Op::Embed => edit(&mut node, |p: &mut embed::Params| {
            (p.first, p.rows) = (first, rows);
        }),
        Op::EmbedAdd => edit(&mut node, |p: &mut embed_add::Params| {
            (p.first, p.rows) = (first, rows);
        }),
        Op::Experts => edit(&mut node, |p: &mut experts::Params| {
            let rows_per_expert = p.rows / p.experts;
            (p.first, p.rows, p.experts) = (first / rows_per_expert, rows, rows / rows_per_expert);
        }),
        Op::GroupedGemm => edit(&mut node, |p: &mut grouped_gemm::Params| {
            let rows_per_expert = p.rows / p.experts;
            (p.first, p.rows, p.experts) = (first / rows_per_expert, rows, rows / rows_per_expert);
        }),
        Op::Gemm | Op::GemmAdd => {
            node.work[0] = rows;
            edit(&mut node, |p: &mut gemm::Params| {
                (p.first, p.rows) = (first, rows);
            });
        }
        Op::Gemv | Op::GemvAdd => {
            node.work[0] = rows;
            edit(&mut node, |p: &mut gemv::Params| {
                (p.first, p.rows) = (first, rows);
            });
        }
        other => bail!(
            TooLarge,
            "{}: weight exceeds the device's binding limit and {} cannot be split",
            node.label,
            other.name()
        ),
    }
    Ok(node)
}

fn edit<P: Pod>(node: &mut Node, change: impl FnOnce(&mut P)) {
    let mut params = bytemuck::pod_read_unaligned(&node.params);
    change(&mut params);
    node.params.copy_from_slice(bytemuck::bytes_of(&params));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::fixture::{F32s, shape};
    use tabla_core::op::operands::WEIGHT;

    #[test]
    fn splitting_preserves_command_indices() {
        let shape = shape(1);
        // Three layers with a square matrix, and a tied embedding of 200 rows.
        let tied = F32s(|name: &str| match name {
            "embd" => [0, 200, 8],
            _ => [1, 8, 8],
        });
        let mut b = Builder::new(&tied, shape);
        let embd = b.weight("embd", 200, 8);
        let mut h = b.embed(embd);
        for _ in 0..3 {
            let w = b.weight("w", 8, 8);
            h = b.mat("h", w, h);
            b.end_of_layer(h);
        }
        b.mat("logits", embd, h);
        let mut graph = b.finish().expect("the weights fit");
        graph.head = 4;
        graph.stages = [Some(4), Some(5), None];
        let mut profile = crate::plain_profile();
        profile.binding_bytes_max = 100 * 8 * 4;
        split(&mut graph, &profile).expect("the weight can be split");

        let rows = |node: &Node| match node.op {
            Op::Embed => {
                let p: embed::Params = bytemuck::pod_read_unaligned(&node.params);
                (node.slots[WEIGHT], p.first, p.rows)
            }
            _ => {
                let p: gemv::Params = bytemuck::pod_read_unaligned(&node.params);
                assert_eq!(node.work[0], p.rows);
                (node.slots[WEIGHT], p.first, p.rows)
            }
        };
        let actual: Vec<_> = graph.nodes.iter().map(rows).collect();
        let parts = |nodes: &[(Slot, u32, u32)]| {
            let parts = nodes.iter().map(|&(_, first, rows)| (first, rows));
            parts.collect::<Vec<_>>()
        };
        let expected = [(0, 64), (64, 64), (128, 64), (192, 8)];
        assert_eq!(parts(&actual[..4]), expected);
        assert_eq!(parts(&actual[4..7]), [(0, 8); 3]);
        assert_eq!(
            actual[..4],
            actual[7..],
            "the output projection has the same parts"
        );
        let ends: Vec<usize> = graph.layers.iter().map(|layer| layer.cmd).collect();
        assert_eq!((&ends[..], graph.head), (&[5, 6, 7][..], 7));
        assert_eq!(graph.stages, [Some(7), Some(11), None]);
    }
}
