//! Every kernel of the GPU against its formula in f64, over odd shapes; and what the executor
//! promises beside: chains, errors, a lost device.
//!
//! Runs on any adapter, software too (lavapipe). Without one it skips loudly, or fails where
//! `TABLA_REQUIRE_GPU=1`.

use half::{bf16, f16};
use std::io::Write as _;
use std::sync::Arc;
use tabla::device::Profile;
use tabla::dtype::DType;
use tabla::error::ErrorKind;
use tabla::exec::gpu::{self, Device, Options};
use tabla::exec::state::{FULL, ROWS_OFFSET, Row, STOPPED, State};
use tabla::exec::{Executor, Program, Tensors};
use tabla::op::builder::{Builder, Heads, LogitRows, Shape, W, WeightInfo, Weights};
use tabla::op::list::Op;
use tabla::op::table::{Place, Table};
use tabla::plan;

/// A check gives the greatest error it found, relative to the largest number of the result.
type Check = fn(&Device) -> f64;

const CHECKS: &[(&str, Check)] = &[
    ("embed", embed),
    ("rms_norm", rms_norm),
    ("gemv", gemv),
    ("gemm", gemm),
    ("gemm, the same bits in any company", gemm_bits),
    ("grids that go on in z", wide_grid),
    ("add_bias", add_bias),
    ("rope_kv", rope_kv),
    ("attention", attention),
    ("swiglu", swiglu),
    ("last_row", last_row),
    ("penalize", penalize),
    ("top_k", top_k),
    ("top_p", top_p),
    ("min_p", min_p),
    ("gumbel", gumbel),
    ("argmax", argmax),
    ("chain", chain),
    ("a dead state", dead),
    ("read and write", read_write),
    ("too large", too_large),
    ("shader folder", shader_folder),
];

const DTYPES: [DType; 6] = [
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
];

fn software() -> Options {
    Options {
        allow_software: true,
        ..Options::default()
    }
}

fn say(line: std::fmt::Arguments<'_>) {
    writeln!(std::io::stderr(), "gpu: {line}").expect("stderr is open");
}

/// The device, or `None` after saying what is skipped.
fn device(cases: usize) -> Option<Device> {
    let device = gpu::open(&software()).expect("the driver opens its device");
    if device.is_none() {
        let required = std::env::var("TABLA_REQUIRE_GPU").is_ok_and(|v| v == "1");
        assert!(!required, "0 adapters, and TABLA_REQUIRE_GPU=1");
        say(format_args!("0 ADAPTERS: {cases} GPU CASES SKIPPED"));
    }
    device
}

#[test]
fn kernels_follow_their_formulas() {
    let Some(device) = device(CHECKS.len()) else {
        return;
    };
    say(format_args!("{}", device.profile()));
    for (name, check) in CHECKS {
        let error = check(&device);
        say(format_args!("{name}: error {error:.1e}"));
    }
}

#[test]
fn a_lost_device_is_an_error_from_then_on() {
    let Some(device) = device(1) else { return };
    let mut rig = Rig::new(&device, shape(1), vec![], |b| {
        let x = b.input("x", 8);
        b.swiglu(x, x);
    });
    rig.run();
    device.destroy();
    let lost = |result: tabla::error::Result<()>| {
        assert_eq!(
            result.expect_err("it is lost").kind(),
            ErrorKind::DeviceLost
        );
    };
    let mut bytes = [0; 4];
    lost(rig.executor.run(0, 0..1, 1));
    lost(rig.executor.read(Place::State, 0, &mut bytes));
    lost(rig.executor.write(Place::State, 0, &bytes));
}

