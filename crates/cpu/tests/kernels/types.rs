//! Matrix products of every storage type on the CPU, compared with decode-then-multiply in f64.

use crate::{cpu, cpu_of};
use std::sync::Arc;
use tabla_core::device::Precision;
use tabla_core::dtype::DType;
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::exec::state::{ROWS_OFFSET, state_bytes};
use tabla_core::exec::{Executor, Program, Tensors};
use tabla_core::op::list::Op;
use tabla_core::op::pages::Pages;
use tabla_core::op::params::{Row, State};
use tabla_core::op::table::{BufferId, KernelId};
use tabla_cpu::{Level, LinkOptions, memory_usage};
use tabla_plan::builder::{Builder, LogitRows, Shape, WeightInfo, Weights};
use tabla_quant::Scales;
use tabla_testkit::fill::{Filling, Random};
use tabla_testkit::rig::Device;

/// Tokens and rows of the products.
const SHAPES: [[u32; 2]; 6] = [[1, 512], [1, 7], [2, 33], [7, 7], [33, 2], [512, 1]];

/// Every storage type of weights.
fn types() -> impl Iterator<Item = DType> {
    KernelId::dtypes(Op::Gemv)
}

/// A number of columns that is a multiple of every tile, and one that is not, if the type has such.
fn columns(dtype: DType) -> [u32; 2] {
    match dtype.facts().block {
        256 => [512, 768],
        64 => [512, 320],
        128 if dtype == DType::Q1_0 => [512, 384],
        _ if dtype == DType::Ternary => [512, 333],
        1 => [512, 333],
        _ => [512, 352],
    }
}

/// A single weight matrix.
struct WeightMatrix {
    dtype: DType,
    shape: [u32; 2],
    filling: Filling,
}

impl Weights for WeightMatrix {
    fn find(&self, _: &str) -> Option<WeightInfo> {
        let [rows, cols] = self.shape;
        Some(WeightInfo {
            index: 0,
            dtype: self.dtype,
            rows,
            cols,
            scale: None,
        })
    }
}

impl Tensors for WeightMatrix {
    fn weight(&self, _: u32) -> &[u8] {
        &self.filling.bytes
    }
    fn scales(&self, _: u32) -> Option<Scales<'_>> {
        self.filling.scales()
    }
    fn constant(&self, _: u32) -> &[u8] {
        &[]
    }
}

/// A weight matrix whose file cannot be read.
struct UnreadableMatrix(WeightMatrix);

impl Weights for UnreadableMatrix {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        self.0.find(name)
    }
}

impl Tensors for UnreadableMatrix {
    fn weight(&self, index: u32) -> &[u8] {
        self.0.weight(index)
    }
    fn read(&self, _: u32, _: usize, _: &mut [u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Io, "the disk is gone"))
    }
    fn constant(&self, index: u32) -> &[u8] {
        self.0.constant(index)
    }
}

#[test]
fn packing_reports_weights_that_cannot_be_read() {
    let shape = [48, 64];
    for level in Level::available().into_iter().skip(1) {
        let matrix = Arc::new(UnreadableMatrix(WeightMatrix {
            dtype: DType::Q4_0,
            shape,
            filling: Filling::random("w", DType::Q4_0, shape),
        }));
        let options = LinkOptions::default().threads(2).level(level);
        let device = cpu_of(options.precision(Precision::Fast).packed_bytes(u64::MAX));
        let program = program(&device, &matrix, 1, |b| multiply(b, shape[0], shape[1]));
        let linked = (device.link)(program);
        let error = linked.err().expect("the weights cannot be read");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.message(), "the disk is gone");
    }
}

