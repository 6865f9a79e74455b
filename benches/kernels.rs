//! CPU benchmarks: gemv with weights in cache and against the memory bandwidth, gemm against the
//! arithmetic peak, and decode and prefill of a whole model.
//!
//! Results that depend on the memory or on the load of the machine are printed with a bandwidth or
//! peak measured next to them, because both change within minutes on shared machines.
//!
//! Arguments: number of threads, then name filters.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark that prints results"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tabla::device::Precision;
use tabla::dtype::DType;
use tabla::exec::cpu::{self, Level, LinkOptions};
use tabla::exec::state::sampler_off;
use tabla::exec::{Executor, Program, Tensors};
use tabla::op::functions::Activation;
use tabla::op::pages::Pages;
use tabla::op::params::{Row, Sampler, State};
use tabla::op::sampler::SamplerKind;
use tabla::op::table::{BufferId, Table};
use tabla::plan::builder::{
    Builder, Heads, LogitMap, LogitRows, Rope, Scores, Shape, WeightInfo, Weights,
};
use tabla::{plan, quant};
use tabla_testkit::fill::Filling;

/// Duration of a measurement.
const MEASURED: Duration = Duration::from_millis(600);

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let threads = args.first().and_then(|a| a.parse().ok()).unwrap_or(2);
    let selected =
        |name: &str| args.len() < 2 || args[1..].iter().any(|a| name.contains(a.as_str()));
    for level in Level::available() {
        for dtype in [
            DType::Q8_0,
            DType::Q4_0,
            DType::Q4_1,
            DType::Q4K,
            DType::Q5K,
            DType::Q6K,
            DType::Iq4Xs,
            DType::Mxfp4,
            DType::Nvfp4,
            DType::Q1_0,
            DType::Q2_0,
            DType::Tq2_0,
            DType::F16,
            DType::Bf16,
            DType::F32,
        ] {
            for precision in [Precision::Fast, Precision::Exact] {
                let quantized = dtype.facts().block > 1;
                let name = format!("{} {dtype} {precision:?}", level.name());
                if (quantized || precision == Precision::Fast) && selected(&name) {
                    let options = LinkOptions::default()
                        .threads(threads)
                        .level(level)
                        .precision(precision)
                        .packed_bytes(u64::MAX);
                    cached_gemv(&name, dtype, &options);
                    gemv(&name, dtype, &options);
                    gemm(&name, dtype, &options);
                }
            }
        }
        let name = format!("{} attention f16", level.name());
        if selected(&name) {
            let options = LinkOptions::default().level(level);
            attention(&name, [1, 64, 256], &options.threads(1));
            attention(&name, [16, 16, 4096], &options.threads(threads));
        }
    }
    for dtype in [DType::Q4_0, DType::Q8_0] {
        if selected("decode") {
            decode(dtype, threads);
        }
    }
    if selected("sampling") {
        sampling("sampling", threads, |b, vocab| {
            b.sampled_stage(vocab, SamplerKind::DEFAULT);
        });
        sampling("sampling full", threads, |b, vocab| {
            b.full_stage(vocab, SamplerKind::DEFAULT);
        });
    }
}

/// Weights of a program; every matrix repeats one row.
#[derive(Default)]
struct Model {
    tensors: Vec<(String, WeightInfo, Vec<u8>)>,
    freqs: Vec<u8>,
}

impl Model {
    fn add(&mut self, name: &str, dtype: DType, rows: u32, cols: u32) {
        let index = u32::try_from(self.tensors.len()).expect("a few hundred");
        let mut bytes = Vec::new();
        if let Some(encode) = quant::encoder(dtype) {
            let number = |i| (i * 37 % 101) as f32 * 0.002 - 0.1;
            let row: Vec<f32> = (0..cols).map(number).collect();
            encode(&row, None, &mut bytes);
        } else {
            bytes = Filling::random(name, dtype, [1, cols]).bytes;
        }
        let info = WeightInfo {
            index,
            dtype,
            rows,
            cols,
            scale: None,
        };
        self.tensors
            .push((name.to_string(), info, bytes.repeat(rows as usize)));
    }
}

impl Weights for Model {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        self.tensors.iter().find(|t| t.0 == name).map(|t| t.1)
    }
}

impl Tensors for Model {
    fn weight(&self, index: u32) -> &[u8] {
        &self.tensors[index as usize].2
    }
    fn constant(&self, _: u32) -> &[u8] {
        &self.freqs
    }
}

/// Returns the pages of one sequence without sliding windows.
fn pages() -> Pages {
    Pages::new(1, 4096, &[], 1)
}