#[test]
fn adapters_are_listed_and_named() {
    if device(1).is_none() {
        return;
    }
    let adapters = gpu::adapters();
    let first = &adapters[0];
    assert!(first.lacks.is_empty(), "{first:?}");
    let by = |adapter: &str, allow_software| {
        gpu::open(&Options {
            adapter: Some(adapter.to_string()),
            allow_software,
            shader_folder: None,
        })
    };
    assert!(by("0", true).expect("it is there").is_some());
    assert!(
        by(&first.name.to_uppercase(), true)
            .expect("it is there")
            .is_some()
    );
    let error = by("no such adapter", true).expect_err("it is not there");
    assert_eq!(error.kind(), ErrorKind::Argument);
    if first.kind == "software" {
        let error = by("0", false).expect_err("software is not wanted");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

// A rig: one small table on the device.

struct Rig {
    executor: Box<dyn Executor>,
    table: Table,
}

#[derive(Clone)]
struct Weight {
    name: &'static str,
    dtype: DType,
    rows: u32,
    cols: u32,
    bytes: Vec<u8>,
}

struct Given(Vec<Weight>);

impl Weights for Given {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let i = self.0.iter().position(|w| w.name == name)?;
        let w = &self.0[i];
        Some(WeightInfo {
            index: u32::try_from(i).unwrap(),
            dtype: w.dtype,
            rows: w.rows,
            cols: w.cols,
        })
    }
}

/// Constant 0 is the weight named `freqs`.
impl Tensors for Given {
    fn weight(&self, index: u32) -> &[u8] {
        &self.0[index as usize].bytes
    }
    fn constant(&self, _: u32) -> &[u8] {
        &self
            .0
            .iter()
            .find(|w| w.name == "freqs")
            .expect("given")
            .bytes
    }
}

fn shape(tokens: u32) -> Shape {
    Shape {
        name: "test",
        tokens,
        logits: LogitRows::Last,
        context: 512,
        cache: DType::F32,
    }
}

impl Rig {
    fn new(device: &Device, shape: Shape, w: Vec<Weight>, emit: impl Fn(&mut Builder<'_>)) -> Self {
        Self::with(device, device.profile(), shape, w, emit)
    }

    fn with(
        device: &Device,
        profile: &Profile,
        shape: Shape,
        weights: Vec<Weight>,
        emit: impl Fn(&mut Builder<'_>),
    ) -> Self {
        let given = Arc::new(Given(weights));
        let mut builder = Builder::new(&*given, shape);
        emit(&mut builder);
        let table = plan::compile(builder.finish().unwrap(), profile).unwrap();
        let program = Program {
            tables: Arc::new([table.clone()]),
            tensors: given.clone(),
        };
        let executor = gpu::link(device.clone(), program).unwrap();
        let mut rig = Self { executor, table };
        rig.state(live(shape.tokens), &vec![(0, 0); shape.tokens as usize]);
        rig
    }

    fn place(&self, name: &str) -> (Place, usize) {
        let slot = self.table.slots.iter().find(|s| s.name == name);
        let slot = slot.unwrap_or_else(|| panic!("{name} in {:?}", self.table.slots));
        (slot.place, usize::try_from(slot.bytes()).unwrap())
    }

    fn put(&mut self, name: &str, values: &[f32]) {
        let (place, _) = self.place(name);
        let bytes = bytemuck::cast_slice(values);
        self.executor.write(place, 0, bytes).unwrap();
    }

    fn bytes(&mut self, name: &str) -> Vec<u8> {
        let (place, bytes) = self.place(name);
        let mut out = vec![0; bytes];
        self.executor.read(place, 0, &mut out).unwrap();
        out
    }

    fn get(&mut self, name: &str) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&self.bytes(name))
    }

    fn cached(&mut self, name: &str, dtype: DType) -> Vec<f64> {
        decode(dtype, &self.bytes(name))
    }

    /// Step state and the (token, position) of its rows.
    fn state(&mut self, state: State, rows: &[(u32, u32)]) {
        let rows: Vec<_> = rows
            .iter()
            .map(|&(token, position)| Row { token, position })
            .collect();
        let write = |e: &mut Box<dyn Executor>, at, bytes: &[u8]| e.write(Place::State, at, bytes);
        write(&mut self.executor, 0, bytemuck::bytes_of(&state)).unwrap();
        write(&mut self.executor, ROWS_OFFSET, bytemuck::cast_slice(&rows)).unwrap();
    }

    fn state_now(&mut self) -> (State, Row) {
        let bytes = self.bytes("state");
        let row = &bytes[ROWS_OFFSET..ROWS_OFFSET + size_of::<Row>()];
        let head = &bytes[..ROWS_OFFSET];
        (
            bytemuck::pod_read_unaligned(head),
            bytemuck::pod_read_unaligned(row),
        )
    }

    fn run(&mut self) {
        let all = 0..self.table.cmds.len();
        self.executor.run(0, all, 1).unwrap();
    }

    fn run_op(&mut self, op: Op) {
        let at = self.table.cmds.iter().position(|c| c.op == op).unwrap();
        self.executor.run(0, at..at + 1, 1).unwrap();
    }
}

fn live(live: u32) -> State {
    State {
        live,
        context: 512,
        temperature: 1.0,
        top_p: 1.0,
        repeat_penalty: 1.0,
        ..State::default()
    }
}

/// What rows that are not live hold before and after.
const UNTOUCHED: f32 = 7.25;

/// Splitmix64.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut s = seed;
    move || {
        s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (s ^ (s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Numbers in -1..1.
fn floats(seed: u64, n: usize) -> Vec<f32> {
    let mut next = random(seed);
    let unit = |r: u64| f64::from(u32::try_from(r >> 40).unwrap()) / f64::from(1 << 23) - 1.0;
    #[expect(clippy::cast_possible_truncation, reason = "24 bits")]
    (0..n).map(|_| unit(next()) as f32).collect()
}

/// A random weight in a storage type.
fn weight(name: &'static str, dtype: DType, rows: u32, cols: u32) -> Weight {
    let n = rows as usize * cols as usize;
    let seed = u64::from(rows) << 32 | u64::from(cols);
    let values = floats(seed, n);
    let half = |v: f32| f16::from_f32(v).to_le_bytes();
    let facts = dtype.facts();
    let mut next = random(seed ^ 1);
    let mut block = |header: &[f32]| {
        let mut bytes: Vec<u8> = header.iter().flat_map(|&v| half(v)).collect();
        while bytes.len() < facts.bytes {
            bytes.push(next().to_le_bytes()[3]);
        }
        bytes
    };
    let bytes = match dtype {
        DType::F16 => values.iter().flat_map(|&v| half(v)).collect(),
        DType::Bf16 => values
            .iter()
            .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
            .collect(),
        DType::Q4_1 => (0..n / 32).flat_map(|b| block(&values[b..b + 2])).collect(),
        DType::Q4_0 | DType::Q8_0 => (0..n / 32).flat_map(|b| block(&values[b..=b])).collect(),
        _ => bytemuck::cast_slice(&values).to_vec(),
    };
    Weight {
        name,
        dtype,
        rows,
        cols,
        bytes,
    }
}

/// What bytes of a file stand for.
fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let facts = dtype.facts();
    let half = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f64();
    let nibbles = |b: &[u8]| {
        let (low, high) = (b.iter().map(|n| n & 15), b.iter().map(|n| n >> 4));
        low.chain(high).map(f64::from).collect::<Vec<_>>()
    };
    let block = |b: &[u8]| match dtype {
        DType::F16 => vec![half(b)],
        DType::Bf16 => vec![bf16::from_le_bytes([b[0], b[1]]).to_f64()],
        DType::Q8_0 => b[2..]
            .iter()
            .map(|&q| half(b) * f64::from(q.cast_signed()))
            .collect(),
        DType::Q4_0 => nibbles(&b[2..])
            .iter()
            .map(|q| half(b) * (q - 8.0))
            .collect(),
        DType::Q4_1 => nibbles(&b[4..])
            .iter()
            .map(|q| half(b) * q + half(&b[2..]))
            .collect(),
        _ => vec![f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))],
    };
    bytes.chunks_exact(facts.bytes).flat_map(block).collect()
}

/// Columns worth trying: tails where the type allows them, and more than a workgroup takes at once.
fn odd_cols(dtype: DType) -> &'static [u32] {
    if dtype.facts().block == 1 {
        &[1, 13, 40, 517]
    } else {
        &[32, 96, 1056]
    }
}

