//! Loops of a kernel, and the work of one iteration.

use crate::isa::{Block, Class, Work, constant, positions};
use std::collections::BTreeSet;

/// Iterations of an inner loop whose number is unknown.
const TRIPS: f64 = 8.0;
/// Maximum number of iterations that is read from the code.
const TRIPS_MAX: i64 = 1024;

/// A natural loop.
#[derive(Debug)]
pub struct Loop {
    /// Index of the first block of an iteration.
    pub header: usize,
    /// Indices of its blocks, with those of inner loops.
    pub body: BTreeSet<usize>,
    /// Number of loops around it.
    pub depth: usize,
}

/// What an iteration should contain most of. Branches that lead past it are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Loads of weights.
    Weights,
    /// Multiply-adds.
    Products,
}

/// Work of one iteration of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iteration {
    /// Work on the path with the most of the aim and then the fewest cycles.
    pub path: Work,
    /// Work of all blocks.
    pub all: Work,
}

/// Finds the loops: an edge that goes back in [`positions`] ends one.
pub fn loops(blocks: &[Block]) -> Vec<Loop> {
    let positions = positions(blocks);
    let mut predecessors = vec![Vec::new(); blocks.len()];
    for (at, block) in blocks.iter().enumerate() {
        block
            .successors
            .iter()
            .for_each(|next| predecessors[*next].push(at));
    }
    let mut loops: Vec<Loop> = Vec::new();
    for header in 0..blocks.len() {
        let goes_back = |from: &&usize| positions[**from] >= positions[header];
        let latches = predecessors[header].iter().filter(goes_back);
        let mut waiting: Vec<usize> = latches.copied().collect();
        if waiting.is_empty() {
            continue;
        }
        let mut body = BTreeSet::from([header]);
        while let Some(at) = waiting.pop() {
            if body.insert(at) {
                waiting.extend(&predecessors[at]);
            }
        }
        loops.push(Loop {
            header,
            body,
            depth: 0,
        });
    }
    for at in 0..loops.len() {
        let header = loops[at].header;
        let around = loops
            .iter()
            .filter(|l| l.header != header && l.body.contains(&header));
        loops[at].depth = around.count();
    }
    loops
}

/// Returns the loop with the products of weights: the innermost one with most of the loads from
/// binding 0; without such loads, that with most multiply-adds.
pub fn product_loop<'a>(blocks: &[Block], loops: &'a [Loop]) -> Option<&'a Loop> {
    let own = |l: &Loop, value: fn(&Work) -> f64| -> f64 {
        let inner = |at: &&usize| {
            let mut inner = loops.iter().filter(|i| is_inside(i, l));
            !inner.any(|i| i.body.contains(*at))
        };
        l.body
            .iter()
            .filter(inner)
            .map(|at| value(&blocks[*at].work))
            .sum()
    };
    let best = |value: fn(&Work) -> f64| {
        let with = loops.iter().filter(|l| own(l, value) > 0.0);
        with.max_by(|a, b| own(a, value).total_cmp(&own(b, value)))
    };
    best(|work| work.weight_loads).or_else(|| best(|work| work.multiply_adds(1.0).1))
}

fn is_inside(inner: &Loop, outer: &Loop) -> bool {
    inner.header != outer.header && outer.body.contains(&inner.header)
}

