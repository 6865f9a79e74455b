//! Kernels at every level: all cases of all operations against their formulas and the scalar level.

mod added_tables;
mod functions;
mod hostile;
mod memory;
mod panels;
mod peak;
mod samplers;
mod simd;
mod split;
mod types;

use half::f16;
use std::sync::Arc;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_core::error::ErrorKind;
use tabla_core::exec::Program;
use tabla_core::exec::state::ROWS_OFFSET;
use tabla_core::op::list::Op;
use tabla_core::op::params::{PAGE, Row, State, attention};
use tabla_core::op::table::BufferId;
use tabla_cpu::{Level, LinkOptions};
use tabla_testkit::case::Case;
use tabla_testkit::changes::check_changed;
use tabla_testkit::ops::{cases, expected};
use tabla_testkit::rig::{Device, alone, compare, near, pages, run_case, state, table, tensors};

/// A CPU device at a level.
fn cpu(level: Level, precision: Precision, threads: u32) -> Device {
    cpu_of(
        LinkOptions::default()
            .threads(threads)
            .level(level)
            .precision(precision)
            .packed_bytes(u64::MAX),
    )
}

fn cpu_of(options: LinkOptions) -> Device {
    Device {
        name: format!("{options:?}"),
        profile: tabla_cpu::profile(&options).expect("an available level"),
        link: Box::new(move |program| tabla_cpu::link(program, &options)),
    }
}

const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

/// Cases of each operation: all, or the first under Miri, which runs programs several hundred times more slowly.
const CASES_MAX: usize = if cfg!(miri) { 1 } else { usize::MAX };

fn for_each_case(mut check: impl FnMut(Op, &Case)) {
    for op in Op::ALL {
        for case in cases(*op).iter().take(CASES_MAX) {
            check(*op, case);
        }
    }
}

fn unchanged(_: &str, _: &mut Vec<u8>) {}

#[test]
fn scalar_level_matches_formulas() {
    let device = cpu(Level::Scalar, Precision::Exact, 1);
    for_each_case(|op, case| {
        let outcome = run_case(op, case, &device, &unchanged);
        for (name, expected) in expected(op, &outcome) {
            let what = format!("{op:?} {}: {name}", case.name);
            near(
                &what,
                &expected,
                &outcome.results(name),
                2e-5f32.max(case.tolerance),
            );
        }
    });
}

#[test]
fn all_levels_match_scalar_level() {
    for precision in PRECISIONS {
        for_each_case(|op, case| {
            let scalar = cpu(Level::Scalar, precision, 1);
            let reference = run_case(op, case, &scalar, &unchanged);
            for level in Level::available() {
                let device = cpu(level, precision, 1);
                let found = run_case(op, case, &device, &unchanged);
                let what = format!("{op:?} {} on {}", case.name, device.name);
                compare(&what, &reference, &found, case.tolerance);
            }
        });
    }
}

#[test]
fn fast_precision_is_close_to_exact() {
    for_each_case(|op, case| {
        let [exact, fast] =
            PRECISIONS.map(|p| run_case(op, case, &cpu(Level::Scalar, p, 1), &unchanged));
        let tolerance = case.tolerance * 2e3;
        compare(&format!("{op:?} {}", case.name), &exact, &fast, tolerance);
    });
}

#[test]
fn result_is_independent_of_thread_count() {
    for level in Level::available() {
        for precision in PRECISIONS {
            for_each_case(|op, case| {
                let one = run_case(op, case, &cpu(level, precision, 1), &unchanged);
                for threads in [3, 7] {
                    let device = cpu(level, precision, threads);
                    let found = run_case(op, case, &device, &unchanged);
                    let what = format!("{op:?} {} on {}", case.name, device.name);
                    compare(&what, &one, &found, 0.0);
                }
            });
        }
    }
}

/// Recomputes tokens of attention's cases: alone in the batch's table, and in a single-token table.
#[test]
fn attention_is_independent_of_tiling() {
    for level in Level::available() {
        let device = cpu(level, Precision::Exact, 2);
        for case in cases(Op::Attention) {
            let all = run_case(Op::Attention, case, &device, &unchanged);
            let p: attention::Params = all.params();
            let width = (p.heads * p.head_dim) as usize * size_of::<f32>();
            for t in (0..case.live as usize).step_by(5) {
                let expected = &all.after["y"][t * width..][..width];
                let alone = alone(&all, t, width);
                let found = run_case(Op::Attention, case, &device, &alone);
                let what = format!("{} {}, row {t}", case.name, device.name);
                assert!(&found.after["y"][..width] == expected, "{what} alone");
                let single = Case {
                    tokens: 1,
                    live: 1,
                    ..*case
                };
                if pages(&single) != pages(case) {
                    continue;
                }
                for threads in [1, 7] {
                    let device = cpu(level, Precision::Exact, threads);
                    let found = run_case(Op::Attention, &single, &device, &alone);
                    assert!(found.after["y"] == expected, "{what} by {threads} threads");
                }
            }
        }
    }
}

