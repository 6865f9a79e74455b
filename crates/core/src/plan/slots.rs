//! Working memory: slots whose lives do not touch share a place.

use crate::op::builder::Draft;
use crate::op::list::Access;
use crate::op::table::BufferId;

/// Gives scratch slots places by their lives, the smallest free place that is large enough first.
///
/// A slot lives from the first command that names it to the last. A command's own operands
/// overlap by that rule, so no command reads a place that it writes.
pub(super) fn share(draft: &mut Draft) {
    let lives = lives(draft);
    let mut order: Vec<usize> = (0..draft.slots.len())
        .filter(|&i| lives[i].is_some())
        .collect();
    order.sort_by_key(|&i| lives[i]);

    // Per place: the last command that uses it, and its size.
    let mut places: Vec<(usize, u64)> = Vec::new();
    for i in order {
        let (first, last) = lives[i].expect("filtered above");
        let bytes = draft.slots[i].bytes();
        let free = (0..places.len()).filter(|&p| places[p].0 < first);
        let fit = free.min_by_key(|&p| (places[p].1.abs_diff(bytes), p));
        let place = fit.unwrap_or_else(|| {
            places.push((0, 0));
            places.len() - 1
        });
        places[place] = (last, places[place].1.max(bytes));
        let number = u32::try_from(place).expect("fewer places than slots");
        draft.slots[i].place = BufferId::Scratch(number);
    }
}

/// First and last command of every scratch slot; `None` for other slots.
fn lives(draft: &Draft) -> Vec<Option<(usize, usize)>> {
    let mut lives = vec![None; draft.slots.len()];
    for (at, node) in draft.nodes.iter().enumerate() {
        for slot in &node.slots {
            let i = usize::from(slot.0);
            if matches!(draft.slots[i].place, BufferId::Scratch(_)) {
                let life = lives[i].get_or_insert((at, at));
                life.1 = at;
            }
        }
    }
    // What is read before it is written comes from outside and must not be overwritten before.
    for (i, life) in lives.iter_mut().enumerate() {
        let Some((first, _)) = life else { continue };
        let node = &draft.nodes[*first];
        let operand = node.slots.iter().position(|s| usize::from(s.0) == i);
        let operand = operand.expect("the first command names the slot");
        if node.op.operands()[operand].access != Access::Write {
            *first = 0;
        }
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::op::builder::{Builder, LogitRows, Shape, WeightInfo, Weights};
    use crate::op::pages::Pages;

    struct Square;
    impl Weights for Square {
        fn find(&self, _: &str) -> Option<WeightInfo> {
            Some(WeightInfo {
                index: 0,
                dtype: DType::F32,
                rows: 8,
                cols: 8,
                scale: None,
            })
        }
    }

    #[test]
    fn a_chain_needs_two_places() {
        let shape = Shape {
            name: "chain",
            tokens: 1,
            logits: LogitRows::Last,
            sequences: 1,
            context: 8,
            pages: Pages::new(1, 8, &[], 1),
            cache: DType::F32,
            part: 0,
        };
        let mut b = Builder::new(&Square, shape);
        let w = b.weight("w", 8, 8);
        let mut x = b.embed(w);
        for _ in 0..5 {
            x = b.mat("x", w, x);
        }
        let mut draft = b.finish().expect("the weights fit");
        share(&mut draft);
        let mut places: Vec<_> = draft.slots.iter().map(|s| s.place).collect();
        places.retain(|p| matches!(p, BufferId::Scratch(_)));
        assert_eq!(places.len(), 6);
        places.sort();
        places.dedup();
        assert_eq!(places, [BufferId::Scratch(0), BufferId::Scratch(1)]);
    }
}