/// Holds `found` against `wanted`, and gives the error.
fn close(what: &str, found: &[f32], wanted: &[f64], tolerance: f64) -> f64 {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let size = wanted
        .iter()
        .filter(|w| w.is_finite())
        .fold(1e-30, |m, w| w.abs().max(m));
    let mut worst = 0.0;
    for (i, (&f, &w)) in found.iter().zip(wanted).enumerate() {
        let error = if f64::from(f) == w {
            0.0
        } else {
            (f64::from(f) - w).abs() / size
        };
        assert!(
            error <= tolerance,
            "{what}: [{i}] is {f}, not {w}; error {error:.1e}"
        );
        worst = error.max(worst);
    }
    worst
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// `rows` of `wanted`, then rows that were not to be touched.
fn then_untouched(mut wanted: Vec<f64>, len: usize) -> Vec<f64> {
    wanted.resize(len, f64::from(UNTOUCHED));
    wanted
}

// Operations of a forward pass.

fn embed(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in DTYPES {
        for &cols in odd_cols(dtype) {
            let w = weight("w", dtype, 5, cols);
            let mut rig = Rig::new(device, shape(4), vec![w.clone()], |b| {
                let w = b.weight("w", 5, cols);
                b.embed(w);
            });
            rig.state(live(3), &[(4, 0), (9, 0), (1, 0), (2, 0)]);
            rig.put("h", &vec![UNTOUCHED; 4 * cols as usize]);
            rig.run();
            let rows = decode(dtype, &w.bytes);
            let row = |t: usize| rows[t * cols as usize..][..cols as usize].to_vec();
            let wanted = [row(4), vec![0.0; cols as usize], row(1)].concat();
            let wanted = then_untouched(wanted, 4 * cols as usize);
            let what = format!("embed {dtype} {cols}");
            worst = close(&what, &rig.get("h"), &wanted, 1e-6).max(worst);
        }
    }
    worst
}

fn rms_norm(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (groups, dim) in [(1, 5), (3, 130), (2, 1000)] {
        let w = weight("w", DType::F32, 1, dim);
        let mut rig = Rig::new(device, shape(3), vec![w.clone()], |b| {
            let (x, w) = (b.input("x", groups * dim), b.vector("w", dim));
            b.rms_norm(x, w, 1e-5);
        });
        let (n, dim) = ((3 * groups * dim) as usize, dim as usize);
        let (x, w) = (floats(1, n), decode(DType::F32, &w.bytes));
        rig.state(live(2), &[(0, 0); 3]);
        rig.put("x", &x);
        rig.put("n", &vec![UNTOUCHED; n]);
        rig.run();
        let wanted = wide(&x[..n / 3 * 2]);
        let wanted = wanted.chunks(dim).flat_map(|x| {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            x.iter()
                .zip(&w)
                .map(|(x, w)| x * scale * w)
                .collect::<Vec<_>>()
        });
        let wanted = then_untouched(wanted.collect(), n);
        worst = close("rms_norm", &rig.get("n"), &wanted, 1e-6).max(worst);
    }
    worst
}

/// `W x` for `live` of `tokens`, plain and added to what is there.
fn mat(device: &Device, dtype: DType, [rows, cols]: [u32; 2], [tokens, alive]: [u32; 2]) -> f64 {
    let w = weight("w", dtype, rows, cols);
    let mut rig = Rig::new(device, shape(tokens), vec![w.clone()], |b| {
        let (w, x, sum) = (
            b.weight("w", rows, cols),
            b.input("x", cols),
            b.input("sum", rows),
        );
        b.mat("y", w, x);
        b.mat_add(w, x, sum);
    });
    rig.state(live(alive), &vec![(0, 0); tokens as usize]);
    let (r, c) = (rows as usize, cols as usize);
    let (x, n) = (floats(2, c * tokens as usize), r * tokens as usize);
    rig.put("x", &x);
    rig.put("y", &vec![UNTOUCHED; n]);
    rig.put("sum", &vec![UNTOUCHED; n]);
    rig.run();
    let decoded = decode(dtype, &w.bytes);
    let x = wide(&x[..c * alive as usize]);
    let product = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    let y: Vec<_> = x
        .chunks(c)
        .flat_map(|x| decoded.chunks(c).map(|w| product(x, w)).collect::<Vec<_>>())
        .collect();
    let sum = y.iter().map(|y| y + f64::from(UNTOUCHED)).collect();
    let what = format!("mat {dtype} [{rows}, {cols}] {alive} of {tokens}");
    // Terms cancel, the more so the fewer rows there are to be large: their sum sets the scale.
    let size = y.iter().fold(1e-30, |m: f64, y| m.max(y.abs()));
    let tolerance = 3e-6 * (f64::from(cols) / 4.0 / size).max(1.0);
    let plain = close(&what, &rig.get("y"), &then_untouched(y, n), tolerance);
    let added = close(&what, &rig.get("sum"), &then_untouched(sum, n), tolerance);
    plain.max(added)
}

fn gemv(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in DTYPES {
        for &cols in odd_cols(dtype) {
            for rows in [1, 7] {
                worst = mat(device, dtype, [rows, cols], [1, 1]).max(worst);
            }
        }
    }
    worst
}

fn gemm(device: &Device) -> f64 {
    let mut worst = 0.0;
    for dtype in DTYPES {
        for &cols in odd_cols(dtype) {
            worst = mat(device, dtype, [67, cols], [5, 3]).max(worst);
        }
        worst = mat(device, dtype, [133, 64], [70, 69]).max(worst);
    }
    worst
}

fn gemm_bits(device: &Device) -> f64 {
    let (rows, cols, tokens) = (67, 544, 70);
    let w = weight("w", DType::Q4_0, rows, cols);
    let mut rig = Rig::new(device, shape(tokens), vec![w], |b| {
        let (w, x) = (b.weight("w", rows, cols), b.input("x", cols));
        b.mat("y", w, x);
    });
    let x = floats(3, (tokens * cols) as usize);
    let mut alone = |first: u32, alive: u32| {
        rig.state(live(alive), &[]);
        rig.put("x", &x[(first * cols) as usize..]);
        rig.run();
        rig.get("y")[..(alive * rows) as usize].to_vec()
    };
    let together = alone(0, 70);
    for first in [0, 3, 68] {
        let row = (first * rows) as usize;
        assert_eq!(
            alone(first, 2),
            together[row..row + 2 * rows as usize],
            "from {first}"
        );
    }
    0.0
}

fn wide_grid(device: &Device) -> f64 {
    let profile = Profile {
        grid_max: 7,
        ..device.profile().clone()
    };
    let (rows, cols) = (150, 32);
    let w = weight("w", DType::Q8_0, rows, cols);
    let mut rig = Rig::with(device, &profile, shape(1), vec![w.clone()], |b| {
        let (w, x) = (b.weight("w", rows, cols), b.input("x", cols));
        b.mat("y", w, x);
    });
    assert_eq!(rig.table.cmds[0].grid, [7, 1, 6]);
    let x = floats(4, cols as usize);
    rig.put("x", &x);
    rig.run();
    let (w, x) = (decode(DType::Q8_0, &w.bytes), wide(&x));
    let wanted = w
        .chunks(32)
        .map(|w| w.iter().zip(&x).map(|(w, x)| w * x).sum());
    close(
        "wide grid",
        &rig.get("y"),
        &wanted.collect::<Vec<f64>>(),
        1e-6,
    )
}

fn add_bias(device: &Device) -> f64 {
    let w = weight("b", DType::F32, 1, 300);
    let mut rig = Rig::new(device, shape(3), vec![w.clone()], |b| {
        let (y, w) = (b.input("y", 300), b.vector("b", 300));
        b.add_bias(w, y);
    });
    let y = floats(5, 900);
    rig.state(live(2), &[(0, 0); 3]);
    rig.put("y", &y);
    rig.run();
    let bias = decode(DType::F32, &w.bytes);
    let added = |i: usize| if i < 600 { bias[i % 300] } else { 0.0 };
    let wanted: Vec<_> = (0..900).map(|i| f64::from(y[i]) + added(i)).collect();
    close("add_bias", &rig.get("y"), &wanted, 1e-6)
}

fn swiglu(device: &Device) -> f64 {
    let mut rig = Rig::new(device, shape(3), vec![], |b| {
        let (gate, up) = (b.input("gate", 300), b.input("up", 300));
        b.swiglu(gate, up);
    });
    let gate: Vec<_> = floats(6, 900).iter().map(|v| v * v * v * 100.0).collect();
    let up = floats(7, 900);
    rig.state(live(2), &[(0, 0); 3]);
    rig.put("gate", &gate);
    rig.put("up", &up);
    rig.put("f", &[UNTOUCHED; 900]);
    rig.run();
    let silu = |g: f64| g / (1.0 + (-g).exp());
    let wanted = wide(&gate[..600]);
    let wanted = wanted.iter().zip(wide(&up)).map(|(&g, u)| silu(g) * u);
    close(
        "swiglu",
        &rig.get("f"),
        &then_untouched(wanted.collect(), 900),
        1e-6,
    )
}

fn last_row(device: &Device) -> f64 {
    let mut rig = Rig::new(device, shape(4), vec![], |b| {
        let h = b.input("h", 300);
        b.logit_rows(h);
    });
    let h = floats(8, 1200);
    rig.put("h", &h);
    rig.state(live(3), &[]);
    rig.run();
    close("last_row", &rig.get("last"), &wide(&h[600..900]), 0.0)
}

fn rope_kv(device: &Device) -> f64 {
    // head_dim, rope_dim, first position; positions and angles up to a million.
    let shapes = [
        (12, 12, 0),
        (12, 8, 500),
        (10, 6, 3),
        (64, 64, 70_000),
        (2, 2, 999_990),
    ];
    let mut worst = 0.0;
    for (head_dim, rope_dim, position) in shapes {
        for half_split in [false, true] {
            for cache in [DType::F32, DType::F16] {
                let at = Heads {
                    layer: 0,
                    heads: 4,
                    kv_heads: 2,
                    head_dim,
                    rope_dim,
                    half_split,
                };
                worst = rope_kv_case(device, at, position, cache).max(worst);
            }
        }
    }
    worst
}

fn rope_kv_case(device: &Device, at: Heads, position: u32, cache: DType) -> f64 {
    let freqs = Weight {
        bytes: (0..at.rope_dim / 2)
            .flat_map(|i| (0.5_f32).powi(i.cast_signed()).to_le_bytes())
            .collect(),
        ..weight("freqs", DType::F32, 1, at.rope_dim / 2)
    };
    let (d, heads, kv_heads) = (
        at.head_dim as usize,
        at.heads as usize,
        at.kv_heads as usize,
    );
    // The third of four rows is outside the context, the fourth is not live.
    let shape = Shape {
        context: position + 2,
        cache,
        ..shape(4)
    };
    let mut rig = Rig::new(device, shape, vec![freqs.clone()], |b| {
        let (q, k) = (
            b.input("q", at.heads * at.head_dim),
            b.input("k", at.kv_heads * at.head_dim),
        );
        let v = b.input("v", at.kv_heads * at.head_dim);
        b.rope_kv(at, q, k, v);
    });
    let state = State {
        context: position + 2,
        ..live(3)
    };
    rig.state(
        state,
        &[
            (0, position),
            (0, position + 1),
            (0, position + 2),
            (0, position),
        ],
    );
    let [q, k, v] = [(9, heads), (10, kv_heads), (11, kv_heads)].map(|(s, n)| floats(s, 4 * n * d));
    rig.put("q", &q);
    rig.put("k", &k);
    rig.put("v", &v);
    rig.run();
    let freqs = decode(DType::F32, &freqs.bytes);
    let turned = |x: &[f32], token: u32| {
        let mut out = wide(x);
        for (i, freq) in freqs.iter().enumerate() {
            let half = freqs.len();
            let (a, b) = if at.half_split {
                (i, i + half)
            } else {
                (2 * i, 2 * i + 1)
            };
            #[expect(clippy::cast_possible_truncation, reason = "the angle is f32")]
            let (sin, cos) = f64::from((f64::from(position + token) * freq) as f32).sin_cos();
            for head in out.chunks_mut(d) {
                let (x, y) = (head[a], head[b]);
                (head[a], head[b]) = (x * cos - y * sin, x * sin + y * cos);
            }
        }
        out
    };
    let rows = |x: &[f32]| {
        let row = x.len() / 4;
        [turned(&x[..row], 0), turned(&x[row..2 * row], 1)].concat()
    };
    let what = format!("{at:?} at {position}, {cache}");
    let wanted = [rows(&q), wide(&q[q.len() / 2..])].concat();
    let worst = close(&what, &rig.get("q"), &wanted, 1e-6);
    let tolerance = if cache == DType::F16 { 1e-3 } else { 1e-6 };
    for (name, wanted) in [("k.0", rows(&k)), ("v.0", wide(&v[..v.len() / 2]))] {
        let found = rig.cached(name, cache);
        let (before, rows) = found.split_at(found.len() - wanted.len());
        assert!(
            before.iter().all(|&x| x == 0.0),
            "{what}: {name} is written elsewhere"
        );
        #[expect(clippy::cast_possible_truncation, reason = "these were f16 or f32")]
        let rows: Vec<f32> = rows.iter().map(|&x| x as f32).collect();
        close(&format!("{what}: {name}"), &rows, &wanted, tolerance);
    }
    worst
}

fn attention(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (head_dim, position) in [(12, 0), (2, 5), (64, 126), (256, 300), (100, 261)] {
        for cache in [DType::F32, DType::F16] {
            worst = attention_case(device, head_dim, position, cache).max(worst);
        }
    }
    worst
}

fn attention_case(device: &Device, head_dim: u32, position: u32, cache: DType) -> f64 {
    let at = Heads {
        layer: 0,
        heads: 6,
        kv_heads: 2,
        head_dim,
        rope_dim: 0,
        half_split: false,
    };
    let mut rig = Rig::new(device, Shape { cache, ..shape(4) }, vec![], |b| {
        let q = b.input("q", at.heads * head_dim);
        b.attention(at, q, 0.7);
    });
    let d = head_dim as usize;
    rig.state(
        live(3),
        &[(0, position), (0, position + 1), (0, position + 2), (0, 0)],
    );
    let q = floats(12, 4 * 6 * d);
    rig.put("q", &q);
    rig.put("a", &vec![UNTOUCHED; q.len()]);
    let n = 512 * 2 * d;
    let mut fill = |name, seed| {
        let values = floats(seed, n);
        let bytes = match cache {
            DType::F16 => values
                .iter()
                .flat_map(|&v| f16::from_f32(v).to_le_bytes())
                .collect(),
            _ => bytemuck::cast_slice(&values).to_vec(),
        };
        let (place, _) = rig.place(name);
        rig.executor.write(place, 0, &bytes).unwrap();
        decode(cache, &bytes)
    };
    let (k, v) = (fill("k.0", 13), fill("v.0", 14));
    rig.run();
    let q = wide(&q);
    let mut wanted = Vec::new();
    for (i, q) in q.chunks(d).take(3 * 6).enumerate() {
        let (token, head) = (i / 6, i % 6);
        let count = position as usize + token + 1;
        let row = |x: &[f64], p: usize| x[(p * 2 + head / 3) * d..][..d].to_vec();
        let score = |p| row(&k, p).iter().zip(q).map(|(k, q)| k * q).sum::<f64>() * 0.7;
        let weights: Vec<_> = (0..count).map(|p| score(p).exp()).collect();
        let total: f64 = weights.iter().sum();
        let sum = |e: usize| (0..count).map(|p| weights[p] * row(&v, p)[e]).sum::<f64>() / total;
        wanted.extend((0..d).map(sum));
    }
    let wanted = then_untouched(wanted, 4 * 6 * d);
    close(
        &format!("attention {head_dim} at {position}, {cache}"),
        &rig.get("a"),
        &wanted,
        2e-6,
    )
}

// Picking a token.

const VOCABS: [u32; 4] = [1, 5, 1000, 4099];

/// The sampled tail; `logits` and `s` hold `x`.
fn sampler(device: &Device, vocab: u32, x: &[f32]) -> Rig {
    let mut rig = Rig::new(device, shape(1), vec![], |b| b.pick_sampled(vocab));
    rig.put("logits", x);
    rig.put("s", x);
    rig
}

/// Runs one filter over random logits, some equal and one -inf, with a change to the state.
fn filtered(device: &Device, op: Op, vocab: u32, change: impl Fn(&mut State)) -> [Vec<f64>; 2] {
    let mut x: Vec<_> = floats(15, vocab as usize).iter().map(|v| v * 8.0).collect();
    if vocab > 4 {
        (x[1], x[3], x[4]) = (x[2], f32::NEG_INFINITY, -0.0);
    }
    let mut rig = sampler(device, vocab, &x);
    let mut state = live(1);
    change(&mut state);
    rig.state(state, &[(0, 3)]);
    rig.run_op(op);
    [wide(&x), wide(&rig.get("s"))]
}

/// What stays of `x` where `keeps` says so.
fn kept(x: &[f64], keeps: impl Fn(f64) -> bool) -> Vec<f64> {
    let keep = |&x: &f64| if keeps(x) { x } else { f64::NEG_INFINITY };
    x.iter().map(keep).collect()
}

fn descending(x: &[f64]) -> Vec<f64> {
    let mut x = x.to_vec();
    x.sort_by(|a, b| b.total_cmp(a));
    x
}

fn top_k(device: &Device) -> f64 {
    for vocab in VOCABS {
        for k in [0, 1, 2, 40, vocab - 1, vocab, vocab + 1] {
            let [x, y] = filtered(device, Op::TopK, vocab, |s| s.top_k = k);
            let off = k == 0 || k >= vocab;
            let least = if off {
                f64::NEG_INFINITY
            } else {
                descending(&x)[k as usize - 1]
            };
            assert_eq!(y, kept(&x, |x| x >= least), "{k} of {vocab}");
        }
    }
    0.0
}

fn top_p(device: &Device) -> f64 {
    for vocab in VOCABS {
        for p in [0.0, 0.1, 0.5, 0.9, 0.999, 1.0_f32] {
            let [x, y] = filtered(device, Op::TopP, vocab, |s| s.top_p = p);
            let sorted = descending(&x);
            let mass = |x: f64| (x - sorted[0]).exp();
            let total: f64 = x.iter().map(|&x| mass(x)).sum();
            let mut sum = 0.0;
            let reached = sorted.iter().find(|&&x| {
                sum += mass(x);
                sum >= f64::from(p) * total
            });
            let off = p >= 1.0;
            let least = if off {
                f64::NEG_INFINITY
            } else {
                *reached.expect("p is under 1")
            };
            assert_eq!(y, kept(&x, |x| x >= least), "{p} of {vocab}");
        }
    }
    0.0
}

fn min_p(device: &Device) -> f64 {
    for vocab in VOCABS {
        for p in [0.0, 0.001, 0.05, 0.5, 1.0_f32] {
            let [x, y] = filtered(device, Op::MinP, vocab, |s| s.min_p = p);
            let least = descending(&x)[0] + f64::from(p).ln();
            assert_eq!(y, kept(&x, |x| x >= least), "{p} of {vocab}");
        }
    }
    0.0
}

fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    let halves = |a: u32, b: u32| {
        let p = u64::from(a) * u64::from(b);
        [u32::try_from(p >> 32).unwrap(), a.wrapping_mul(b)]
    };
    for _ in 0..10 {
        let ([h0, l0], [h1, l1]) = (halves(0xd251_1f53, a), halves(0xcd9e_8d57, c));
        (a, b, c, d) = (h1 ^ b ^ k0, l1, h0 ^ d ^ k1, l0);
        (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
    }
    [a, b, c, d]
}

fn gumbel(device: &Device) -> f64 {
    // The first known answer of Random123.
    let known = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    assert_eq!(philox([0; 4], [0; 2]), known);
    let mut worst = 0.0;
    for vocab in VOCABS {
        let [x, y] = filtered(device, Op::Gumbel, vocab, |s| {
            (s.seed_lo, s.seed_hi) = (0xdead_beef, 17);
        });
        let noise = |i: u32| {
            let word = philox([i / 4, 4, 0, 0], [0xdead_beef, 17])[i as usize % 4];
            let u = (f64::from(word >> 9) + 0.5) / f64::from(1 << 23);
            -(-u.ln()).ln()
        };
        let wanted: Vec<_> = (0..).zip(&x).map(|(i, x)| x + noise(i)).collect();
        let finite = |v: &f64| v.is_finite() || *v == f64::NEG_INFINITY;
        assert!(y.iter().all(finite), "{y:?}");
        #[expect(clippy::cast_possible_truncation, reason = "these were f32")]
        let y: Vec<_> = y.iter().map(|&y| y as f32).collect();
        worst = close("gumbel", &y, &wanted, 1e-6).max(worst);
    }
    worst
}

fn penalize(device: &Device) -> f64 {
    let mut worst = 0.0;
    for (vocab, last, position) in [(5, 3, 10), (1000, 64, 20), (4099, 5000, 511), (1000, 0, 7)] {
        let x = floats(16, vocab as usize);
        let mut rig = sampler(device, vocab, &x);
        let mut next = random(17);
        let history: Vec<_> = (0..512)
            .map(|_| u32::try_from(next() % u64::from(vocab)).unwrap())
            .collect();
        let bytes = bytemuck::cast_slice(&history);
        rig.executor.write(Place::History, 0, bytes).unwrap();
        let state = State {
            repeat_penalty: 1.3,
            repeat_last: last,
            temperature: 0.7,
            ..live(1)
        };
        rig.state(state, &[(0, position)]);
        rig.run_op(Op::Penalize);
        let end = position as usize + 1;
        let recent = &history[end - end.min(last as usize).min(1024)..end];
        let wanted = (0..).zip(wide(&x)).map(|(i, x)| {
            let penalty = f64::from(if recent.contains(&i) { 1.3_f32 } else { 1.0 });
            let x = if x > 0.0 { x / penalty } else { x * penalty };
            x / f64::from(0.7_f32)
        });
        let wanted: Vec<_> = wanted.collect();
        worst = close("penalize", &rig.get("s"), &wanted, 1e-6).max(worst);
    }
    worst
}

fn greedy(device: &Device, x: &[f32]) -> Rig {
    let vocab = u32::try_from(x.len()).unwrap();
    let mut rig = Rig::new(device, shape(1), vec![], |b| b.pick_greedy(vocab));
    rig.put("logits", x);
    rig
}

fn argmax(device: &Device) -> f64 {
    let inf = f32::NEG_INFINITY;
    let mut ties = vec![0.5; 4099];
    (ties[700], ties[300], ties[4098]) = (2.0, 2.0, 2.0);
    let nan = [f32::NAN, -3.0, f32::NAN, -2.0, -2.0];
    let picks: [(&[f32], u32); 5] = [
        (&[-1.0], 0),
        (&ties, 300),
        (&nan, 3),
        (&[inf, inf], 0),
        (&[f32::NAN, inf, f32::NAN], 1),
    ];
    for (x, wanted) in picks {
        let mut rig = greedy(device, x);
        rig.state(live(1), &[(9, 6)]);
        rig.run();
        let (state, row) = rig.state_now();
        assert_eq!((row.token, row.position), (wanted, 7), "{x:?}");
        assert_eq!((state.live, state.step, state.done), (1, 1, 0));
        let history: Vec<u32> = bytemuck::pod_collect_to_vec(&rig.bytes("history"));
        assert_eq!(history[7], wanted);
    }
    let mut rig = greedy(device, &ties);
    let mut stops = [0; 32];
    stops[1] = 300;
    rig.state(
        State {
            stop_count: 1,
            stops,
            ..live(1)
        },
        &[(0, 0)],
    );
    rig.run();
    assert_eq!(rig.state_now().0.done, 0, "the second stop does not count");
    rig.state(
        State {
            stop_count: 2,
            stops,
            ..live(1)
        },
        &[(0, 0)],
    );
    rig.run();
    let (state, _) = rig.state_now();
    assert_eq!((state.done, state.live), (STOPPED, 0));
    rig.state(live(1), &[(0, 511)]);
    rig.run();
    let (state, row) = rig.state_now();
    assert_eq!((state.done, state.live, row.position), (FULL, 0, 512));
    0.0
}

fn chain(device: &Device) -> f64 {
    let mut rig = greedy(device, &[0.0, 3.0, 1.0]);
    rig.state(live(1), &[(0, 505)]);
    rig.executor.run(0, 0..1, 4).unwrap();
    let (state, row) = rig.state_now();
    assert_eq!((state.step, row.position, state.done), (4, 509, 0));
    rig.executor.run(0, 0..1, 30).unwrap();
    let (state, row) = rig.state_now();
    assert_eq!((state.step, row.position, state.done), (7, 512, FULL));
    let history: Vec<u32> = bytemuck::pod_collect_to_vec(&rig.bytes("history"));
    assert_eq!((history[505], &history[506..]), (0, &[1; 6][..]));
    0.0
}

fn dead(device: &Device) -> f64 {
    let x = floats(18, 1000);
    let mut rig = sampler(device, 1000, &x);
    let state = State {
        top_k: 3,
        top_p: 0.5,
        min_p: 0.5,
        temperature: 0.5,
        ..live(0)
    };
    rig.state(state, &[(5, 6)]);
    rig.run();
    assert_eq!(rig.get("s"), x);
    let (after, row) = rig.state_now();
    assert_eq!((after, row.token, row.position), (state, 5, 6));
    0.0
}

// The executor.

fn read_write(device: &Device) -> f64 {
    let mut rig = Rig::new(device, shape(1), vec![], |b| {
        let x = b.input("x", 500_000);
        b.swiglu(x, x);
    });
    let x = floats(19, 500_000);
    rig.put("x", &x);
    assert_eq!(rig.get("x"), x, "more than the staging buffer holds");
    let (place, bytes) = rig.place("x");
    let all: &[u8] = bytemuck::cast_slice(&x);
    for (at, n) in [(0, 1), (3, 2), (5, 1_500_001), (bytes - 1, 1), (7, 0)] {
        let mut out = vec![0; n];
        rig.executor.read(place, at, &mut out).unwrap();
        assert_eq!(out, all[at..at + n], "{n} at {at}");
    }
    let argument = |result: tabla::error::Result<()>| {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::Argument);
    };
    argument(rig.executor.read(place, bytes, &mut [0]));
    argument(rig.executor.read(place, usize::MAX, &mut [0]));
    argument(rig.executor.write(place, 2, &[0; 4]));
    argument(rig.executor.write(place, 4, &[0; 3]));
    argument(rig.executor.write(Place::Keys(3), 0, &[0; 4]));
    argument(rig.executor.run(1, 0..1, 1));
    argument(rig.executor.run(0, 0..2, 1));
    0.0
}