fn link(model: &Arc<Model>, table: Table, options: &LinkOptions) -> Box<dyn Executor> {
    let program = Program {
        tables: Arc::from([table]),
        tensors: model.clone(),
    };
    let mut slots = program.tables.iter().flat_map(|table| &table.slots);
    let paged = slots.any(|slot| slot.buffer == BufferId::Pages);
    let mut executor = cpu::link(program, options).expect("link");
    if paged {
        let table = pages().in_order(1);
        let bytes = bytemuck::cast_slice(&table);
        executor
            .write(BufferId::Pages, 0, bytes)
            .expect("within the limits");
    }
    executor
}

fn compile(
    model: &Model,
    tokens: u32,
    options: &LinkOptions,
    emit: impl Fn(&mut Builder<'_>),
) -> Table {
    let shape = Shape {
        name: "bench",
        tokens,
        logits: LogitRows::Last,
        sequences: 1,
        context: 4096,
        pages: pages(),
        cache: DType::F16,
        part: 0,
    };
    let mut b = Builder::new(model, shape);
    emit(&mut b);
    let profile = cpu::profile(options).expect("an available level");
    plan::compile(b.finish().expect("within the limits"), &profile).expect("compile the table")
}

fn start(executor: &mut dyn Executor, live: u32, position: u32) {
    let state = State {
        active_rows: live,
        context: 4096,
        ..State::default()
    };
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    for t in 0..live {
        let row = Row {
            token: t,
            position: position + t,
            ..Row::default()
        };
        bytes.extend_from_slice(bytemuck::bytes_of(&row));
    }
    executor
        .write(BufferId::State, 0, &bytes)
        .expect("within the limits");
}

/// Returns wall time in seconds; with `TABLA_CPU_TIME` the CPU time of this thread, which is
/// independent of the load of the machine but excludes other threads.
fn now() -> f64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let wall = || START.elapsed().as_secs_f64();
    if std::env::var_os("TABLA_CPU_TIME").is_none() {
        return wall();
    }
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.map_or_else(wall, |n| n * 1e-9)
}

/// Returns the minimum and the median duration of many runs, in seconds.
fn time(mut run: impl FnMut()) -> [f64; 2] {
    run();
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < MEASURED || times.len() < 5 {
        let begin = now();
        run();
        times.push(now() - begin);
    }
    times.sort_by(f64::total_cmp);
    [times[0], times[times.len() / 2]]
}

/// Returns the read bandwidth in GB/s with all threads and the loads of the level's kernels.
fn probe(bytes: &[u8], options: &LinkOptions) -> [f64; 2] {
    let level = options.level.expect("benchmarks set a level");
    let lines = bytes.len().div_ceil(64 * options.threads.max(1) as usize);
    let read = |bytes| black_box(cpu::read(level, bytes).expect("an available level"));
    let times = time(|| {
        std::thread::scope(|scope| {
            let (first, others) = bytes.split_at(bytes.len().min(64 * lines));
            for part in others.chunks(64 * lines) {
                scope.spawn(move || read(part));
            }
            read(first);
        });
    });
    times.map(|t| bytes.len() as f64 / t / 1e9)
}

/// Measures gemv with one thread and weights in the L2 cache: the limit of the instructions, which
/// does not depend on the memory and the load of the machine.
fn cached_gemv(name: &str, dtype: DType, options: &LinkOptions) {
    const WEIGHT_BYTES: usize = 256 << 10;
    const COMMANDS: usize = 64;
    let cols = 2048;
    let facts = dtype.facts();
    let row_bytes = cols as usize / facts.block * facts.bytes;
    // Whole panels of 16 rows.
    let rows = u32::try_from(WEIGHT_BYTES / row_bytes / 16 * 16).expect("a few hundred");
    let options = options.threads(1);
    let mut model = Model::default();
    model.add("w", dtype, rows, cols);
    let table = compile(&model, 1, &options, |b| {
        let w = b.weight("w", rows, cols);
        let x = b.input("x", cols);
        for i in 0..COMMANDS {
            b.mat(&format!("y {i}"), w, x);
        }
    });
    let bytes = COMMANDS * rows as usize * row_bytes;
    let mut executor = link(&Arc::new(model), table, &options);
    start(&mut *executor, 1, 0);
    let times = time(|| executor.run(0, (0..COMMANDS).into(), 1).expect("run"));
    let [best, median] = times.map(|t| bytes as f64 / t / 1e9);
    println!(
        "gemv {name:24} {median:6.1} GB/s (best {best:5.1}) with weights in the L2 cache of a core"
    );
}

