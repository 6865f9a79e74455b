//! Tests of weights of every storage type with kernels, against decode-then-multiply in f64.

use super::fixture::{
    Fixture, UNTOUCHED, Weight, active_rows, assert_close, integers, shape, wide, with_untouched,
};
use crate::common::is_gpu_slow;
use half::f16;
use std::sync::Arc;
use tabla::device::KernelVariant;
use tabla::dtype::DType;
use tabla::exec::gpu::Device;
use tabla::op::list::Op;
use tabla::op::table::KernelId;
use tabla::plan::builder::{Router, RouterVectors};
use tabla_testkit::fill::Filling;

/// Matrices: name, rows, and number of active rows of 512 tokens.
const SHAPES: [(&str, u32, u32); 5] = [
    ("a", 1, 512),
    ("b", 2, 33),
    ("c", 7, 7),
    ("d", 33, 2),
    ("e", 512, 1),
];
const TOKENS: u32 = 512;
/// Index of the matrix that is also tested with addition and embedding.
const ADDED: usize = 3;
/// Experts with more than a tile of rows.
const EXPERTS: u32 = 3;
const EXPERT_ROWS: u32 = 76;

/// Types of `types_shortly` with added products and experts: floats, codes of one and of two planes, grids,
/// groups, and rows that share bytes. The other types differ from them in the decoding of a block, which products
/// test: a software GPU compiles a kernel for half a second.
pub(super) const FULL: [DType; 6] = [
    DType::F32,
    DType::Q8_0,
    DType::Q6K,
    DType::Iq3Xxs,
    DType::Affine4,
    DType::Ternary,
];

/// Checks all operations with weights of every type.
pub(super) fn types(device: &Device) -> f64 {
    let of_type = |dtype| {
        let matrices = matrices(dtype);
        products(device, &matrices, 1, Some(ADDED))
            .max(products(device, &matrices, TOKENS, Some(ADDED)))
            .max(experts(device, &matrices))
    };
    KernelId::dtypes(Op::Embed).map(of_type).fold(0.0, f64::max)
}

/// As `types`, with fewer tokens: two tiles; added products and experts only with the types of `FULL`.
pub(super) fn types_shortly(device: &Device) -> f64 {
    let of_type = |dtype| type_shortly(device, dtype, &[1, 67]);
    KernelId::dtypes(Op::Embed).map(of_type).fold(0.0, f64::max)
}

/// As `types_shortly`, with the types of `FULL` only.
pub(super) fn few_types(device: &Device) -> f64 {
    let of_type = |dtype| type_shortly(device, dtype, &[1, 67]);
    FULL.into_iter().map(of_type).fold(0.0, f64::max)
}

/// As `types_shortly`, with the types and numbers of tokens for which a kernel variant of the device has products. A
/// software GPU multiplies only the types of `FULL` with both numbers: the code that decodes a type is the same.
pub(super) fn types_with_variant(device: &Device) -> f64 {
    let variants = &device.profile().variants;
    // These kernels compute at most eight tokens.
    let is_few = |v: &KernelVariant| matches!(v, KernelVariant::Few | KernelVariant::FewInt8);
    let many = if variants.iter().any(is_few) { 7 } else { 67 };
    let has_variant = |op: Op, dtype| {
        KernelId::all(op, Some(dtype), variants).any(|kernel| kernel.variant.is_some())
    };
    let of_type = |dtype| {
        let sizes = [(1, Op::Gemv), (many, Op::Gemm)];
        let sizes = sizes.into_iter().filter(|(_, op)| has_variant(*op, dtype));
        let count = if FULL.contains(&dtype) || !is_gpu_slow() {
            2
        } else {
            1
        };
        let sizes: Vec<u32> = sizes.map(|(tokens, _)| tokens).take(count).collect();
        match sizes.is_empty() {
            true => 0.0,
            false => type_shortly(device, dtype, &sizes),
        }
    };
    KernelId::dtypes(Op::Embed).map(of_type).fold(0.0, f64::max)
}

fn type_shortly(device: &Device, dtype: DType, sizes: &[u32]) -> f64 {
    let matrices = matrices(dtype);
    let is_full = FULL.contains(&dtype);
    let added = is_full.then_some(ADDED);
    let errors = sizes
        .iter()
        .map(|tokens| products(device, &matrices, *tokens, added));
    let error = errors.fold(0.0, f64::max);
    match is_full {
        true => error.max(experts(device, &matrices)),
        false => error,
    }
}