#[test]
fn result_is_independent_of_packing() {
    for level in Level::available() {
        let options = LinkOptions::default()
            .threads(1)
            .level(level)
            .precision(Precision::Fast)
            .packed_bytes(u64::MAX);
        let mapped = cpu_of(options.packed_bytes(0));
        for_each_case(|op, case| {
            let packed = run_case(op, case, &cpu_of(options), &unchanged);
            let found = run_case(op, case, &mapped, &unchanged);
            let what = format!("{op:?} {} on {}", case.name, mapped.name);
            compare(&what, &packed, &found, 0.0);
        });
    }
}

#[test]
fn gemm_matches_gemv_bitwise() {
    let pairs = [(Op::Gemv, Op::Gemm), (Op::GemvAdd, Op::GemmAdd)];
    for level in Level::available() {
        for precision in PRECISIONS {
            let device = cpu(level, precision, 2);
            for (one, many) in pairs {
                for (alone, batch) in cases(one).iter().zip(cases(many)) {
                    assert_eq!(alone.name, batch.name);
                    let all = run_case(many, batch, &device, &unchanged);
                    for t in 0..batch.live as usize {
                        let row = |name: &str, bytes: &mut Vec<u8>| {
                            if name != "state" {
                                let len = bytes.len();
                                bytes.copy_from_slice(&all.before[name][t * len..][..len]);
                            }
                        };
                        let single = run_case(one, alone, &device, &row);
                        let expected = &single.after["y"];
                        let found = &all.after["y"][t * expected.len()..][..expected.len()];
                        assert!(found == expected, "{many:?} {} {}", batch.name, device.name);
                    }
                }
            }
        }
    }
}

/// Recomputes tokens of products grouped by expert with the table of a single token.
#[test]
fn grouped_products_match_single_tokens_bitwise() {
    for level in Level::available() {
        for precision in PRECISIONS {
            let device = cpu(level, precision, 2);
            for case in cases(Op::GroupedGemm) {
                let all = run_case(Op::GroupedGemm, case, &device, &unchanged);
                let single = Case {
                    tokens: 1,
                    live: 1,
                    ..*case
                };
                for t in (0..case.live as usize).step_by(5) {
                    let row = |name: &str, bytes: &mut Vec<u8>| {
                        if name != "state" {
                            let len = bytes.len();
                            bytes.copy_from_slice(&all.before[name][t * len..][..len]);
                        }
                    };
                    let found = run_case(Op::Experts, &single, &device, &row);
                    let found = &found.after["y"];
                    let expected = &all.after["y"][t * found.len()..][..found.len()];
                    assert!(
                        found == expected,
                        "{}, row {t} on {}",
                        case.name,
                        device.name
                    );
                }
            }
        }
    }
}

#[test]
fn no_active_rows_write_nothing() {
    for level in Level::available() {
        for_each_case(|op, case| {
            let device = cpu(level, Precision::Fast, 2);
            let no_live_rows = |name: &str, bytes: &mut Vec<u8>| {
                if name == "state" {
                    bytes[..4].fill(0);
                }
            };
            let outcome = run_case(op, case, &device, &no_live_rows);
            for (name, after) in &outcome.after {
                let same = after == &outcome.before[name];
                assert!(same, "{op:?} {}: {name} was modified", case.name);
            }
        });
    }
}

#[test]
fn changed_operands_match_formulas() {
    for level in Level::available() {
        check_changed(&cpu(level, Precision::Exact, 2));
    }
}