fn too_large(device: &Device) -> f64 {
    // Refused before its bytes are asked for.
    let limit = device.profile().binding_bytes_max;
    let cols = u32::try_from(limit / 4 / 1024 + 1)
        .unwrap()
        .next_multiple_of(8);
    let w = Weight {
        name: "token_embd.weight",
        dtype: DType::F32,
        rows: 1024,
        cols,
        bytes: vec![],
    };
    let given = Arc::new(Given(vec![w]));
    let mut builder = Builder::new(&*given, shape(1));
    let w: W = builder.weight("token_embd.weight", 1024, cols);
    builder.embed(w);
    let table = plan::compile(builder.finish().unwrap(), device.profile()).unwrap();
    let program = Program {
        tables: Arc::new([table]),
        tensors: given.clone(),
    };
    let error = gpu::link(device.clone(), program)
        .err()
        .expect("it is too large");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("token_embd.weight"), "{error}");
    assert!(error.message().contains(&limit.to_string()), "{error}");
    0.0
}

fn shader_folder(_: &Device) -> f64 {
    let folder = std::env::temp_dir().join(format!("tabla-shaders-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = include_str!("../../shaders/swiglu.wgsl");
    let open = |text: String| {
        std::fs::write(folder.join("swiglu.wgsl"), text).unwrap();
        let options = Options {
            shader_folder: Some(folder.clone()),
            ..software()
        };
        gpu::open(&options).unwrap().expect("there is one")
    };
    let device = open(source.replace("* up[at]", "+ up[at]"));
    gpu::shaders(&device).unwrap();
    let mut rig = Rig::new(&device, shape(1), vec![], |b| {
        let (gate, up) = (b.input("gate", 2), b.input("up", 2));
        b.swiglu(gate, up);
    });
    rig.put("gate", &[0.0, 0.0]);
    rig.put("up", &[3.0, 4.0]);
    rig.run();
    assert_eq!(rig.get("f"), [3.0, 4.0]);
    for broken in [
        source.replace("let at", "let at = nothing; let"),
        source.replace("const UNITS = 256u", "const UNITS = 128u"),
        source.replace("#import grid", "#import nowhere"),
    ] {
        let error = gpu::shaders(&open(broken)).expect_err("it is broken");
        assert_eq!(error.kind(), ErrorKind::Format);
        assert!(error.message().contains("swiglu.wgsl"), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    0.0
}
