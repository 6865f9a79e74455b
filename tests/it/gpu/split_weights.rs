//! Tests that weights over the binding limit of a device, which are split, give the same bits.

use super::fixture::{Fixture, Weight, active_rows, floats, shape};
use super::types::{FULL, matrix};
use crate::common::is_gpu_slow;
use tabla::device::Profile;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla::op::table::KernelId;
use tabla::plan::builder::{Builder, Router, RouterVectors};

const ROWS: u32 = 200;
const COLS: u32 = 512;
const EXPERTS: u32 = 5;
/// Number of commands of an operation if three tiles of rows fit into a binding.
const PARTS: usize = 4;

#[test]
fn split_weights_give_the_same_bits() {
    let Some(device) = super::device(1) else {
        return;
    };
    for dtype in KernelId::dtypes(Op::Embed) {
        // Products and embedding: the other operations decode weights as they do.
        let ops = match FULL.contains(&dtype) || !is_gpu_slow() {
            true => usize::MAX,
            false => 2,
        };
        for tokens in [1, 70] {
            let weights = ["w", "experts"].map(|name| matrix(name, dtype, ROWS, COLS).weight);
            let profile = device.profile();
            let small = Profile {
                binding_bytes_max: (profile.weight_bytes)(dtype, 70, COLS),
                ..profile.clone()
            };
            let one = results(&device, profile, [1, 1], &weights, tokens, ops);
            let counts = [PARTS, EXPERTS as usize];
            let many = results(&device, &small, counts, &weights, tokens, ops);
            for ((name, one), (_, many)) in one.iter().zip(&many) {
                let differ = one.iter().zip(many).position(|(a, b)| a != b);
                assert_eq!(differ, None, "{dtype}, {name:?} of {tokens} tokens");
            }
        }
    }
}

/// Emits every operation on the rows of a matrix.
fn emit(b: &mut Builder<'_>) {
    let (w, x) = (b.weight("w", ROWS, COLS), b.input("x", COLS));
    let sum = b.input("sum", ROWS);
    b.mat("y", w, x);
    b.mat_add(w, x, sum);
    let h = b.embed(w);
    b.embed_add(w, h, 1, 1);
    let router = b.input("router", EXPERTS);
    let (routes, _) = b.route(router, Router::softmax(3), RouterVectors::default());
    let w = b.weight("experts", ROWS, COLS);
    b.experts("e", w, x, routes);
}

/// Returns the result of each of the first operations; checks its number of commands, for rows and for experts.
fn results(
    device: &Device,
    profile: &Profile,
    [of_rows, of_experts]: [usize; 2],
    weights: &[Weight],
    tokens: u32,
    ops: usize,
) -> Vec<(Op, Vec<u8>)> {
    let mut fixture = Fixture::with(device, profile, shape(tokens), weights.to_vec(), emit);
    let (one, added, experts) = match tokens {
        1 => (Op::Gemv, Op::GemvAdd, Op::Experts),
        _ => (Op::Gemm, Op::GemmAdd, Op::GroupedGemm),
    };
    let ids: Vec<_> = (0..tokens).map(|t| (3 * t % (ROWS + 9), 5 * t)).collect();
    fixture.state(active_rows(tokens), &ids);
    let mut results = Vec::new();
    let all = [
        (one, "y", &[("x", COLS)][..]),
        (Op::Embed, "h", &[]),
        (added, "sum", &[("x", COLS), ("sum", ROWS)]),
        (Op::EmbedAdd, "h", &[("h", COLS)]),
        (experts, "e", &[("x", COLS)]),
    ];
    for (op, name, set) in all.into_iter().take(ops) {
        for (seed, (name, cols)) in (1..).zip(set) {
            fixture.put(name, &floats(seed, (cols * tokens) as usize));
        }
        if op == experts {
            // One of the ids is invalid.
            let ids: Vec<u32> = (0..3 * tokens).map(|i| i % (EXPERTS + 1)).collect();
            let ids: Vec<f32> = bytemuck::cast_vec(ids);
            fixture.put("ids", &ids);
            if op == Op::GroupedGemm {
                fixture.run_op(Op::GroupByExpert);
            }
        }
        let cmds =
            (0..fixture.table.cmds.len()).filter(|at| fixture.table.cmds[*at].kernel.op == op);
        let cmds: Vec<usize> = cmds.collect();
        let (first, count) = (cmds[0], cmds.len());
        assert_eq!(
            count,
            if op == experts { of_experts } else { of_rows },
            "{op:?}"
        );
        fixture
            .executor
            .run(0, (first..first + count).into(), 1)
            .unwrap();
        results.push((op, fixture.bytes(name)));
    }
    results
}