/// Computes the work of one iteration of a loop. Inner loops count as often as they run.
pub fn iteration(blocks: &[Block], loops: &[Loop], of: &Loop, aim: Aim) -> Iteration {
    let inside = loops
        .iter()
        .filter(|l| is_inside(l, of) && l.depth == of.depth + 1);
    let inner: Vec<(&Loop, Iteration)> = inside
        .map(|l| {
            let once = iteration(blocks, loops, l, aim);
            let trips = trips(blocks, l);
            let (path, all) = (once.path * trips, once.all * trips);
            (l, Iteration { path, all })
        })
        .collect();
    // A block, or all of an inner loop at its header.
    let node = |at: usize| {
        let at_inner = inner.iter().find(|(l, _)| l.body.contains(&at));
        at_inner.map_or(at, |(l, _)| l.header)
    };
    let positions = positions(blocks);
    let mut nodes: Vec<usize> = of
        .body
        .iter()
        .copied()
        .filter(|at| node(*at) == *at)
        .collect();
    nodes.sort_by_key(|at| positions[*at]);
    let mut all = Work::default();
    // The best path from the header to the end of a node.
    let mut best: Vec<Option<Work>> = vec![None; blocks.len()];
    let mut end: Option<Work> = None;
    for at in nodes {
        let of_inner = inner.iter().find(|(l, _)| l.header == at);
        let block = blocks[at].work;
        let own = of_inner.map_or(
            Iteration {
                path: block,
                all: block,
            },
            |(_, once)| *once,
        );
        all += own.all;
        let before = match at == of.header {
            true => Some(Work::default()),
            false => best[at],
        };
        let Some(done) = before.map(|before| before + own.path) else {
            continue;
        };
        let members = of_inner.map_or_else(|| vec![at], |(l, _)| l.body.iter().copied().collect());
        for next in members.iter().flat_map(|m| likely(blocks, *m, &of.body)) {
            if next == of.header {
                keep(&mut end, done, aim);
            } else if of.body.contains(&next) && node(next) != at {
                keep(&mut best[node(next)], done, aim);
            }
        }
    }
    let path = end.unwrap_or(all);
    Iteration { path, all }
}

/// Returns the blocks of a loop that may follow a block. A branch that skips a part without active lanes
/// is not taken: some lanes are active.
fn likely(blocks: &[Block], at: usize, body: &BTreeSet<usize>) -> Vec<usize> {
    let block = &blocks[at];
    let last = block.instructions.last().map_or("", |last| &last.mnemonic);
    let mut successors = block.successors.clone();
    let next = at + 1;
    match last {
        "s_cbranch_execz" if body.contains(&next) => successors.retain(|to| *to == next),
        "s_cbranch_execnz" if successors.len() > 1 => successors.retain(|to| *to != next),
        _ => {}
    }
    successors
}

/// Keeps the better of two paths.
fn keep(best: &mut Option<Work>, path: Work, aim: Aim) {
    let value = |work: &Work| {
        let adds = work.multiply_adds(1.0).1;
        // An iteration loads something if it can: branches that depend on each other hide this.
        let loads = work.count(Class::Load).min(1.0);
        match aim {
            Aim::Weights => [work.weight_loads, loads, 0.0],
            Aim::Products => [adds, work.weight_loads, loads],
        }
    };
    let is_better = best.is_none_or(|best| {
        let (new, old) = (value(&path), value(&best));
        new > old || new == old && path.cycles() < best.cycles()
    });
    if is_better {
        *best = Some(path);
    }
}

/// Returns the number of iterations of a loop that compares a register with a constant and adds a
/// constant to it; it starts near zero.
fn trips(blocks: &[Block], of: &Loop) -> f64 {
    let instructions = || of.body.iter().flat_map(|at| &blocks[*at].instructions);
    let limits = instructions().filter(|i| {
        let name = &i.mnemonic;
        name.starts_with("s_cmp_") || name.starts_with("s_cmpk_") || name.starts_with("v_cmp")
    });
    for compared in limits {
        let limit = compared
            .operands
            .iter()
            .find_map(|o| constant(o))
            .filter(|n| *n > 0);
        let mut registers = compared
            .operands
            .iter()
            .filter(|o| o.starts_with(['s', 'v']));
        let (Some(limit), Some(register)) = (limit, registers.next_back()) else {
            continue;
        };
        let step = instructions().find_map(|i| {
            let adds = [
                "s_add_u32",
                "s_add_i32",
                "s_addk_i32",
                "s_add_co_u32",
                "s_add_co_i32",
                "v_add_nc_u32",
                "v_add_u32",
            ];
            let adds = adds.contains(&i.mnemonic.as_str()) && i.operands.first() == Some(register);
            adds.then(|| i.operands.iter().find_map(|o| constant(o)))
                .flatten()
        });
        let step = step.filter(|step| (1..=limit).contains(step));
        let count = step.map(|step| (limit + step - 1) / step);
        if let Some(count) = count.filter(|count| *count <= TRIPS_MAX) {
            return count as f64;
        }
    }
    TRIPS
}