fn matrices(dtype: DType) -> Vec<Numbers> {
    // Columns: whole tiles of every kernel, and partial tiles if the type allows them.
    let cols = match dtype {
        DType::F32 | DType::F16 | DType::Bf16 | DType::E4m3 => [512, 77],
        _ if dtype.facts().block == 256 => [512, 768],
        _ if dtype.facts().block > 32 => [512, 384],
        _ => [512, 352],
    };
    // In these types four rows share bytes, or blocks span rows.
    let rows_least = match dtype {
        DType::Ternary | DType::I2S => 4,
        _ => 1,
    };
    SHAPES
        .iter()
        .zip(cols.iter().cycle())
        .map(|((name, rows, _), &cols)| {
            matrix(name, dtype, rows.next_multiple_of(rows_least), cols)
        })
        .collect()
}

fn experts(device: &Device, matrices: &[Numbers]) -> f64 {
    let Weight { dtype, cols, .. } = matrices[1].weight;
    let experts = matrix("experts", dtype, EXPERTS * EXPERT_ROWS, cols);
    of_experts(device, &experts)
}

/// A matrix and its numbers.
pub(super) struct Numbers {
    pub(super) weight: Weight,
    decoded: Vec<f64>,
}

/// Checks products of every matrix with its number of tokens, those of matrix `added` also added, and embedding.
fn products(device: &Device, matrices: &[Numbers], tokens: u32, added: Option<usize>) -> f64 {
    let weights = matrices.iter().map(|m| m.weight.clone()).collect();
    let mut fixture = Fixture::new(device, shape(tokens), weights, |b| {
        for m in matrices.iter().map(|m| &m.weight) {
            let w = b.weight(m.name, m.rows, m.cols);
            let x = b.input(&format!("x {}", m.name), m.cols);
            b.mat(&format!("y {}", m.name), w, x);
        }
        let m = &matrices[ADDED].weight;
        let w = b.weight(m.name, m.rows, m.cols);
        if added.is_some() {
            let (x, sum) = (b.input("x", m.cols), b.input("sum", m.rows));
            b.mat_add(w, x, sum);
        }
        b.embed(w);
    });
    let mut worst = 0.0;
    for (i, (m, (_, _, alive))) in matrices.iter().zip(SHAPES).enumerate() {
        let names = ["x", "y"].map(|slot| format!("{slot} {}", m.weight.name));
        let error = product(&mut fixture, i, m, &names, alive.min(tokens));
        worst = error.max(worst);
    }
    if let Some(m) = added.map(|added| &matrices[added]) {
        let names = ["x", "sum"].map(String::from);
        worst = worst.max(product(&mut fixture, SHAPES.len(), m, &names, tokens));
    }
    worst.max(look_up(&mut fixture, &matrices[ADDED], tokens))
}

/// Checks command `at`, `y = W x` or `y += W x`. Commands share memory, so x and y are rewritten.
fn product(
    fixture: &mut Fixture,
    at: usize,
    m: &Numbers,
    [x_name, y_name]: &[String; 2],
    alive: u32,
) -> f64 {
    let [rows, cols] = [m.weight.rows, m.weight.cols].map(|n| n as usize);
    let tokens = fixture.table.tokens as usize;
    let kernel = fixture.table.cmds[fixture.range(at).end - 1].kernel;
    let adds = matches!(kernel.op, Op::GemvAdd | Op::GemmAdd);
    let before = if adds { f64::from(UNTOUCHED) } else { 0.0 };
    let x = integers(at as u64, cols, tokens);
    fixture.state(active_rows(alive), &[]);
    fixture.put(x_name, &x);
    fixture.put(y_name, &vec![UNTOUCHED; rows * tokens]);
    fixture.run_nth(at);
    let x = wide(&x[..cols * alive as usize]);
    let w = kernel_weights(kernel, m);
    let mut sums = Sums::default();
    for x in x.chunks(cols) {
        w.chunks(cols).for_each(|w| sums.push(before, w, x));
    }
    let what = format!("{} {y_name}, {alive} of {tokens}", m.weight.dtype);
    sums.check(&what, &fixture.get(y_name))
}

/// Returns the weights in the precision of a kernel: f16 for cooperative matrices. The activations
/// are exact in all variants.
fn kernel_weights(kernel: KernelId, m: &Numbers) -> Vec<f64> {
    let in_f16 = kernel.name().contains("matrix");
    let round = |w: &f64| f16::from_f64(*w).to_f64();
    match in_f16 {
        true => m.decoded.iter().map(round).collect(),
        false => m.decoded.clone(),
    }
}

