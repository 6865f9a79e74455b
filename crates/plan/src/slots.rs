//! Scratch buffer assignment: slots with disjoint live ranges share a buffer.

use crate::builder::Graph;
use tabla_core::op::list::Access;
use tabla_core::op::table::BufferId;

/// Assigns buffers to scratch slots by live range; prefers the free buffer of the closest size.
///
/// A slot is live from the first to the last command that uses it. The live ranges of all operands
/// of a command overlap, so no command reads a buffer that it writes.
pub(super) fn assign_buffers(graph: &mut Graph) {
    let ranges = live_ranges(graph);
    let mut order: Vec<usize> = (0..graph.slots.len())
        .filter(|&i| ranges[i].is_some())
        .collect();
    order.sort_by_key(|&i| ranges[i]);

    // Per buffer: the last command that uses it, and its size.
    let mut buffers: Vec<(usize, u64)> = Vec::new();
    for i in order {
        let (first, last) = ranges[i].expect("filtered above");
        let bytes = graph.slots[i].bytes();
        let free = (0..buffers.len()).filter(|&b| buffers[b].0 < first);
        let fit = free.min_by_key(|&b| (buffers[b].1.abs_diff(bytes), b));
        let buffer = fit.unwrap_or_else(|| {
            buffers.push((0, 0));
            buffers.len() - 1
        });
        buffers[buffer] = (last, buffers[buffer].1.max(bytes));
        let number = u32::try_from(buffer).expect("fewer buffers than slots");
        graph.slots[i].buffer = BufferId::Scratch(number);
    }
}

/// Returns the first and last command of each scratch slot; `None` for other slots.
fn live_ranges(graph: &Graph) -> Vec<Option<(usize, usize)>> {
    let mut ranges = vec![None; graph.slots.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        for slot in &node.slots {
            let i = usize::from(slot.0);
            if matches!(graph.slots[i].buffer, BufferId::Scratch(_)) {
                let range = ranges[i].get_or_insert((at, at));
                range.1 = at;
            }
        }
    }
    // Slots that are read before they are written are inputs of the table and live from the start.
    for (i, range) in ranges.iter_mut().enumerate() {
        let Some((first, _)) = range else { continue };
        let node = &graph.nodes[*first];
        let operand = node.slots.iter().position(|s| usize::from(s.0) == i);
        let operand = operand.expect("the first command uses the slot");
        if node.op.operands()[operand].access != Access::Write {
            *first = 0;
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::fixture::{SQUARE, shape};

    #[test]
    fn chain_of_products_needs_two_buffers() {
        let shape = shape(1);
        let mut b = Builder::new(&SQUARE, shape);
        let w = b.weight("w", 8, 8);
        let mut x = b.embed(w);
        for _ in 0..5 {
            x = b.mat("x", w, x);
        }
        let mut graph = b.finish().expect("the weights fit");
        assign_buffers(&mut graph);
        let mut buffers: Vec<_> = graph.slots.iter().map(|s| s.buffer).collect();
        buffers.retain(|p| matches!(p, BufferId::Scratch(_)));
        assert_eq!(buffers.len(), 6);
        buffers.sort();
        buffers.dedup();
        assert_eq!(buffers, [BufferId::Scratch(0), BufferId::Scratch(1)]);
    }
}