/// Adds the work of all blocks of a kernel: its instructions as they are stored.
pub fn total(blocks: &[Block]) -> Work {
    blocks
        .iter()
        .fold(Work::default(), |sum, block| sum + block.work)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::isa::{Machine, Rate, parse};

    pub(crate) const WAVE64: Machine = Machine {
        lanes: 64,
        dual_issue: false,
        matrix_adds: 128.0,
    };

    /// A product of one token, counted by hand. An iteration of the outer loop (BB1 to BB5) has
    /// - BB1: `s_cmp`, `s_cbranch`: 1 scalar instruction, 1 branch;
    /// - `s_mov` before the inner loop: 1 scalar instruction;
    /// - BB2, the inner loop, 512 / 64 = 8 times: 1 load of x, 1 `v_add`, 1 `s_add`, 1 `s_cmp`, 1 branch;
    /// - BB3: 1 `v_cmp`, 1 branch; BB4, which is uniform and may be skipped: 2 vector instructions;
    /// - BB5: 2 loads of weights of 16 and 4 bytes, 1 load of x, 4 `v_dot4`, 1 `v_mul_lo`, 1 `v_rcp`, 1 wait,
    ///   1 scalar instruction, 1 branch.
    pub(crate) const MAT_VEC: &str = "
BB0:
	s_load_dwordx4 s[12:15], s[2:3], null            ; f4080301 fa000000
	s_load_dwordx8 s[16:23], s[2:3], 0x10            ; f40c0401 fa000010
	s_mov_b32 s6, 0                                  ; be860380
BB1:
	s_cmp_ge_u32 s6, s4                              ; bf090406
	s_cbranch_scc1 BB6                               ; bf850020
	s_mov_b32 s7, 0                                  ; be870380
BB2:
	buffer_load_dword v6, v7, s[20:23], 0 offen      ; e0301000 80050607
	v_add_nc_u32_e32 v7, 4, v7                       ; 4a0e0e84
	s_add_u32 s7, s7, 64                             ; 8007c007
	s_cmp_lt_u32 s7, 0x200                           ; bf0aff07 00000200
	s_cbranch_scc1 BB2                               ; bf85fffa
BB3:
	v_cmp_eq_u32_e32 vcc, 0, v0                      ; 7d840080
	s_cbranch_vccz BB5                               ; bf860003
BB4:
	v_exp_f32_e32 v9, v9                             ; 7e124b09
	v_exp_f32_e32 v9, v9                             ; 7e124b09
BB5:
	buffer_load_dwordx4 v[4:7], v1, s[12:15], 0 offen ; e0381000 80030401
	buffer_load_dword v8, v2, s[12:15], 0 offen      ; e0301000 80030802
	buffer_load_dwordx4 v[12:15], v3, s[16:19], 0 offen ; e0381000 80040c03
	s_waitcnt vmcnt(0)                               ; bf8c3f70
	v_dot4_i32_i8 v16, v4, v12, 0                    ; cc160010 02021904
	v_dot4c_i32_i8_e32 v16, v5, v13                  ; 1a201b05
	v_dot4c_i32_i8_e32 v16, v6, v14                  ; 1a201d06
	v_dot4c_i32_i8_e32 v16, v7, v15                  ; 1a201f07
	v_mul_lo_u32 v17, v8, v9                         ; d5690011 00021308
	v_rcp_f32_e32 v18, v8                            ; 7e245508
	s_add_u32 s6, s6, 1                              ; 80068106
	s_branch BB1                                     ; bf82ffe0
BB6:
	s_endpgm                                         ; bf810000
";

    #[test]
    fn iteration_of_a_mat_vec_loop_has_the_counted_instructions() {
        let blocks = parse(MAT_VEC, WAVE64).expect("valid code");
        assert_eq!(total(&blocks).instructions(), 28.0);
        let loops = loops(&blocks);
        assert_eq!(loops.iter().map(|l| l.depth).collect::<Vec<_>>(), [0, 1]);
        let of = product_loop(&blocks, &loops).expect("a loop with weights");
        assert_eq!(of.depth, 0);
        let Iteration { path, all } = iteration(&blocks, &loops, of, Aim::Weights);
        let expected = [
            (Class::Valu, 8.0 + 1.0 + 6.0),
            (Class::Salu, 2.0 + 8.0 * 2.0 + 1.0),
            (Class::Load, 8.0 + 3.0),
            (Class::Branch, 1.0 + 8.0 + 1.0 + 1.0),
            (Class::Other, 1.0),
        ];
        for (class, count) in expected {
            assert_eq!(path.count(class), count, "{class:?}");
        }
        assert_eq!(all.count(Class::Valu), path.count(Class::Valu) + 2.0);
        assert_eq!((path.weight_loads, path.weight_bytes), (2.0, 20.0));
        // Four dot products of four bytes in 64 lanes.
        assert_eq!(path.multiply_adds(64.0), (Rate::Bytes, 4.0 * 4.0 * 64.0));
        // 13 instructions of one cycle, `v_rcp` of one and `v_mul_lo` of four, for two halves of a wave.
        assert_eq!(path.valu_cycles, 2.0 * (13.0 + 1.0 + 4.0));
        assert_eq!(path.slow_cycles, 2.0 * (4.0 + 4.0));
    }

    /// A product of many tokens in waves of 32, counted by hand: of the loop, BB2 loads weights for the lanes that
    /// need some, BB3 waits and multiplies with a matrix instruction and two in f32, one of them of a pair.
    const MAT_MAT: &str = "
BB0:
	s_load_b128 s[12:15], s[2:3], null
BB1:
	s_mov_b32 s8, exec_lo
	v_cmpx_gt_u32_e32 64, v0
	s_cbranch_execz BB3
BB2:
	buffer_load_b64 v[4:5], v1, s[12:15], 0 offen
	ds_store_b64 v2, v[4:5]
BB3:
	s_mov_b32 exec_lo, s8
	s_barrier
	ds_load_b128 v[8:11], v3
	v_wmma_f32_16x16x16_f16 v[16:23], v[8:15], v[8:15], v[16:23]
	v_dual_fmac_f32 v30, v31, v32 :: v_dual_mul_f32 v33, v34, v35
	s_sub_u32 s6, s6, 1
	s_cbranch_scc0 BB1
BB4:
	v_nop
	(then repeated 2 times)
	s_endpgm
";

    #[test]
    fn iteration_of_a_mat_mat_loop_runs_parts_of_some_lanes() {
        let wave32 = Machine {
            lanes: 32,
            dual_issue: true,
            matrix_adds: 128.0,
        };
        let blocks = parse(MAT_MAT, wave32).expect("valid code");
        assert_eq!(total(&blocks).instructions(), 17.0);
        let loops = loops(&blocks);
        let of = product_loop(&blocks, &loops).expect("a loop with weights");
        let Iteration { path, .. } = iteration(&blocks, &loops, of, Aim::Products);
        let counts = [
            Class::Valu,
            Class::Load,
            Class::Lds,
            Class::Matrix,
            Class::Barrier,
        ];
        assert_eq!(
            counts.map(|class| path.count(class)),
            [2.0, 1.0, 2.0, 1.0, 1.0]
        );
        assert_eq!(path.weight_bytes, 8.0);
        assert_eq!(path.multiply_adds(32.0), (Rate::Matrix, 4096.0));
        assert_eq!(path.float_adds, 1.0);
        assert_eq!(path.valu_cycles, 2.0 + 32.0);
    }

    #[test]
    fn iteration_of_a_loop_whose_first_block_is_stored_last_is_whole() {
        let text = "
BB0:
	s_load_dwordx4 s[12:15], s[2:3], null
	s_branch BB2
BB1:
	v_mul_f32_e32 v1, v4, v2
	s_cbranch_scc1 BB3
BB2:
	buffer_load_dword v4, v1, s[12:15], 0 offen
	s_branch BB1
BB3:
	s_endpgm
";
        let blocks = parse(text, WAVE64).expect("valid code");
        let loops = loops(&blocks);
        assert_eq!(loops.len(), 1);
        assert_eq!((loops[0].header, loops[0].body.len()), (2, 2));
        let Iteration { path, all } = iteration(&blocks, &loops, &loops[0], Aim::Weights);
        assert_eq!((path.count(Class::Valu), path.weight_loads), (1.0, 1.0));
        assert_eq!(path, all);
    }

    #[test]
    fn code_that_cannot_be_parsed_is_an_error() {
        for text in ["BB0:\n\ts_branch BB7\n", "\t(then repeated x times)\n"] {
            assert!(parse(text, WAVE64).is_err(), "{text}");
        }
    }
}
