//! Storage types of activations that the kernels of products read: rounded to blocks of signed bytes or to f16, or
//! padded to whole blocks. Operations with kernels that store such a type write it; before other products a conversion is
//! inserted, which products of the same activations share.

use crate::builder::{Graph, Node};
use crate::select;
use tabla_core::device::{DeviceKind, KernelVariant, Profile};
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::op::list::{Access, Op};
use tabla_core::op::operands::{ACTIVATIONS, WEIGHT};
use tabla_core::op::params::convert::Params;
use tabla_core::op::table::{BufferId, KernelId, Place, Slot, SlotInfo};

/// Number of columns of the blocks of a row.
const BLOCK: u32 = 32;

/// Activations in a storage type, of rows with a number of columns.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wanted {
    x: Slot,
    cols: u32,
    dtype: DType,
}

pub(super) fn convert(graph: &mut Graph, profile: &Profile) -> Result<()> {
    if profile.kind == DeviceKind::Cpu {
        return Ok(());
    }
    let wanted = graph.nodes.iter().map(|node| wanted(node, graph, profile));
    let wanted: Vec<Option<Wanted>> = wanted.collect();
    let stored = store_directly(graph, &wanted);
    // A pass can begin at these commands.
    let starts = graph.stages.iter().flatten().copied();
    let starts: Vec<usize> = starts.chain([graph.head]).collect();
    let mut slots = std::mem::take(&mut graph.slots);
    let mut converted: Vec<(Wanted, Slot)> = Vec::new();
    let mut wanted = wanted.into_iter().enumerate();
    let replaced = graph.replace(|mut node, nodes| {
        let (at, own) = wanted.next().expect("one per node");
        if starts.contains(&at) {
            converted.clear();
        }
        if let Some(own) = own.filter(|own| !stored.contains(&own.x)) {
            let known = converted.iter().find(|(wanted, _)| *wanted == own);
            let y = match known {
                Some((_, y)) => *y,
                None => {
                    let y = push(&mut slots, own)?;
                    let state = node.slots[node.slots.len() - 1];
                    nodes.push(conversion([own.x, y, state], &slots, own));
                    converted.push((own, y));
                    y
                }
            };
            node.slots[ACTIVATIONS] = y;
        }
        converted.retain(|(wanted, _)| !writes(&node, wanted.x));
        nodes.push(node);
        Ok(())
    });
    graph.slots = slots;
    replaced
}

/// Returns the activations in the storage type that the kernel of a product reads; `None` if they need no conversion.
fn wanted(node: &Node, graph: &Graph, profile: &Profile) -> Option<Wanted> {
    let products = [
        Op::Gemv,
        Op::GemvAdd,
        Op::Gemm,
        Op::GemmAdd,
        Op::Experts,
        Op::GroupedGemm,
    ];
    if node.place == Place::Host || !products.contains(&node.op) {
        return None;
    }
    let kernel = select::kernel(node, &graph.slots, graph.tokens, profile)?;
    let cols = graph.slots[usize::from(node.slots[WEIGHT].0)].cols;
    let dtype = match kernel.variant {
        Some(KernelVariant::Int8 | KernelVariant::FewInt8) => DType::Q8_1,
        Some(variant) if variant.uses_matrices() => DType::F16,
        _ if cols.is_multiple_of(BLOCK) => return None,
        _ => DType::F32,
    };
    let x = node.slots[ACTIVATIONS];
    Some(Wanted { x, cols, dtype })
}

/// Lets operations store their result in the storage type that all its readers want, if they have such kernels. Returns the
/// results.
fn store_directly(graph: &mut Graph, wanted: &[Option<Wanted>]) -> Vec<Slot> {
    let mut stored = Vec::new();
    for at in 0..graph.nodes.len() {
        let Some((y, dtype)) = direct(graph, at, wanted) else {
            continue;
        };
        let slot = &mut graph.slots[usize::from(y.0)];
        slot.name = format!("{} {dtype}", slot.name);
        slot.dtype = dtype;
        graph.nodes[at].dtype = Some(dtype);
        stored.push(y);
    }
    stored
}

/// Returns the result of a node and the storage type that all its readers want.
fn direct(graph: &Graph, at: usize, wanted: &[Option<Wanted>]) -> Option<(Slot, DType)> {
    let node = &graph.nodes[at];
    let mut written = node.slots.iter().zip(node.op.operands());
    let (y, _) = written.find(|(_, o)| o.access == Access::Write)?;
    let slot = &graph.slots[usize::from(y.0)];
    let is_inner = matches!(slot.buffer, BufferId::Scratch(_))
        && graph.layers.iter().all(|layer| layer.slot != *y);
    if node.place == Place::Host || node.dtype.is_some() || !is_inner {
        return None;
    }
    let users = (0..graph.nodes.len()).filter(|i| graph.nodes[*i].slots.contains(y));
    let mut readers = users
        .filter(|i| *i != at)
        .map(|i| wanted[i].filter(|_| i > at));
    let own = readers.next()?.filter(|own| own.x == *y)?;
    let has_kernel = KernelId::all(node.op, Some(own.dtype), &[])
        .next()
        .is_some();
    let is_row = own.cols == slot.cols && own.cols.is_multiple_of(BLOCK);
    (has_kernel && is_row && readers.all(|other| other == Some(own))).then_some((*y, own.dtype))
}