/// Expected results of products.
#[derive(Default)]
struct Sums {
    expected: Vec<f64>,
    /// Largest sum of term magnitudes, which scales the tolerance because terms cancel.
    size: f64,
}

impl Sums {
    fn push(&mut self, before: f64, w: &[f64], x: &[f64]) {
        let terms = w.iter().zip(x).map(|(w, x)| w * x);
        self.expected.push(before + terms.clone().sum::<f64>());
        self.size = terms.map(f64::abs).sum::<f64>().max(self.size);
    }

    /// Checks the results; elements after them must be unchanged.
    fn check(self, what: &str, actual: &[f32]) -> f64 {
        let largest = self.expected.iter().fold(0.0, |m: f64, y| m.max(y.abs()));
        let expected = with_untouched(self.expected, actual.len());
        assert_close(
            what,
            actual,
            &expected,
            1e-6 * (self.size / largest).max(1.0),
        )
    }
}

/// Checks experts with more pairs than a tile, without pairs and with few, and invalid expert ids.
fn of_experts(device: &Device, m: &Numbers) -> f64 {
    let (tokens, alive, k) = (40, 33, 2);
    let Weight {
        name, rows, cols, ..
    } = m.weight;
    let mut fixture = Fixture::new(device, shape(tokens), vec![m.weight.clone()], |b| {
        let (w, x) = (b.weight(name, rows, cols), b.input("x", cols));
        let router = b.input("router", EXPERTS);
        let (routes, _) = b.route(router, Router::softmax(k), RouterVectors::default());
        b.experts("y", w, x, routes);
    });
    fixture.state(active_rows(alive), &[]);
    let ids: Vec<u32> = (0..tokens * k)
        .map(|i| [0, 0, 2, 0, EXPERTS][i as usize % 5])
        .collect();
    fixture.put("ids", &bytemuck::cast_vec(ids.clone()));
    let x = integers(9, cols as usize, tokens as usize);
    fixture.put("x", &x);
    fixture.put("y", &vec![UNTOUCHED; (tokens * k * EXPERT_ROWS) as usize]);
    fixture.run_op(Op::GroupByExpert);
    fixture.run_op(Op::GroupedGemm);
    let (x, w) = (
        wide(&x),
        kernel_weights(fixture.table.cmds.last().unwrap().kernel, m),
    );
    let mut sums = Sums::default();
    for (pair, &id) in ids[..(alive * k) as usize].iter().enumerate() {
        let x = &x[pair / k as usize * cols as usize..][..cols as usize];
        for row in id * EXPERT_ROWS..(id + 1) * EXPERT_ROWS {
            let w = w.chunks(cols as usize).nth(row as usize);
            sums.push(0.0, w.unwrap_or_default(), x);
        }
    }
    sums.check(&format!("{} experts", m.weight.dtype), &fixture.get("y"))
}

/// Checks embedding of valid and invalid token ids.
fn look_up(fixture: &mut Fixture, m: &Numbers, tokens: u32) -> f64 {
    let (rows, cols) = (m.weight.rows, m.weight.cols as usize);
    let ids: Vec<_> = (0..tokens).map(|t| ((5 * t + 3) % (rows + 1), 0)).collect();
    fixture.state(active_rows(tokens), &ids);
    fixture.run_op(Op::Embed);
    let zeros = vec![0.0; cols];
    let row = |&(id, _): &(u32, u32)| {
        let actual = m.decoded.chunks(cols).nth(id as usize);
        actual.unwrap_or(&zeros).to_vec()
    };
    let expected: Vec<f64> = ids.iter().flat_map(row).collect();
    let what = format!("{} embed, {tokens} tokens", m.weight.dtype);
    assert_close(&what, &fixture.get("h"), &expected, 1e-6)
}

pub(super) fn matrix(name: &'static str, dtype: DType, rows: u32, cols: u32) -> Numbers {
    let filling = Arc::new(Filling::random(name, dtype, [rows, cols]));
    Numbers {
        decoded: wide(&filling.numbers()),
        weight: Weight {
            name,
            dtype,
            rows,
            cols,
            bytes: filling.bytes.clone(),
            scale: None,
            filling: Some(filling),
        },
    }
}
