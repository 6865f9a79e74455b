//! Memory of linked programs, and weights that are packed while there is memory for them.

use crate::{cpu_of, unchanged};
use std::sync::Arc;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_core::exec::{Program, Tensors};
use tabla_core::op::list::Op;
use tabla_core::op::table::{BufferId, Table};
use tabla_cpu::{Level, LinkOptions, memory_usage};
use tabla_testkit::ops::cases;
use tabla_testkit::rig::{Filled, compare, run_case, table, tensors};

/// Weights of several cases, [`STRIDE`] indices each.
struct Joined(Vec<Filled>);

const STRIDE: u32 = 16;

impl Tensors for Joined {
    fn weight(&self, index: u32) -> &[u8] {
        self.0[(index / STRIDE) as usize].weight(index % STRIDE)
    }

    fn constant(&self, index: u32) -> &[u8] {
        self.0[0].constant(index)
    }
}

/// A program with a table of `Q4_K` weights for each operation.
fn program(ops: &[Op], options: LinkOptions) -> (Program, Vec<u64>) {
    let (mut tables, mut all) = (Vec::new(), Vec::new());
    for (op, offset) in ops.iter().zip((0..).step_by(STRIDE as usize)) {
        let mut cases = cases(*op).iter();
        let case =
            cases.find(|case| case.name.contains("panels") && case.weights[0].1 == DType::Q4K);
        let case = case.expect("a case with whole panels");
        let mut table: Table = table(case, &cpu_of(options));
        for slot in &mut table.slots {
            if let BufferId::Weight(index, _) = &mut slot.buffer {
                *index += offset;
            }
        }
        tables.push(table);
        all.push(tensors(case));
    }
    let stored = all.iter().map(|tensors| tensors.weight(0).len() as u64);
    let stored = stored.collect();
    let program = Program {
        tables: tables.into(),
        tensors: Arc::new(Joined(all)),
    };
    (program, stored)
}

/// Returns the bytes of packed and of mapped weights, and those of each weight in the file.
fn weight_bytes(ops: &[Op], level: Level, packed_bytes: u64) -> ([u64; 2], Vec<u64>) {
    let options = LinkOptions::default().threads(1).level(level);
    let options = options
        .precision(Precision::Fast)
        .packed_bytes(packed_bytes);
    let (program, stored) = program(ops, options);
    let usage = memory_usage(&program, &options).expect("it links");
    assert!(usage.buffers > 0);
    ([usage.packed, usage.mapped], stored)
}

#[test]
fn weights_without_memory_for_panels_stay_in_place() {
    for level in Level::available().into_iter().skip(1) {
        for op in [Op::Experts, Op::GroupedGemm, Op::Gemm] {
            let bytes = |limit| weight_bytes(&[op], level, limit);
            let ([packed, mapped], stored) = bytes(u64::MAX);
            assert!(packed > 0 && mapped == 0, "{op:?} at {level:?}");
            assert_eq!(bytes(packed).0, [packed, 0], "{op:?} at {level:?}");
            assert_eq!(bytes(packed - 1).0, [0, stored[0]], "{op:?} at {level:?}");
        }
    }
}

#[test]
fn experts_are_packed_last() {
    let ops = [Op::Experts, Op::Gemm, Op::GroupedGemm];
    for level in Level::available().into_iter().skip(1) {
        let [first, dense, last] = ops.map(|op| weight_bytes(&[op], level, u64::MAX).0[0]);
        let bytes = |limit| weight_bytes(&ops, level, limit);
        let (all, stored) = bytes(u64::MAX);
        assert_eq!(all, [first + dense + last, 0], "{level:?}");
        let experts = stored[0] + stored[2];
        assert_eq!(bytes(dense).0, [dense, experts], "{level:?}");
        let one = bytes(dense + first).0;
        assert_eq!(one, [dense + first, stored[2]], "{level:?}");
    }
}

/// Packing must not invalidate the addresses that steps read: Miri reports it.
#[test]
fn weights_are_read_after_packing() {
    let options = LinkOptions::default().threads(1).level(Level::Scalar);
    let case = &cases(Op::BitMat)[0];
    let run = |limit| {
        let device = cpu_of(options.packed_bytes(limit));
        run_case(Op::BitMat, case, &device, &unchanged)
    };
    compare("packed", &run(0), &run(u64::MAX), 0.0);
}
