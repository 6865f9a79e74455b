//! GPU benchmarks of single kernels: products, attention, and the overhead of a command.
//!
//! `cargo bench --bench gpu -- [--tiny] [--json] [FILTER ...]`. Every measurement is a table of commands that depend
//! on each other, as those of a model do, and is replayed many times. Weights and KV caches together are several times
//! larger than the caches of the GPU. The read bandwidth of the same GPU is measured before and after.
//!
//! `--tiny` is for tests of this program on a software adapter, `--json` prints an object per line, and a filter is a part
//! of `what test`, for example `gemv q4_k`. Correctness is not checked.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark that prints results"
)]

use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tabla::device::{KernelVariant, Profile, Replay};
use tabla::dtype::DType;
use tabla::exec::gpu::{self, Device, DeviceOptions, Probe};
use tabla::exec::{Executor, Program, Tensors};
use tabla::op::list::Op;
use tabla::op::pages::Pages;
use tabla::op::params::{Row, State};
use tabla::op::table::{BufferId, Table};
use tabla::plan;
use tabla::plan::builder::{Builder, Heads, LogitRows, Scores, Shape, WeightInfo, Weights};
use tabla::{Error, ErrorKind, Result};
use tabla_testkit::fill::Filling;

/// Storage types of products of few tokens.
const GEMV_TYPES: &[DType] = &[
    DType::F16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::Mxfp4,
    DType::Iq4Xs,
];
/// Storage types of products of many tokens.
const GEMM_TYPES: &[DType] = &[DType::Q4K, DType::Q8_0, DType::F16];

/// Sizes of the measurements.
struct Sizes {
    /// Rows and columns of weights: those of Llama 8B.
    products: &'static [[u32; 2]],
    /// Numbers of tokens of products that are limited by the memory.
    few: &'static [u32],
    /// Numbers of tokens of products that are limited by the arithmetic.
    many: &'static [u32],
    /// Numbers of positions that the last query of attention sees.
    positions: &'static [u32],
    /// Number of queries of attention in prefill.
    queries: u32,
    heads: Heads,
    /// Minimum number of bytes of the weights of a product, and of the KV caches.
    bytes: u64,
    /// Number of weights of products of many tokens.
    copies: u32,
    /// Number of commands of the table that measures the overhead.
    commands: u32,
    /// Minimum duration of a round.
    round: Duration,
}

const REAL: Sizes = Sizes {
    products: &[[4096, 4096], [14336, 4096], [4096, 14336]],
    few: &[1, 4, 8],
    many: &[128, 256, 512, 2048],
    positions: &[512, 4096, 16384],
    queries: 512,
    heads: Heads {
        layer: 0,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        window: 0,
        latent: false,
    },
    bytes: 512 << 20,
    copies: 4,
    commands: 1000,
    round: Duration::from_millis(20),
};

const TINY: Sizes = Sizes {
    products: &[[256, 256], [512, 256]],
    few: &[1, 4],
    many: &[64],
    positions: &[128, 256],
    queries: 64,
    heads: Heads {
        heads: 4,
        kv_heads: 1,
        ..REAL.heads
    },
    bytes: 128 << 10,
    copies: 2,
    commands: 20,
    round: Duration::from_millis(1),
};

/// Number of measured rounds; the result is their median.
const ROUNDS: usize = 5;
/// Maximum number of replays of a round.
const REPLAYS_MAX: u32 = 1 << 14;
/// Maximum number of layers of attention.
const LAYERS_MAX: u64 = 128;
/// Number of submissions of a single command.
const SUBMISSIONS: usize = 100;
/// Number of distinct rows of a weight; divides the rows of all products.
const DISTINCT_ROWS: u32 = 16;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let filters = args.iter().filter(|arg| !arg.starts_with("--")).cloned();
    let mut bench = Bench {
        sizes: if has("--tiny") { &TINY } else { &REAL },
        format: if has("--json") {
            Format::Json
        } else {
            Format::Text
        },
        filters: filters.collect(),
        measured: HashSet::new(),
    };
    bench.run()
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Json,
    Text,
}

