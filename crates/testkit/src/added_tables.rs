//! Tables that are added to an executor and removed from it, against the same tables linked alone.

use crate::fill::Filling;
use crate::rig::Device;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tabla_core::dtype::DType;
use tabla_core::error::{ErrorKind, Result};
use tabla_core::exec::state::ROWS_OFFSET;
use tabla_core::exec::{Executor, Program, Tensors};
use tabla_core::op::pages::Pages;
use tabla_core::op::params::{Row, State};
use tabla_core::op::table::{BufferId, Table};
use tabla_plan::builder::{Builder, LogitRows, Rope, Shape, WeightInfo, Weights, X};
use tabla_quant::Scales;

const TOKENS: u32 = 3;
const COLS: u32 = 64;
const HEADS: u32 = 6;
const HEAD_DIM: u32 = 8;
const ROWS: u32 = HEADS * HEAD_DIM;
const WIDTH: u32 = 32;

/// The tensors: of the first program except the last, which only added tables use.
const WEIGHTS: [(&str, DType, [u32; 2]); 4] = [
    ("w", DType::Q8_0, [ROWS, COLS]),
    ("n", DType::F32, [1, COLS]),
    ("unused", DType::F16, [WIDTH, COLS]),
    ("adapter", DType::F16, [ROWS, COLS]),
];
/// Number of tensors that the first program uses.
const LINKED: usize = 2;

/// Random tensors, and how often each was copied while linking.
struct CountedTensors {
    weights: Vec<Filling>,
    copied: [AtomicU32; WEIGHTS.len()],
    freqs: Vec<u8>,
}

impl CountedTensors {
    /// Creates `count` tensors. `base` determines the frequencies, the only constant.
    fn new(count: usize, base: f32) -> Arc<Self> {
        let weights = WEIGHTS[..count].iter();
        let freqs = [0, 1, 2, 3].map(|i| base.powi(i));
        Arc::new(Self {
            weights: weights
                .map(|(name, dtype, shape)| Filling::random(name, *dtype, *shape))
                .collect(),
            copied: Default::default(),
            freqs: bytemuck::cast_slice(&freqs).to_vec(),
        })
    }

    fn count(&self, index: u32) {
        self.copied[index as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Tensors for CountedTensors {
    fn weight(&self, index: u32) -> &[u8] {
        &self.weights[index as usize].bytes
    }
    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.weights[index as usize].scales()
    }
    fn read(&self, index: u32, first: usize, to: &mut [u8]) -> Result<()> {
        self.count(index);
        to.copy_from_slice(&self.weight(index)[first..first + to.len()]);
        Ok(())
    }
    fn release(&self, index: u32, _: Range<usize>) {
        self.count(index);
    }
    fn constant(&self, _: u32) -> &[u8] {
        &self.freqs
    }
}

impl Weights for CountedTensors {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let index = WEIGHTS.iter().position(|(known, ..)| *known == name)?;
        let (_, dtype, [rows, cols]) = WEIGHTS[index];
        Some(WeightInfo {
            index: u32::try_from(index).expect("few tensors"),
            dtype,
            rows,
            cols,
            scale: None,
        })
    }
}

/// Compiles a table. Its slots `x` and `y` are buffers that programs share; `z` is captured value
/// `captured`.
fn table(
    device: &Device,
    tensors: &CountedTensors,
    tokens: u32,
    captured: u32,
    emit: fn(&mut Builder<'_>, X),
) -> Table {
    let shape = Shape {
        name: "test",
        tokens,
        logits: LogitRows::Last,
        sequences: 1,
        context: 64,
        pages: Pages::new(1, 64, &[], tokens),
        cache: DType::F32,
        part: 0,
    };
    let mut b = Builder::new(tensors, shape);
    let x = b.input("x", COLS);
    emit(&mut b, x);
    let graph = b.finish().expect("the tensors have these shapes");
    let mut table = tabla_plan::compile(graph, &device.profile).expect("there are kernels");
    for slot in &mut table.slots {
        match &*slot.name {
            "x" => slot.buffer = BufferId::Scores,
            "y" => slot.buffer = BufferId::Hidden,
            "z" => slot.buffer = BufferId::Captured(captured),
            _ => {}
        }
    }
    table
}

/// `y = rope(norm(x) w^T)`
fn emit_first(b: &mut Builder<'_>, x: X) -> X {
    let (n, w) = (b.vector("n", COLS), b.weight("w", ROWS, COLS));
    let h = b.rms_norm(x, n, 1e-5);
    let y = b.mat("y", w, h);
    let rope = Rope {
        index: 0,
        dim: HEAD_DIM,
        half_split: true,
        magnitude: 1.0,
    };
    b.rope(HEADS, HEAD_DIM, rope, y);
    y
}

/// `z = x adapter^T`, `y = rope(norm(x) w^T) + z / 2`
fn emit_adapter(b: &mut Builder<'_>, x: X) {
    let y = emit_first(b, x);
    let adapter = b.weight("adapter", ROWS, COLS);
    let z = b.mat("z", adapter, x);
    b.add(z, y, 0.5);
}

/// `z = x unused^T`
fn emit_unused(b: &mut Builder<'_>, x: X) {
    let unused = b.weight("unused", WIDTH, COLS);
    b.mat("z", unused, x);
}

/// The first program: one table.
fn first(device: &Device) -> Program {
    let tensors = CountedTensors::new(WEIGHTS.len() - 1, 0.9);
    let table = table(device, &tensors, TOKENS, 0, |b, x| {
        emit_first(b, x);
    });
    Program {
        tables: Arc::from([table]),
        tensors,
    }
}

/// A program to add: two tables, which capture values `captured` and `captured + 1`.
fn added(device: &Device, tokens: u32, captured: u32) -> (Program, Arc<CountedTensors>) {
    let tensors = CountedTensors::new(WEIGHTS.len(), 0.7);
    let tables = [
        table(device, &tensors, tokens, captured, emit_adapter),
        table(device, &tensors, tokens, captured + 1, emit_unused),
    ];
    let program = Program {
        tables: Arc::from(tables),
        tensors: tensors.clone(),
    };
    (program, tensors)
}

/// An executor of [`first`].
struct Linked<'a> {
    device: &'a Device,
    executor: Box<dyn Executor>,
}

impl<'a> Linked<'a> {
    fn new(device: &'a Device, program: Program) -> Self {
        let executor = (device.link)(program).expect("the program links");
        let mut linked = Self { device, executor };
        let state = State {
            active_rows: TOKENS,
            context: 64,
            ..State::default()
        };
        let rows = (0..TOKENS).map(|t| Row {
            position: 5 + t,
            ..Row::default()
        });
        let rows: Vec<Row> = rows.collect();
        linked.write(BufferId::State, 0, bytemuck::bytes_of(&state));
        linked.write(BufferId::State, ROWS_OFFSET, bytemuck::cast_slice(&rows));
        let x = Filling::random("x", DType::F32, [TOKENS, COLS]);
        linked.write(BufferId::Scores, 0, &x.bytes);
        linked
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) {
        let written = self.executor.write(buffer, offset, bytes);
        written.expect("the range is in bounds");
    }