/// Builds a program with the commands of `emit` for a matrix and `tokens` rows.
fn program(
    device: &Device,
    matrix: &Arc<impl Weights + Tensors + 'static>,
    tokens: u32,
    emit: impl FnOnce(&mut Builder<'_>),
) -> Program {
    let shape = Shape {
        name: "product",
        tokens,
        logits: LogitRows::Last,
        sequences: 1,
        context: 16,
        pages: Pages::new(1, 16, &[], tokens),
        cache: DType::F32,
        part: 0,
    };
    let mut b = Builder::new(&**matrix, shape);
    emit(&mut b);
    let draft = b.finish().expect("the range is inside the buffer");
    let table = tabla_plan::compile(draft, &device.profile).expect("there is a kernel");
    Program {
        tables: Arc::from([table]),
        tensors: matrix.clone(),
    }
}

/// `y = x W^T`.
fn multiply(b: &mut Builder<'_>, rows: u32, cols: u32) {
    let w = b.weight("w", rows, cols);
    let input = b.input("x", cols);
    b.mat("y", w, input);
}

/// A linked program with one command.
struct LinkedCommand {
    executor: Box<dyn Executor>,
    from: Option<BufferId>,
    to: BufferId,
    /// Elements per token in `to`.
    cols: usize,
}

impl LinkedCommand {
    fn new(device: &Device, program: Program, (output, cols): (&str, u32)) -> Self {
        let place = |name: &str| {
            let mut slots = program.tables[0].slots.iter();
            slots.find(|slot| slot.name == name).map(|slot| slot.buffer)
        };
        let (from, to) = (place("x"), place(output).expect("the builder named it"));
        Self {
            executor: (device.link)(program).expect("the program links"),
            from,
            to,
            cols: cols as usize,
        }
    }

    /// Runs the command on these tokens and rows; returns its output.
    fn run(&mut self, (tokens, x): (&[u32], &[f32])) -> Vec<f32> {
        let mut state = vec![0; state_bytes(tokens.len())];
        let live = State {
            active_rows: u32::try_from(tokens.len()).expect("few"),
            ..State::default()
        };
        let rows = tokens.iter().map(|&token| Row {
            token,
            ..Row::default()
        });
        let rows: Vec<_> = rows.collect();
        state[..ROWS_OFFSET].copy_from_slice(bytemuck::bytes_of(&live));
        state[ROWS_OFFSET..].copy_from_slice(bytemuck::cast_slice(&rows));
        let executor = &mut self.executor;
        executor
            .write(BufferId::State, 0, &state)
            .expect("the range is inside the buffer");
        if let Some(from) = self.from {
            let x = bytemuck::cast_slice(x);
            executor
                .write(from, 0, x)
                .expect("the range is inside the buffer");
        }
        executor.run(0, (0..1).into(), 1).expect("the commands run");
        let mut y = vec![0f32; tokens.len() * self.cols];
        let bytes = bytemuck::cast_slice_mut(&mut y);
        executor
            .read(self.to, 0, bytes)
            .expect("the range is inside the buffer");
        y
    }
}

/// Runs the first command of a program; returns slot `output`, with `output.1` elements per token.
fn run(
    device: &Device,
    program: Program,
    input: (&[u32], &[f32]),
    output: (&str, u32),
) -> Vec<f32> {
    LinkedCommand::new(device, program, output).run(input)
}

/// `y[t, r]` of `tokens` rows of `x`.
pub(crate) fn product(
    device: &Device,
    matrix: &Arc<impl Weights + Tensors + 'static>,
    x: &[f32],
    [tokens, rows, cols]: [u32; 3],
) -> Vec<f32> {
    let program = program(device, matrix, tokens, |b| multiply(b, rows, cols));
    run(device, program, (&vec![0; tokens as usize], x), ("y", rows))
}

/// Compares a product with sums in f64. The tolerance is `1e-5` of the sum of absolute terms plus,
/// if activations are quantized to int8 in blocks of 32, half a step of each (1/254 of the block's
/// maximum) times its weight.
fn check(what: &str, y: &[f32], (w, x): (&[f32], &[f32]), cols: usize, precision: Precision) {
    let (tokens, rows) = (x.len() / cols, w.len() / cols);
    for t in 0..tokens {
        let x = &x[t * cols..][..cols];
        for r in 0..rows {
            let w = &w[r * cols..][..cols];
            let (mut sum, mut bound) = (0.0, 0.0);
            for (w, x) in w.chunks(32).zip(x.chunks(32)) {
                let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let step = match precision {
                    Precision::Fast => f64::from(largest) / 254.0,
                    Precision::Exact => 0.0,
                };
                for (w, x) in w.iter().zip(x) {
                    let (w, x) = (f64::from(*w), f64::from(*x));
                    sum += w * x;
                    bound += w.abs() * (1e-5 * x.abs() + 1.001 * step);
                }
            }
            let y = f64::from(y[t * rows + r]);
            let error = (y - sum).abs();
            assert!(
                error <= bound,
                "{what} [{t}, {r}]: {y} for {sum}, {error} over {bound}"
            );
        }
    }
}

#[test]
fn matmul_of_every_type_matches_decoded_weights() {
    for dtype in types() {
        for cols in columns(dtype) {
            for [tokens, rows] in SHAPES {
                // Four rows share a byte.
                let rows = if dtype == DType::Ternary {
                    rows.next_multiple_of(4)
                } else {
                    rows
                };
                // Ternary blocks run over the whole matrix.
                let rows = if dtype == DType::I2S {
                    rows.next_multiple_of(4)
                } else {
                    rows
                };
                let filling = Filling::random("w", dtype, [rows, cols]);
                let w = filling.numbers();
                let matrix = Arc::new(WeightMatrix {
                    dtype,
                    shape: [rows, cols],
                    filling,
                });
                let x = input(tokens * cols);
                for level in Level::available() {
                    for precision in [Precision::Exact, Precision::Fast] {
                        let device = cpu(level, precision, 2);
                        let y = product(&device, &matrix, &x, [tokens, rows, cols]);
                        let what = format!("{dtype} [{tokens}, {rows}, {cols}] on {}", device.name);
                        check(&what, &y, (&w, &x), cols as usize, precision);
                    }
                }
            }
        }
    }
}

/// Alternates between more and fewer active rows, so that stale data of earlier runs would show:
/// every tile width, whole tiles, a partial tile after them, and more tiles than are
/// multiplied in registers.
#[test]
fn result_is_independent_of_active_rows() {
    const TOKENS: u32 = 70;
    const ROWS: u32 = 149;
    let types = [
        DType::Q4_0,
        DType::Q8_0,
        DType::Q4K,
        DType::Q6K,
        DType::Iq2S,
        DType::Affine4,
        DType::Tq2_0,
        DType::Bf16,
        DType::F16,
    ];
    // Columns that are decoded at once, with several panels, and more columns, panel by panel.
    for (dtype, cols) in types
        .into_iter()
        .flat_map(|dtype| [(dtype, 512), (dtype, 768)])
    {
        let matrix = Arc::new(WeightMatrix {
            dtype,
            shape: [ROWS, cols],
            filling: Filling::random("w", dtype, [ROWS, cols]),
        });
        let x = input(TOKENS * cols);
        for level in Level::available() {
            for packed_bytes in [u64::MAX, 0] {
                let device = cpu_of(
                    LinkOptions::default()
                        .threads(2)
                        .level(level)
                        .precision(Precision::Fast)
                        .packed_bytes(packed_bytes),
                );
                let tokens = |tokens| {
                    let program = program(&device, &matrix, tokens, |b| multiply(b, ROWS, cols));
                    LinkedCommand::new(&device, program, ("y", ROWS))
                };
                let mut alone = tokens(1);
                let each = x.chunks(cols as usize);
                let each: Vec<_> = each.flat_map(|x| alone.run((&[0], x))).collect();
                let mut together = tokens(TOKENS);
                for live in [70, 1, 16, 2, 28, 5, 4, 9, 60, 17, 3, 8] {
                    let y = together.run((&vec![0; live], &x[..live * cols as usize]));
                    let expected = &each[..live * ROWS as usize];
                    assert!(
                        y == expected,
                        "{dtype}, {cols} columns, {live} live, on {}",
                        device.name
                    );
                }
            }
        }
    }
}

/// Random activations: `count` numbers.
fn input(count: u32) -> Vec<f32> {
    let mut random = Random::of("x");
    (0..count).map(|_| random.number()).collect()
}

/// Rows and columns, and the group sizes that divide the columns: more panels than are processed
/// together, a partial panel, partial chunks and spans.
const GROUPED: [([u32; 2], &[usize]); 3] = [
    ([133, 640], &[32, 64, 128]),
    ([16, 64], &[32, 64]),
    ([5, 352], &[32]),
];

#[test]
fn packed_affine_codes_match_mapped_ones() {
    const TOKENS: u32 = 35;
    for dtype in [DType::Affine4, DType::Affine8] {
        for float in [DType::F32, DType::F16, DType::Bf16] {
            for ([rows, cols], groups) in GROUPED {
                for &group in groups {
                    let scales = Some((float, [1, group], true));
                    let filling = Filling::scaled("w", dtype, [rows, cols], scales);
                    let w = filling.numbers();
                    let matrix = Arc::new(WeightMatrix {
                        dtype,
                        shape: [rows, cols],
                        filling,
                    });
                    let x = input(TOKENS * cols);
                    let (row, wide) = (rows as usize, cols as usize);
                    for level in Level::available() {
                        let options = LinkOptions::default()
                            .threads(2)
                            .level(level)
                            .precision(Precision::Fast)
                            .packed_bytes(u64::MAX);
                        let [packed, mapped] =
                            [u64::MAX, 0].map(|bytes| cpu_of(options.packed_bytes(bytes)));
                        let what = format!("{dtype}, {float} for {group}, on {}", packed.name);
                        // Whole panels, with as many bytes per row as the file. The scalar level
                        // packs nothing.
                        let emit = |b: &mut Builder<'_>| multiply(b, rows, cols);
                        let program = program(&packed, &matrix, TOKENS, emit);
                        let usage = memory_usage(&program, &options).expect("the program links");
                        let numbers = 2 * (wide / group) * float.facts().bytes;
                        let row_bytes = wide / 32 * dtype.facts().bytes + numbers;
                        let panels = match level {
                            Level::Scalar => 0,
                            _ => row.next_multiple_of(16) * row_bytes,
                        };
                        assert_eq!(usage.packed, panels as u64, "{what}");
                        let all = product(&packed, &matrix, &x, [TOKENS, rows, cols]);
                        check(&what, &all, (&w, &x), wide, Precision::Fast);
                        let other = product(&mapped, &matrix, &x, [TOKENS, rows, cols]);
                        assert!(all == other, "{what}: mapped");
                        for t in [0, 1, 15, 16, 34] {
                            let x = &x[t * wide..][..wide];
                            for device in [&packed, &mapped] {
                                let y = product(device, &matrix, x, [1, rows, cols]);
                                let expected = &all[t * row..][..row];
                                assert!(y == expected, "{what}: token {t} on {}", device.name);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Looks up rows of every type, in the file and, if a product has packed them, in its panels.
#[test]
fn packed_rows_decode_for_embedding() {
    const ROWS: u32 = 37;
    for dtype in types() {
        for cols in columns(dtype) {
            let rows = if matches!(dtype, DType::Ternary | DType::I2S) {
                ROWS.next_multiple_of(4)
            } else {
                ROWS
            };
            let filling = Filling::random("w", dtype, [rows, cols]);
            let w = filling.numbers();
            let matrix = Arc::new(WeightMatrix {
                dtype,
                shape: [rows, cols],
                filling,
            });
            for level in Level::available() {
                let device = cpu(level, Precision::Fast, 2);
                let tokens = [0, 1, 15, 16, rows - 1];
                let count = u32::try_from(tokens.len()).expect("few");
                let program = program(&device, &matrix, count, |b| {
                    let w = b.weight("w", rows, cols);
                    let x = b.embed(w);
                    b.mat("y", w, x);
                });
                let found = run(&device, program, (&tokens, &[]), ("h", cols));
                for (token, found) in tokens.iter().zip(found.chunks(cols as usize)) {
                    let expected = &w[(token * cols) as usize..][..cols as usize];
                    let what = format!("{dtype} [{rows}, {cols}], token {token}");
                    assert!(found == expected, "{what} on {}", device.name);
                }
            }
        }
    }
}

/// Rows and columns that do not fill a tile, a panel or a span, and some that do.
const FLOATS: [[u32; 2]; 10] = [
    [1, 1],
    [5, 31],
    [17, 32],
    [33, 130],
    [150, 130],
    [40, 97],
    [64, 64],
    [7, 1056],
    [35, 2081],
    [35, 2112],
];

#[test]
fn float_matmul_is_independent_of_batch_size() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for [rows, cols] in FLOATS {
            // More tokens than are processed together, if columns are split too.
            let most = if cols > 2048 { 290 } else { 97 };
            let filling = Filling::random("w", dtype, [rows, cols]);
            let w = filling.numbers();
            let matrix = Arc::new(WeightMatrix {
                dtype,
                shape: [rows, cols],
                filling,
            });
            let x = input(most * cols);
            let (row, wide) = (rows as usize, cols as usize);
            for level in Level::available() {
                for precision in [Precision::Exact, Precision::Fast] {
                    let alone = cpu(level, precision, 1);
                    let what = format!("{dtype} [{rows}, {cols}] on {}", alone.name);
                    let all = product(&alone, &matrix, &x, [most, rows, cols]);
                    check(&what, &all, (&w, &x), wide, precision);
                    for t in [0, 1, 6, 15, 16, 31, 32, 95, most as usize - 1] {
                        let x = &x[t * wide..][..wide];
                        let y = product(&alone, &matrix, x, [1, rows, cols]);
                        assert!(y == all[t * row..][..row], "{what}: token {t} alone");
                    }
                    for (tokens, threads) in [(2, 1), (7, 2), (16, 3), (33, 2), (most, 3)] {
                        let device = cpu(level, precision, threads);
                        let count = tokens as usize;
                        let x = &x[..count * wide];
                        let y = product(&device, &matrix, x, [tokens, rows, cols]);
                        assert!(
                            y == all[..count * row],
                            "{what}: {tokens} tokens, {threads} threads"
                        );
                    }
                }
            }
        }
    }
}