fn gemv(name: &str, dtype: DType, options: &LinkOptions) {
    let (rows, cols) = (98_304, 2048);
    let mut model = Model::default();
    model.add("w", dtype, rows, cols);
    let table = compile(&model, 1, options, |b| {
        let w = b.weight("w", rows, cols);
        let x = b.input("x", cols);
        b.mat("y", w, x);
    });
    let model = Arc::new(model);
    let mut executor = link(&model, table, options);
    start(&mut *executor, 1, 0);
    let bytes = model.weight(0);
    let [best_probe, probe] = probe(bytes, options);
    let times = time(|| executor.run(0, (0..1).into(), 1).expect("run"));
    let [best, median] = times.map(|t| bytes.len() as f64 / t / 1e9);
    let share = median / probe * 100.0;
    println!(
        "gemv {name:24} {median:6.1} GB/s (best {best:5.1}), {share:3.0} % of memory {probe:5.1} (best {best_probe:5.1})"
    );
}

fn gemm(name: &str, dtype: DType, options: &LinkOptions) {
    let (rows, cols, tokens) = (2048, 2048, 128);
    let mut model = Model::default();
    model.add("w", dtype, rows, cols);
    let table = compile(&model, tokens, options, |b| {
        let w = b.weight("w", rows, cols);
        let x = b.input("x", cols);
        b.mat("y", w, x);
    });
    let mut executor = link(&Arc::new(model), table, options);
    start(&mut *executor, tokens, 0);
    let operations = 2.0 * f64::from(rows) * f64::from(cols) * f64::from(tokens);
    let before = cpu::peak(options).expect("an available level");
    let times = time(|| executor.run(0, (0..1).into(), 1).expect("run"));
    let [best, median] = times.map(|t| operations / t / 1e9);
    let after = cpu::peak(options).expect("an available level");
    let integer = dtype.facts().block > 1 && options.precision == Precision::Fast;
    let peak = |p: cpu::Peak| if integer { p.int8 } else { p.float } / 1e9;
    let (peak, kind) = (
        peak(before).max(peak(after)),
        if integer { "int8" } else { "f32" },
    );
    let share = median / peak * 100.0;
    println!(
        "gemm {name:24} {median:6.0} GOP/s (best {best:.0}), {share:3.0} % of {kind} {peak:.0}, {tokens} tokens"
    );
}

/// Measures attention of one token at a depth, with the heads of Llama 3.2 1B: `commands` commands
/// that use the caches of `layers` layers in turn.
fn attention(name: &str, [layers, commands, depth]: [u32; 3], options: &LinkOptions) {
    let model = Model::default();
    let table = compile(&model, 1, options, |b| {
        let q = b.input("q", DIM);
        for i in 0..commands {
            b.attention(heads(i % layers), q, Scores::scaled(0.125));
        }
    });
    let mut executor = link(&Arc::new(model), table, options);
    start(&mut *executor, 1, depth - 1);
    let layer_bytes = (depth * KV) as usize * 2;
    let numbers = Filling::random("cache", DType::F16, [depth, KV]).bytes;
    for layer in 0..layers {
        for cache in [BufferId::Keys(layer), BufferId::Values(layer)] {
            executor
                .write(cache, 0, &numbers)
                .expect("within the limits");
        }
    }
    let bytes = 2 * layer_bytes * commands as usize;
    let memory = 2 * layer_bytes * layers as usize;
    let [best_probe, probe] = probe(&numbers.repeat(memory / numbers.len()), options);
    let times = time(|| {
        executor
            .run(0, (0..commands as usize).into(), 1)
            .expect("run");
    });
    let [best, median] = times.map(|t| bytes as f64 / t / 1e9);
    let share = median / probe * 100.0;
    println!(
        "{name} of {layers} layers at {depth}: {median:.1} GB/s (best {best:.1}), {share:.0} % of reading {probe:.1} (best {best_probe:.1}), {} threads",
        options.threads
    );
}

/// Shape of Llama 3.2 1B.
const VOCAB: u32 = 128_256;
const DIM: u32 = 2048;
const FFN: u32 = 8192;
const LAYERS: u32 = 16;
const KV: u32 = 512;

fn llama(dtype: DType) -> Model {
    let mut model = Model::default();
    model.add("embd", dtype, VOCAB, DIM);
    model.add("norm", DType::F32, 1, DIM);
    for l in 0..LAYERS {
        for (name, rows, cols) in [
            ("q", DIM, DIM),
            ("k", KV, DIM),
            ("v", KV, DIM),
            ("o", DIM, DIM),
            ("gate", FFN, DIM),
            ("up", FFN, DIM),
            ("down", DIM, FFN),
        ] {
            model.add(&format!("{name}.{l}"), dtype, rows, cols);
        }
    }
    let freqs: Vec<f32> = (0..32).map(|i| 5e5f32.powf(-i as f32 / 32.0)).collect();
    model.freqs = bytemuck::cast_slice(&freqs).to_vec();
    model
}

fn heads(layer: u32) -> Heads {
    Heads {
        layer,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        window: 0,
        latent: false,
    }
}