#[test]
fn buffer_accesses_are_bounds_checked() {
    let case = &cases(Op::Advance)[0];
    let device = cpu(Level::Scalar, Precision::Exact, 1);
    let program = Program {
        tables: Arc::from([table(case, &device)]),
        tensors: Arc::new(tensors(case)),
    };
    let mut executor = (device.link)(program).expect("the program links");
    let mut bytes = [0; 8];
    for (place, offset) in [
        (BufferId::Keys(3), 0),
        (BufferId::Weight(0, 0), 0),
        (BufferId::History, 4 * 8 - 7),
        (BufferId::History, usize::MAX),
    ] {
        let error = executor.read(place, offset, &mut bytes);
        let error = error.expect_err("outside the buffer");
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }
    let history: Vec<u32> = (0..8).collect();
    let all = bytemuck::cast_slice(&history);
    executor
        .write(BufferId::History, 0, all)
        .expect("the range is inside the buffer");
    executor
        .duplicate(BufferId::History, 4, 16, 12)
        .expect("ranges do not overlap");
    let mut now = vec![0; all.len()];
    executor
        .read(BufferId::History, 0, &mut now)
        .expect("the range is inside the buffer");
    assert_eq!(
        bytemuck::pod_collect_to_vec::<u8, u32>(&now),
        [0, 1, 2, 3, 1, 2, 3, 7]
    );
    for (from, to, bytes) in [(4, 8, 8), (0, 28, 8), (usize::MAX, 0, 4)] {
        let error = executor.duplicate(BufferId::History, from, to, bytes);
        let error = error.expect_err("ranges overlap or exceed the buffer");
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }
    let error = executor
        .run(0, (0..3).into(), 1)
        .expect_err("the table has two commands");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let error = executor
        .run(1, (0..1).into(), 1)
        .expect_err("the program has one table");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
}

#[test]
fn burst_ends_when_all_rows_are_finished() {
    let case = &cases(Op::Advance)[0];
    for threads in [1, 2, 3] {
        let device = cpu(Level::Scalar, Precision::Exact, threads);
        let program = Program {
            tables: Arc::from([table(case, &device)]),
            tensors: Arc::new(tensors(case)),
        };
        let mut executor = (device.link)(program).expect("the program links");
        executor
            .write(BufferId::State, 0, &state(case))
            .expect("the range is inside the buffer");
        executor
            .run(0, (0..2).into(), 100)
            .expect("the commands run");
        let mut bytes = vec![0; ROWS_OFFSET + size_of::<Row>()];
        executor
            .read(BufferId::State, 0, &mut bytes)
            .expect("the range is inside the buffer");
        let found: State = bytemuck::pod_read_unaligned(&bytes[..ROWS_OFFSET]);
        let row: Row = bytemuck::pod_read_unaligned(&bytes[ROWS_OFFSET..]);
        // From position 3 of 8: tokens at 4, 5, 6, 7, and one beyond the context.
        assert_eq!(
            (found.step, found.active_rows, row.done, row.position),
            (5, 0, 2, 8)
        );
    }
}

#[test]
fn f16_encoding_matches_half() {
    // The test runner decodes caches with tabla-quant; kernels round with half.
    let x = 0.1f32;
    let mut bytes = Vec::new();
    tabla_quant::encode_row(DType::F16, &[x], &mut bytes);
    assert_eq!(bytes, f16::from_f32(x).to_le_bytes());
}

/// Moves every page of a cache to the place of another one.
fn rotate_pages(bytes: &mut [u8], pool: usize) {
    bytes.rotate_right(bytes.len() / pool);
}

#[test]
fn result_is_independent_of_page_placement() {
    for level in Level::available() {
        let device = cpu(level, Precision::Exact, 2);
        for op in [
            Op::RopeKv,
            Op::RopeKeys,
            Op::PreviousRow,
            Op::Attention,
            Op::AttendPart,
            Op::AttentionWeights,
        ] {
            for case in cases(op) {
                let here = run_case(op, case, &device, &|_, _| {});
                let pool = here.slots["k_cache"].rows / PAGE;
                let there = run_case(op, case, &device, &|name, bytes| match name {
                    "k_cache" | "v_cache" => rotate_pages(bytes, pool as usize),
                    "pages" => {
                        let entries = bytemuck::cast_slice_mut::<u8, u32>(bytes);
                        entries
                            .iter_mut()
                            .for_each(|page| *page = (*page + 1) % pool);
                    }
                    _ => {}
                });
                for (name, expected) in &here.after {
                    let mut expected = expected.clone();
                    if name.ends_with("cache") {
                        rotate_pages(&mut expected, pool as usize);
                    }
                    let same = expected == there.after[name];
                    assert!(same, "{op:?} {} on {}: {name}", case.name, device.name);
                }
            }
        }
    }
}