struct Bench {
    sizes: &'static Sizes,
    format: Format,
    filters: Vec<String>,
    /// Kernels and tests that were measured: sets of variants select the same kernel for some of them.
    measured: HashSet<String>,
}

/// Unit of a rate, and its number of bytes or operations per second.
type Unit = (&'static str, f64);

const GIGABYTES: Unit = ("GB/s", 1e9);
const TERAFLOPS: Unit = ("TFLOP/s", 1e12);

/// A measurement: a table, the state of its rows, and its work.
struct Point {
    what: &'static str,
    test: String,
    /// The size, which distinguishes measurements of one test.
    at: String,
    table: Table,
    model: Arc<Model>,
    /// Position of the first row.
    position: u32,
    unit: Unit,
    /// Bytes or operations of a replay.
    amount: f64,
}

/// A result.
struct Measured {
    value: f64,
    unit: &'static str,
    /// Duration of a replay.
    seconds: f64,
    kernel: String,
}

impl Point {
    fn name(&self) -> [&str; 3] {
        [self.what, &self.test, &self.at]
    }

    /// Returns the name of the kernel, which is not a conversion of activations.
    fn kernel(&self) -> String {
        let mut cmds = self.table.cmds.iter();
        let cmd = cmds.find(|cmd| cmd.kernel.op != Op::Convert);
        cmd.map_or_else(String::new, |cmd| cmd.kernel.name())
    }
}

/// Sets of kernel variants: all, without large tiles, without cooperative matrices, and those that compute in f32.
fn variant_sets() -> [Option<Vec<KernelVariant>>; 4] {
    let those = |test: fn(&KernelVariant) -> bool| {
        Some(KernelVariant::ALL.iter().copied().filter(test).collect())
    };
    [
        None,
        those(|variant| !variant.name().contains("large")),
        those(|variant| !variant.uses_matrices()),
        those(|variant| variant.exact()),
    ]
}

/// Opens a GPU, as the program does.
fn open(variants: Option<Vec<KernelVariant>>, replay: Replay) -> Result<Device> {
    let options = DeviceOptions::default()
        .allow_software(true)
        .variants(variants)
        .replay(replay);
    gpu::open(&options)?.ok_or_else(|| Error::new(ErrorKind::Device, "no GPU adapter found"))
}

impl Bench {
    fn run(&mut self) -> Result<()> {
        let mut devices = Vec::new();
        for variants in variant_sets() {
            devices.push(open(variants, Replay::Auto)?);
        }
        self.bandwidth(&devices[0], "before");
        for dtype in GEMV_TYPES {
            let products = self.products("gemv", *dtype, self.sizes.few, devices[0].profile())?;
            self.measure(&devices[0], products);
        }
        for (at, position) in self.sizes.positions.iter().enumerate() {
            for device in &devices {
                let attention = self.attention(*position, device.profile())?;
                self.measure(device, attention);
            }
            // The overhead is more important than the longest context.
            if at == 0 {
                self.overhead();
            }
        }
        for device in &devices {
            for dtype in GEMM_TYPES {
                let products = self.products("gemm", *dtype, self.sizes.many, device.profile())?;
                self.measure(device, products);
            }
        }
        self.bandwidth(&devices[0], "after");
        Ok(())
    }

    /// Whether the filters select a measurement.
    fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }

    fn print(&self, [what, test, at]: [&str; 3], result: Result<Measured>) {
        let mut record = json!({ "what": what, "test": test, "at": at });
        let text = match result {
            Ok(measured) => {
                let us = measured.seconds * 1e6;
                record["kernel"] = json!(measured.kernel);
                record["value"] = json!(measured.value);
                record["unit"] = json!(measured.unit);
                record["us"] = json!(us);
                let Measured {
                    value,
                    unit,
                    kernel,
                    ..
                } = measured;
                format!("{value:9.2} {unit:8} {us:10.1} us  {kernel}")
            }
            Err(error) => {
                record["failed"] = json!(error.to_string());
                error.to_string()
            }
        };
        match self.format {
            Format::Json => println!("{record}"),
            Format::Text => println!("{what:10} {test:18} {at:12} {text}"),
        }
    }

    fn bandwidth(&self, device: &Device, at: &str) {
        let name = ["bandwidth", "read", at];
        if !self.selects(&name.join(" ")) {
            return;
        }
        let measured = Probe::new(device).and_then(|mut probe| {
            let rounds = (0..ROUNDS).map(|_| probe.round());
            Ok(median(rounds.collect::<Result<_>>()?))
        });
        let measured = measured.map(|rate| Measured {
            value: rate / GIGABYTES.1,
            unit: GIGABYTES.0,
            seconds: 0.0,
            kernel: String::new(),
        });
        self.print(name, measured);
    }

    /// Measures points whose tables share weights.
    fn measure(&mut self, device: &Device, points: Vec<Point>) {
        let mut new = Vec::new();
        for point in points {
            let name = point.name().join(" ");
            let key = format!("{name} {}", point.kernel());
            if self.selects(&name) && self.measured.insert(key) {
                new.push(point);
            }
        }
        for points in new.chunk_by(|a, b| Arc::ptr_eq(&a.model, &b.model)) {
            let program = Program {
                tables: points.iter().map(|point| point.table.clone()).collect(),
                tensors: points[0].model.clone(),
            };
            let mut linked = gpu::link(device.clone(), program);
            for (at, point) in points.iter().enumerate() {
                let seconds = match &mut linked {
                    Ok(executor) => self.seconds(&mut **executor, at, point),
                    Err(error) => Err(Error::new(error.kind(), &error)),
                };
                let measured = seconds.map(|seconds| Measured {
                    value: point.amount / seconds / point.unit.1,
                    unit: point.unit.0,
                    seconds,
                    kernel: point.kernel(),
                });
                self.print(point.name(), measured);
            }
        }
    }

    /// Returns the duration of a replay of a table in seconds.
    fn seconds(&self, executor: &mut dyn Executor, table: usize, point: &Point) -> Result<f64> {
        fill(executor, &point.table, point.position)?;
        let commands = point.table.cmds.len();
        // Compiles, and raises the clocks.
        run(executor, table, commands, 1)?;
        let mut times = 1;
        while run(executor, table, commands, times)? < self.sizes.round.as_secs_f64()
            && times < REPLAYS_MAX
        {
            times *= 2;
        }
        let rounds =
            (0..ROUNDS).map(|_| Ok(run(executor, table, commands, times)? / f64::from(times)));
        Ok(median(rounds.collect::<Result<_>>()?))
    }

    /// Returns products of one storage type: each shape has weights of its own, with a table for each number of tokens.
    fn products(
        &self,
        what: &'static str,
        dtype: DType,
        tokens: &[u32],
        profile: &Profile,
    ) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for [rows, cols] in self.sizes.products {
            let bytes = (profile.weight_bytes)(dtype, *rows, *cols);
            let copies = match what {
                "gemv" => u32::try_from(self.sizes.bytes.div_ceil(bytes)).unwrap_or(u32::MAX),
                _ => self.sizes.copies,
            };
            let model = Arc::new(Model::new(dtype, [*rows, *cols], copies));
            for tokens in tokens {
                let table = compile(&model, *tokens, *tokens, profile, |b| {
                    let (x, y) = (b.input("x", *cols), b.input("y", *rows));
                    for copy in 0..copies {
                        let w = b.weight(&copy.to_string(), *rows, *cols);
                        match what {
                            "gemv" => b.mat_add(w, x, y),
                            // Results of many tokens that are not added are stored directly.
                            _ => {
                                b.mat(&format!("y{copy}"), w, x);
                            }
                        }
                    }
                })?;
                let weights = f64::from(copies) * f64::from(*rows) * f64::from(*cols);
                let stored = f64::from(copies) * bytes as f64;
                let (size, tokens) = (format!("{rows}x{cols}"), *tokens);
                let (test, at, unit, amount) = match (what, tokens) {
                    ("gemv", 1) => (dtype.to_string(), size, GIGABYTES, stored),
                    ("gemv", _) => (format!("{dtype}, {tokens} tokens"), size, GIGABYTES, stored),
                    _ => {
                        let operations = 2.0 * weights * f64::from(tokens);
                        (
                            format!("{dtype} {size}"),
                            tokens.to_string(),
                            TERAFLOPS,
                            operations,
                        )
                    }
                };
                points.push(Point {
                    what,
                    test,
                    at,
                    table,
                    model: Arc::clone(&model),
                    position: 0,
                    unit,
                    amount,
                });
            }
        }
        Ok(points)
    }

    /// Returns attention of one token and of a chunk of a prompt, of which the last one is at `positions - 1`.
    fn attention(&self, positions: u32, profile: &Profile) -> Result<Vec<Point>> {
        let heads = self.sizes.heads;
        let row = u64::from(heads.kv_heads * heads.head_dim) * 2 * 2;
        let layer = row * u64::from(positions);
        let layers = self.sizes.bytes.div_ceil(layer).clamp(1, LAYERS_MAX);
        let layers = u32::try_from(layers).expect("at most LAYERS_MAX");
        let model = Arc::new(Model::empty());
        let mut points = Vec::new();
        for tokens in [1, self.sizes.queries] {
            let position = positions.saturating_sub(tokens);
            let table = compile(&model, tokens, positions, profile, |b| {
                let mut x = b.input("x", heads.heads * heads.head_dim);
                let scores = Scores::scaled((heads.head_dim as f32).sqrt().recip());
                for layer in 0..layers {
                    x = b.attention(Heads { layer, ..heads }, x, scores);
                }
            })?;
            let seen: u64 = (0..tokens).map(|t| u64::from(position + t + 1)).sum();
            let products = f64::from(4 * heads.heads * heads.head_dim) * seen as f64;
            let (test, unit, amount) = match tokens {
                1 => ("decode", GIGABYTES, layer as f64),
                _ => ("prefill", TERAFLOPS, products),
            };
            points.push(Point {
                what: "attention",
                test: test.to_string(),
                at: positions.to_string(),
                table,
                model: Arc::clone(&model),
                position,
                unit,
                amount: amount * f64::from(layers),
            });
        }
        Ok(points)
    }

    /// Measures the time of a command that does nearly nothing, and of a submission of one with the read of its result, in
    /// both replay modes.
    fn overhead(&self) {
        for (test, replay) in [("recorded", Replay::Recorded), ("encoded", Replay::Encoded)] {
            let name = ["overhead", test];
            if !self.selects(&name.join(" ")) {
                continue;
            }
            for (at, commands) in [("command", self.sizes.commands), ("submission", 1)] {
                let seconds = open(None, replay).and_then(|d| self.overhead_of(&d, commands));
                let measured = seconds.map(|seconds| Measured {
                    value: seconds * 1e6,
                    unit: "us",
                    seconds,
                    kernel: "add".into(),
                });
                self.print([name[0], test, at], measured);
            }
        }
    }

    /// Returns the seconds of a command, or of a submission if there is only one.
    fn overhead_of(&self, device: &Device, commands: u32) -> Result<f64> {
        let model = Arc::new(Model::empty());
        let table = compile(&model, 1, 1, device.profile(), |b| {
            let (x, y) = (b.input("x", 32), b.input("y", 32));
            (0..commands).for_each(|_| b.add(x, y, 1.0));
        })?;
        let program = Program {
            tables: Arc::from([table.clone()]),
            tensors: model.clone(),
        };
        let mut executor = gpu::link(device.clone(), program)?;
        if commands == 1 {
            fill(&mut *executor, &table, 0)?;
            let samples = (0..SUBMISSIONS).map(|_| run(&mut *executor, 0, 1, 1));
            return Ok(median(samples.collect::<Result<_>>()?));
        }
        let point = Point {
            what: "overhead",
            test: String::new(),
            at: String::new(),
            table,
            model,
            position: 0,
            unit: GIGABYTES,
            amount: 0.0,
        };
        Ok(self.seconds(&mut *executor, 0, &point)? / f64::from(commands))
    }
}