    fn read(&mut self, buffer: BufferId, cols: u32) -> Vec<u8> {
        let mut bytes = vec![0; (TOKENS * cols) as usize * size_of::<f32>()];
        let read = self.executor.read(buffer, 0, &mut bytes);
        read.expect("the range is in bounds");
        bytes
    }

    /// Runs the table of [`first`]; returns its result.
    fn run_first(&mut self) -> Vec<u8> {
        let cmds = first(self.device).tables[0].cmds.len();
        self.run(0, cmds);
        self.read(BufferId::Hidden, ROWS)
    }

    /// Runs the tables of [`added`] from index `at` on; returns their results.
    fn run_added(&mut self, at: usize, captured: u32) -> [Vec<u8>; 3] {
        let (program, _) = added(self.device, TOKENS, captured);
        for (table, info) in (at..).zip(&*program.tables) {
            self.run(table, info.cmds.len());
        }
        [
            self.read(BufferId::Hidden, ROWS),
            self.read(BufferId::Captured(captured), ROWS),
            self.read(BufferId::Captured(captured + 1), WIDTH),
        ]
    }

    fn run(&mut self, table: usize, cmds: usize) {
        let ran = self.executor.run(table, (0..cmds).into(), 1);
        ran.expect("the table runs");
    }

    fn add(&mut self, captured: u32) -> usize {
        let (program, _) = added(self.device, TOKENS, captured);
        self.executor.add_tables(program).expect("it links")
    }

    fn remove(&mut self, at: usize) {
        self.executor.remove_tables(at).expect("it was added");
    }

    /// Checks that a table has no commands to run.
    fn assert_invalid(&mut self, table: usize) {
        let ran = self.executor.run(table, (0..1).into(), 1);
        let error = ran.expect_err("the table was removed");
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }

