//! Barriers: whether a step accesses memory that an earlier one has written.

use super::memory::Operand;
use super::step::Step;
use super::work::RunOn;

/// Memory accesses since the last barrier.
#[derive(Default)]
pub(super) struct Hazards {
    touched: Vec<Touch>,
}

#[derive(Clone, Copy)]
struct Touch {
    operand: Operand,
    written: bool,
    /// Steps of the first thread run in order and need no barrier between them.
    run_on: RunOn,
}

impl Touch {
    fn conflicts(self, other: Self) -> bool {
        (self.written || other.written)
            && [self.run_on, other.run_on] != [RunOn::FirstThread; 2]
            && !self.operand.same_copies(other.operand)
            && self.operand.overlaps(other.operand)
    }
}

impl Hazards {
    /// Records the accesses of a step and returns whether it needs a barrier.
    pub(super) fn needs_barrier(&mut self, step: &Step) -> bool {
        let touches = (0..step.bound.count).map(|i| Touch {
            operand: step.bound.operands[i],
            written: step.bound.writes(i),
            run_on: step.bound.run_on,
        });
        let touches: Vec<Touch> = touches.collect();
        let conflict = touches
            .iter()
            .any(|t| self.touched.iter().any(|u| t.conflicts(*u)));
        if conflict {
            self.touched.clear();
        }
        self.touched.extend(touches);
        conflict
    }
}