/// Replays all commands of a table; returns the seconds from submission to completion.
fn run(executor: &mut dyn Executor, table: usize, commands: usize, times: u32) -> Result<f64> {
    let start = Instant::now();
    executor.run(table, (0..commands).into(), times)?;
    executor.read(BufferId::State, 0, &mut [0; 4])?;
    Ok(start.elapsed().as_secs_f64())
}

/// Weights of one shape: copies with the same bytes, each of which has memory of its own on the device.
struct Model {
    info: WeightInfo,
    copies: u32,
    bytes: Vec<u8>,
}

impl Model {
    fn new(dtype: DType, [rows, cols]: [u32; 2], copies: u32) -> Self {
        let distinct = Filling::random("w", dtype, [DISTINCT_ROWS, cols]).bytes;
        Self {
            info: WeightInfo {
                index: 0,
                dtype,
                rows,
                cols,
                scale: None,
            },
            copies,
            bytes: distinct.repeat((rows / DISTINCT_ROWS) as usize),
        }
    }

    fn empty() -> Self {
        Self::new(DType::F16, [0, 1], 0)
    }
}

impl Weights for Model {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let index = name.parse().ok().filter(|index| *index < self.copies)?;
        Some(WeightInfo { index, ..self.info })
    }
}

impl Tensors for Model {
    fn weight(&self, _: u32) -> &[u8] {
        &self.bytes
    }
    fn constant(&self, _: u32) -> &[u8] {
        &[]
    }
}