fn forward(b: &mut Builder<'_>) {
    let embd = b.weight("embd", VOCAB, DIM);
    let norm = b.vector("norm", DIM);
    let h = b.embed(embd);
    for l in 0..LAYERS {
        let heads = heads(l);
        let rope = Rope {
            index: 0,
            dim: 64,
            half_split: false,
            magnitude: 1.0,
        };
        let mut w = |name: &str, rows, cols| b.weight(&format!("{name}.{l}"), rows, cols);
        let (q, k, v) = (w("q", DIM, DIM), w("k", KV, DIM), w("v", KV, DIM));
        let (o, gate) = (w("o", DIM, DIM), w("gate", FFN, DIM));
        let (up, down) = (w("up", FFN, DIM), w("down", DIM, FFN));
        let n = b.rms_norm(h, norm, 1e-5);
        let (q, k, v) = (b.mat("q", q, n), b.mat("k", k, n), b.mat("v", v, n));
        b.rope_kv(heads, rope, q, k, v);
        let a = b.attention(heads, q, Scores::scaled(0.125));
        b.mat_add(o, a, h);
        let n = b.rms_norm(h, norm, 1e-5);
        let (gate, up) = (b.mat("gate", gate, n), b.mat("up", up, n));
        let f = b.glu(Activation::Silu, gate, up);
        b.mat_add(down, f, h);
    }
    let n = b.rms_norm(h, norm, 1e-5);
    let last = b.logit_rows(n);
    b.logits(embd, last, LogitMap::default());
}

fn decode(dtype: DType, threads: u32) {
    let options = LinkOptions::default()
        .threads(threads)
        .level(Level::best().expect("an available level"))
        .packed_bytes(u64::MAX);
    let model = llama(dtype);
    let single = compile(&model, 1, &options, |b| {
        forward(b);
        b.greedy_stage(VOCAB);
    });
    let batch = compile(&model, 128, &options, forward);
    let read: usize = model.tensors.iter().map(|t| t.2.len()).sum();
    let model = Arc::new(model);
    let [best_probe, probe] = probe(model.weight(0), &options);
    let cmds = single.cmds.len();
    let mut executor = link(&model, single, &options);
    for depth in [0, 1024, 3000] {
        start(&mut *executor, 1, depth);
        let times = time(|| executor.run(0, (0..cmds).into(), 1).expect("run"));
        let [best, median] = times.map(|t| 1.0 / t);
        let gbs = read as f64 * median / 1e9;
        println!(
            "decode {dtype} at {depth}: {median:.1} tok/s (best {best:.1}), {gbs:.1} GB/s, {:.0} % of memory {probe:.1} (best {best_probe:.1})",
            gbs / probe * 100.0
        );
    }
    let cmds = batch.cmds.len();
    let mut executor = link(&model, batch, &options);
    start(&mut *executor, 128, 0);
    let [best, median] =
        time(|| executor.run(0, (0..cmds).into(), 1).expect("run")).map(|t| 128.0 / t);
    println!("prefill {dtype}: {median:.0} tok/s (best {best:.0}) in chunks of 128");
}

/// Benchmarks the commands of a sampling stage with 150,000 logits.
fn sampling(name: &str, threads: u32, stage: fn(&mut Builder<'_>, u32)) {
    let options = LinkOptions::default().threads(threads);
    let vocab = 150_000;
    let model = Model::default();
    let table = compile(&model, 1, &options, |b| stage(b, vocab));
    let names: Vec<_> = table.cmds.iter().map(|c| c.kernel.op.name()).collect();
    let mut executor = link(&Arc::new(model), table, &options);
    let logits: Vec<f32> = (0..vocab)
        .map(|i| (i * 7919 % vocab) as f32 * 1e-4)
        .collect();
    let bytes: &[u8] = bytemuck::cast_slice(&logits);
    executor
        .write(BufferId::Logits, 0, bytes)
        .expect("within the limits");
    let sampler = Sampler {
        temperature: 0.8,
        top_p: 0.95,
        top_k: 40,
        min_p: 0.05,
        repetition_penalty: 1.1,
        repeat_last_n: 64,
        ..sampler_off()
    };
    let bytes = bytemuck::bytes_of(&sampler);
    executor
        .write(BufferId::Samplers, 0, bytes)
        .expect("within the limits");
    // Differences of prefixes, because a sampler runs on the output of the previous ones.
    for (i, op) in names.iter().enumerate() {
        let [_, median] = time(|| {
            start(&mut *executor, 1, 100);
            executor.run(0, (0..i).into(), 1).expect("run");
        });
        let [_, with] = time(|| {
            start(&mut *executor, 1, 100);
            executor.run(0, (0..i + 1).into(), 1).expect("run");
        });
        println!("{name} {op}: {:.0} us", (with - median) * 1e6);
    }
}