    fn assert_rejected(&mut self, program: Program, kind: ErrorKind) {
        let error = self.executor.add_tables(program).expect_err("not valid");
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// Checks results, indices and errors of added and removed tables.
pub fn results(device: &Device) {
    let mut alone = Linked::new(device, added(device, TOKENS, 1).0);
    let expected = alone.run_added(0, 1);
    let mut linked = Linked::new(device, first(device));
    let y = linked.run_first();
    assert!(y != expected[0], "the adapter changes the result");

    let (program, tensors) = added(device, TOKENS, 1);
    let at = linked.executor.add_tables(program).expect("it links");
    assert_eq!(at, 1, "after the table of the first program");
    let copied = tensors.copied.each_ref().map(|n| n.load(Ordering::Relaxed));
    assert_eq!(copied[..LINKED], [0; LINKED], "linked weights are shared");
    assert!(linked.run_first() == y, "the first table is unchanged");
    assert!(
        linked.run_added(1, 1) == expected,
        "the results are those of the tables alone"
    );

    assert_eq!(linked.add(3), 3, "after all tables");
    linked.write(BufferId::Captured(3), 0, &[1; 4]);
    linked.remove(1);
    linked.assert_invalid(1);
    linked.assert_invalid(2);
    let read = linked.executor.read(BufferId::Captured(1), 0, &mut [0; 4]);
    let error = read.expect_err("the buffer was removed");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    assert!(
        linked.run_added(3, 3) == expected,
        "other tables are unchanged"
    );
    assert!(linked.run_first() == y, "the first table is unchanged");
    for invalid in [0, 1, 2, 4, 5] {
        let removed = linked.executor.remove_tables(invalid);
        let error = removed.expect_err("not the first index of added tables");
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }

    assert_eq!(linked.add(1), 5, "indices of other tables remain");
    assert!(
        linked.run_added(5, 1) == expected,
        "the results are the same"
    );
    rejected_programs(&mut linked);
    assert!(linked.run_added(5, 1) == expected, "errors change nothing");
    assert!(linked.run_added(3, 3) == expected, "errors change nothing");
    for (at, captured) in [(5, 1), (3, 3)] {
        // A write that is pending when the buffer is removed.
        linked.write(BufferId::Captured(captured), 0, &[1; 4]);
        linked.remove(at);
    }
    assert!(linked.run_first() == y, "the first table is unchanged");
    for _ in 0..3 {
        assert_eq!(linked.add(1), 1, "indices after the last table are reused");
        assert!(
            linked.run_added(1, 1) == expected,
            "the results are the same"
        );
        linked.remove(1);
    }
    assert!(linked.run_first() == y, "the first table is unchanged");
}

/// Adds invalid programs.
fn rejected_programs(linked: &mut Linked<'_>) {
    let device = linked.device;
    // Rows of the shared buffers are missing.
    let (larger, _) = added(device, TOKENS + 2, 7);
    linked.assert_rejected(larger, ErrorKind::Internal);
    // The captured values belong to other added tables.
    let (same, tensors) = added(device, TOKENS, 1);
    linked.assert_rejected(same, ErrorKind::Internal);
    let empty = Program {
        tables: Arc::from([]),
        tensors,
    };
    linked.assert_rejected(empty, ErrorKind::Argument);
}

/// Checks timings of added tables, if the device supports them.
pub fn timings(device: &Device) {
    let mut linked = Linked::new(device, first(device));
    if linked.executor.time_commands().is_err() {
        return;
    }
    let runs = |linked: &Linked<'_>, table: usize| {
        let timings = linked.executor.command_timings(table);
        timings.iter().map(|timing| timing.runs).collect::<Vec<_>>()
    };
    assert_eq!(linked.add(1), 1, "after the table of the first program");
    linked.run_added(1, 1);
    linked.run_first();
    assert!(runs(&linked, 1).is_empty(), "it was added later");
    assert!(runs(&linked, 0).iter().all(|n| *n == 1), "it ran once");

    linked
        .executor
        .time_commands()
        .expect("timing is supported");
    linked.run_added(1, 1);
    let timed = runs(&linked, 1);
    assert!(
        !timed.is_empty() && timed.iter().all(|n| *n == 1),
        "{timed:?}"
    );
    linked.remove(1);
    assert!(runs(&linked, 1).is_empty(), "it was removed");
    // Another number of commands at the same index.
    let (program, tensors) = added(device, TOKENS, 1);
    let unused = Program {
        tables: Arc::from([program.tables[1].clone()]),
        tensors,
    };
    assert_eq!(
        linked.executor.add_tables(unused).expect("it links"),
        1,
        "index"
    );
    linked.run(1, program.tables[1].cmds.len());
    linked.run_first();
    assert!(runs(&linked, 0).iter().all(|n| *n == 1), "it ran once");
}

/// Adds and removes tables. Calls `check` with the step after each: the device's memory after
/// `removed` is that after `linked`.
pub fn memory(device: &Device, check: &dyn Fn(&str)) {
    let mut linked = Linked::new(device, first(device));
    linked.run_first();
    check("linked");
    for _ in 0..2 {
        let at = linked.add(1);
        linked.run_added(at, 1);
        check("added");
        linked.remove(at);
        check("removed");
    }
}