fn writes(node: &Node, slot: Slot) -> bool {
    let mut operands = node.slots.iter().zip(node.op.operands());
    operands.any(|(s, operand)| *s == slot && operand.access != Access::Read)
}

/// Adds the slot of converted activations; rows are padded to whole blocks.
fn push(slots: &mut Vec<SlotInfo>, own: Wanted) -> Result<Slot> {
    let Wanted { x, cols, dtype } = own;
    let x = &slots[usize::from(x.0)];
    let Ok(index) = u16::try_from(slots.len()) else {
        bail!(TooLarge, "table exceeds the limit of {} slots", u16::MAX);
    };
    slots.push(SlotInfo {
        name: format!("{} {dtype}", x.name),
        dtype,
        rows: x.rows,
        cols: x.cols / cols * cols.next_multiple_of(BLOCK),
        buffer: BufferId::Scratch(u32::from(index)),
    });
    Ok(Slot(index))
}

/// Returns the conversion of the first slot to the second; the last is the step state.
fn conversion(operands: [Slot; 3], slots: &[SlotInfo], own: Wanted) -> Node {
    let Wanted { cols, dtype, .. } = own;
    let x = &slots[usize::from(operands[0].0)];
    let (tokens, groups) = (x.rows, x.cols / cols);
    let params = Params {
        tokens,
        groups,
        cols,
    };
    let work = [groups * cols.next_multiple_of(BLOCK), tokens];
    Node {
        dtype: Some(dtype),
        ..Node::plain(Op::Convert, &operands, &params, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, WeightInfo, X};
    use crate::fixture::{Same, shape};
    use tabla_core::op::functions::Activation;

    /// Returns the operations and storage types of a layer: two products of `x`, `x` changed, two products.
    fn layer(dtype: DType, cols: u32, profile: &Profile) -> Vec<String> {
        let weights = Same(WeightInfo {
            index: 0,
            dtype,
            rows: cols,
            cols,
            scale: None,
        });
        let mut b = Builder::new(&weights, shape(3));
        let (w, x) = (b.weight("w", cols, cols), b.input("x", cols));
        b.mat("q", w, x);
        b.mat("k", w, x);
        b.scale(x, 2.0);
        let y = b.mat("v", w, x);
        b.mat_add(w, y, x);
        let mut graph = b.finish().expect("the weights fit");
        convert(&mut graph, profile).expect("few slots");
        let name = |node: &Node| {
            let x = &graph.slots[usize::from(node.slots[ACTIVATIONS].0)];
            format!("{} {}", node.op.name(), x.name)
        };
        graph.nodes.iter().map(name).collect()
    }

    fn gpu(variants: &[KernelVariant]) -> Profile {
        Profile {
            kind: DeviceKind::Gpu,
            variants: variants.to_vec(),
            ..crate::plain_profile()
        }
    }

    #[test]
    fn activations_are_converted_once_until_they_change() {
        let int8 = gpu(KernelVariant::ALL);
        let expected = [
            "convert x q8_1",
            "gemm x q8_1",
            "gemm x q8_1",
            "scale state",
            "convert x q8_1",
            "gemm x q8_1",
            "convert v q8_1",
            "gemm_add v q8_1",
        ];
        assert_eq!(layer(DType::Q8_0, 64, &int8), expected);
        let plain = ["gemm x", "gemm x", "scale state", "gemm x", "gemm_add v"];
        // Kernels in f32 read whole blocks directly.
        assert_eq!(layer(DType::Q8_0, 64, &gpu(&[])), plain);
        assert_eq!(layer(DType::F16, 64, &gpu(&[])), plain);
        assert_eq!(layer(DType::Q8_0, 64, &crate::plain_profile()), plain);
    }

    /// Returns the operations for a gated activation that a product reads, and `other` reads too.
    fn gated(cols: u32, other: fn(&mut Builder<'_>, X)) -> Vec<&'static str> {
        let weights = Same(WeightInfo {
            index: 0,
            dtype: DType::Q8_0,
            rows: cols,
            cols,
            scale: None,
        });
        let mut b = Builder::new(&weights, shape(1));
        let (w, gate, up) = (
            b.weight("w", cols, cols),
            b.input("gate", cols),
            b.input("up", cols),
        );
        let x = b.glu(Activation::Silu, gate, up);
        b.mat("y", w, x);
        other(&mut b, x);
        let mut graph = b.finish().expect("the weights fit");
        convert(&mut graph, &gpu(KernelVariant::ALL)).expect("few slots");
        graph.nodes.iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn results_that_only_products_read_are_stored_in_their_type() {
        assert_eq!(gated(64, |_, _| {}), ["glu", "gemv"]);
        let converted = ["glu", "convert", "gemv", "scale"];
        assert_eq!(gated(64, |b, x| b.scale(x, 2.0)), converted);
        let ends = ["glu", "convert", "gemv"];
        assert_eq!(gated(64, |b, x| b.end_of_layer(x)), ends);
        assert_eq!(gated(40, |_, _| {}), ends, "a partial block");
    }

    #[test]
    fn partial_blocks_are_padded() {
        let names = layer(DType::F16, 40, &gpu(&[]));
        assert_eq!(names[..2], ["convert x f32", "gemm x f32"]);
        assert_eq!(layer(DType::F16, 40, &crate::plain_profile())[0], "gemm x");
    }
}