fn compile(
    model: &Model,
    tokens: u32,
    context: u32,
    profile: &Profile,
    emit: impl Fn(&mut Builder<'_>),
) -> Result<Table> {
    let shape = Shape {
        name: "bench",
        tokens,
        logits: LogitRows::Last,
        sequences: 1,
        context,
        pages: Pages::new(1, context, &[], tokens),
        cache: DType::F16,
        part: profile.attention_part,
    };
    let mut b = Builder::new(model, shape);
    emit(&mut b);
    plan::compile(b.finish()?, profile)
}

/// Writes the step state, the page table, and random activations and KV caches: a GPU is faster with zeros.
fn fill(executor: &mut dyn Executor, table: &Table, position: u32) -> Result<()> {
    let state = State {
        active_rows: table.tokens,
        context: position + table.tokens,
        ..State::default()
    };
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    for t in 0..table.tokens {
        let row = Row {
            position: position + t,
            ..Row::default()
        };
        bytes.extend_from_slice(bytemuck::bytes_of(&row));
    }
    executor.write(BufferId::State, 0, &bytes)?;
    let random = |dtype, cols| Filling::random("numbers", dtype, [1, cols]).bytes;
    for slot in &table.slots {
        match slot.buffer {
            BufferId::Keys(_) | BufferId::Values(_) => {
                let row = random(slot.dtype, slot.cols);
                executor.write(slot.buffer, 0, &row.repeat(slot.rows as usize))?;
            }
            BufferId::Pages => {
                let pages: Vec<u32> = (0..slot.rows * slot.cols).collect();
                executor.write(slot.buffer, 0, bytemuck::cast_slice(&pages))?;
            }
            _ if slot.name == "x" && slot.dtype == DType::F32 => {
                let row = random(DType::F32, slot.cols);
                executor.write(slot.buffer, 0, &row.repeat(slot.rows as usize))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
