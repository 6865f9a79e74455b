//! Every operation's cases on every device, held against the scalar reference.
use crate::fill::{Filling, Random, biases, digits, numbers, of_codes, row_of_codes, shuffled};
use crate::formulas;
use bytemuck::Pod;
use half::f16;
use std::collections::BTreeMap;
use std::sync::Arc;
use tabla::device::{Fusion, Precision, Profile};
use tabla::dtype::DType;
use tabla::error::{ErrorKind, Result};
use tabla::exec::case::Case;
use tabla::exec::cpu::{self, Level, Options};
use tabla::exec::state::{ROWS_OFFSET, Row, SAMPLER_OFF, Sampler, State};
use tabla::exec::{Executor, Program, Tensors};
use tabla::op::builder::{Builder, Shape};
use tabla::op::list::{Access, Op};
use tabla::op::pages::Pages;
use tabla::op::params::attention;
use tabla::op::table::{Place, SlotInfo, Table};
use tabla::quant::Scales;
use tabla::{plan, quant};

/// Something that links tables.
pub(crate) struct Device {
    /// For messages.
    pub(crate) name: String,
    /// What tables are planned for.
    pub(crate) profile: Profile,
    /// Links them.
    pub(crate) link: Box<dyn Fn(Program) -> Result<Box<dyn Executor>>>,
}

/// A CPU at a level.
pub(crate) fn cpu(level: Level, precision: Precision, threads: u32) -> Device {
    cpu_of(Options {
        threads,
        level: Some(level),
        precision,
        packed: true,
    })
}

pub(crate) fn cpu_of(options: Options) -> Device {
    Device {
        name: format!("{options:?}"),
        profile: cpu::profile(&options).expect("an available level"),
        link: Box::new(move |program| cpu::link(program, &options)),
    }
}

/// What a command found and left in its operands, by their names in the list.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What each operand is.
    pub(crate) slots: BTreeMap<&'static str, SlotInfo>,
    /// The bytes of its parameters.
    params: Vec<u8>,
    /// The numbers of each weight.
    weights: BTreeMap<&'static str, Vec<f32>>,
    /// The bytes before.
    pub(crate) before: BTreeMap<&'static str, Vec<u8>>,
    /// The bytes after, of what the operation writes.
    pub(crate) after: BTreeMap<&'static str, Vec<u8>>,
}

impl Outcome {
    /// The numbers of an operand before the command.
    pub(crate) fn numbers(&self, name: &str) -> Vec<f32> {
        if let Some(weight) = self.weights.get(name) {
            return weight.clone();
        }
        numbers(&self.slots[name], &self.before[name])
    }

    /// The digits of a ternary weight, row after row.
    pub(crate) fn digits(&self, name: &str) -> Vec<i8> {
        digits(&self.slots[name], &self.before[name])
    }

    /// The numbers of an operand after it.
    pub(crate) fn results(&self, name: &str) -> Vec<f32> {
        numbers(&self.slots[name], &self.after[name])
    }

    /// The command's parameters.
    pub(crate) fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(&self.params)
    }

    /// Token and position of the rows before.
    pub(crate) fn rows(&self) -> Vec<Row> {
        bytemuck::pod_collect_to_vec(&self.before["state"][ROWS_OFFSET..])
    }

    /// The state before.
    pub(crate) fn state(&self) -> State {
        bytemuck::pod_read_unaligned(&self.before["state"][..ROWS_OFFSET])
    }
}

/// The tensors of a case.
struct Filled {
    weights: Vec<Filling>,
    freqs: Vec<u8>,
}

impl Tensors for Filled {
    fn weight(&self, index: u32) -> &[u8] {
        &self.weights[index as usize].bytes
    }
    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.weights[index as usize].scales()
    }
    fn constant(&self, _: u32) -> &[u8] {
        &self.freqs
    }
}

fn random_bytes(slot: &SlotInfo) -> Vec<u8> {
    let mut random = Random::of(&slot.name);
    let mut bytes = Vec::new();
    for _ in 0..slot.rows {
        match slot.dtype {
            DType::U32 => {
                let row: Vec<u32> = (0..slot.cols).map(|_| random.word() % 50).collect();
                bytes.extend_from_slice(bytemuck::cast_slice(&row));
            }
            // Activations, which are over -128.
            DType::I8 => bytes.extend((0..slot.cols).map(|_| {
                let q = i64::from(random.word() % 255) - 127;
                i8::try_from(q)
                    .expect("seven bits and a sign")
                    .cast_unsigned()
            })),
            _ => {
                let row: Vec<f32> = (0..slot.cols).map(|_| random.number()).collect();
                let mut stored = Vec::new();
                quant::encode_row(slot.dtype, &row, &mut stored);
                if of_codes(slot) {
                    stored = row_of_codes(&stored);
                }
                bytes.extend(stored);
            }
        }
    }
    bytes
}

fn tensors(case: &Case) -> Filled {
    let weights = case
        .weights
        .iter()
        .map(|(name, dtype, rows, cols)| Filling::random(name, *dtype, [*rows, *cols]));
    let freqs: Vec<f32> = (0..512).map(|i| 0.9f32.powi(i)).collect();
    Filled {
        weights: weights.collect(),
        freqs: bytemuck::cast_slice(&freqs).to_vec(),
    }
}

fn state(case: &Case) -> Vec<u8> {
    let state = State {
        live: case.live,
        context: case.context,
        ..State::default()
    };
    let mut random = Random::of("tokens");
    let ids = case.weights.first().map_or(1, |(_, _, rows, _)| 2 * rows);
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    for t in 0..case.tokens {
        let row = Row {
            token: random.word() % ids,
            position: case.position + t % case.sequence,
            sequence: t / case.sequence,
            done: 0,
        };
        bytes.extend_from_slice(bytemuck::bytes_of(&row));
    }
    bytes
}

/// How every sequence of a case picks its tokens: as it says.
fn samplers(case: &Case, slot: &SlotInfo) -> Vec<u8> {
    let mut sampler = Sampler {
        temperature: 1.0,
        ..SAMPLER_OFF
    };
    (case.sampler)(&mut sampler);
    bytemuck::bytes_of(&sampler).repeat(slot.rows as usize)
}

/// How the cache of a case lies, and for how many sequences.
pub(crate) fn pages(case: &Case) -> (Pages, u32) {
    let sequences = case.tokens.div_ceil(case.sequence);
    let pages = Pages::new(sequences, case.context, &[case.window], case.tokens);
    (pages, sequences)
}

/// The table of a case, planned for a device.
pub(crate) fn table(case: &Case, device: &Device) -> Table {
    let (pages, sequences) = pages(case);
    let shape = Shape {
        name: "case",
        tokens: case.tokens,
        logits: case.logits,
        sequences,
        context: case.context,
        pages,
        cache: case.cache,
        part: 0,
    };
    let mut b = Builder::new(case, shape);
    (case.emit)(&mut b);
    let draft = b.finish().expect("cases fit their weights");
    let profile = Profile {
        fusion: Fusion::Fused,
        ..device.profile.clone()
    };
    plan::compile(draft, &profile).expect("cases have kernels")
}

/// Runs the command of `op` in a case, after `set` changed what its operands hold.
pub(crate) fn run_case(
    op: Op,
    case: &Case,
    device: &Device,
    set: &dyn Fn(&str, &mut Vec<u8>),
) -> Outcome {
    let table = table(case, device);
    let at = table.cmds.iter().position(|c| c.kernel.op == op);
    let at = at.unwrap_or_else(|| panic!("{op:?} {}: the case does not emit it", case.name));
    // Tiles are not any numbers: what makes them of ids goes along.
    let first = at - usize::from(op == Op::GroupedGemm);
    let cmds = table.cmds[first..=at].iter();
    let operands = cmds.flat_map(|cmd| cmd.slots().iter().zip(cmd.kernel.op.operands()));
    let operands: Vec<_> = operands
        .map(|(slot, o)| (o.name, o.access, table.slot(*slot).clone()))
        .collect();
    let params = table.params(&table.cmds[at]).to_vec();
    let tensors = Arc::new(tensors(case));
    let program = Program {
        tables: Arc::from([table]),
        tensors: tensors.clone(),
    };
    let mut executor = (device.link)(program).expect("cases link");
    let mut outcome = Outcome {
        slots: BTreeMap::new(),
        params,
        weights: BTreeMap::new(),
        before: BTreeMap::new(),
        after: BTreeMap::new(),
    };
    for (name, _, slot) in &operands {
        let bytes = match slot.place {
            Place::Weight(i, _) => {
                let weight = &tensors.weights[i as usize];
                outcome.weights.insert(name, weight.numbers());
                weight.bytes.clone()
            }
            Place::Constant(i) => tensors.constant(i).to_vec(),
            _ => {
                let mut bytes = match slot.place {
                    Place::State => state(case),
                    Place::Samplers => samplers(case, slot),
                    Place::Biases => biases(slot.rows),
                    Place::Pages => {
                        let (pages, sequences) = pages(case);
                        bytemuck::cast_slice(&shuffled(&pages, sequences, "pages")).to_vec()
                    }
                    _ => random_bytes(slot),
                };
                if slot.dtype == DType::I8 {
                    // Zeros stand behind the columns that a matrix has.
                    let cols = operands
                        .iter()
                        .find(|o| o.0 == "w")
                        .map(|o| o.2.cols as usize);
                    let rows = bytes.chunks_exact_mut(slot.cols as usize);
                    rows.for_each(|row| row[cols.unwrap_or(0)..].fill(0));
                }
                set(name, &mut bytes);
                executor.write(slot.place, 0, &bytes).expect("it fits");
                bytes
            }
        };
        outcome.slots.insert(name, slot.clone());
        outcome.before.insert(name, bytes);
    }
    executor.run(0, (first..at + 1).into(), 1).expect("it runs");
    for (name, access, slot) in operands {
        if access != Access::Read {
            let mut bytes = vec![0; outcome.before[name].len()];
            executor.read(slot.place, 0, &mut bytes).expect("it fits");
            outcome.after.insert(name, bytes);
        }
    }
    outcome
}

/// Panics unless two outcomes agree within a tolerance relative to the largest number.
pub(crate) fn compare(what: &str, reference: &Outcome, found: &Outcome, tolerance: f32) {
    for (name, bytes) in &reference.after {
        let slot = &reference.slots[name];
        if slot.dtype == DType::U32 || tolerance == 0.0 {
            assert!(bytes == &found.after[name], "{what}: {name} differs");
            continue;
        }
        let [x, y] = [bytes, &found.after[name]].map(|b| numbers(slot, b));
        near(&format!("{what}: {name}"), &x, &y, tolerance);
    }
}

/// Panics unless numbers agree within a tolerance relative to the largest of them.
pub(crate) fn near(what: &str, x: &[f32], y: &[f32], tolerance: f32) {
    assert_eq!(x.len(), y.len(), "{what}");
    let finite = x.iter().filter(|x| x.is_finite());
    let largest = finite.fold(0.0f32, |m, x| m.max(x.abs()));
    for (i, (x, y)) in x.iter().zip(y).enumerate() {
        let agree = x == y || (x - y).abs() <= tolerance * largest;
        assert!(agree, "{what}[{i}]: {x} and {y}, the largest is {largest}");
    }
}

const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

fn every(mut each: impl FnMut(Op, &Case)) {
    for op in Op::ALL {
        for case in cpu::cases(*op) {
            each(*op, case);
        }
    }
}

fn keep(_: &str, _: &mut Vec<u8>) {}

#[test]
fn the_scalar_level_computes_the_formulas() {
    let device = cpu(Level::Scalar, Precision::Exact, 1);
    every(|op, case| {
        let outcome = run_case(op, case, &device, &keep);
        for (name, expected) in formulas::of(op, case, &outcome) {
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
fn every_level_agrees_with_the_scalar_one() {
    for precision in PRECISIONS {
        every(|op, case| {
            let scalar = cpu(Level::Scalar, precision, 1);
            let reference = run_case(op, case, &scalar, &keep);
            for level in Level::available() {
                let device = cpu(level, precision, 1);
                let found = run_case(op, case, &device, &keep);
                let what = format!("{op:?} {} on {}", case.name, device.name);
                compare(&what, &reference, &found, case.tolerance);
            }
        });
    }
}

#[test]
fn fast_is_near_exact() {
    every(|op, case| {
        let [exact, fast] =
            PRECISIONS.map(|p| run_case(op, case, &cpu(Level::Scalar, p, 1), &keep));
        let tolerance = case.tolerance * 2e3;
        compare(&format!("{op:?} {}", case.name), &exact, &fast, tolerance);
    });
}

#[test]
fn threads_change_no_bit() {
    for level in Level::available() {
        for precision in PRECISIONS {
            every(|op, case| {
                let one = run_case(op, case, &cpu(level, precision, 1), &keep);
                for threads in [2, 3, 7] {
                    let device = cpu(level, precision, threads);
                    let found = run_case(op, case, &device, &keep);
                    let what = format!("{op:?} {} on {}", case.name, device.name);
                    compare(&what, &one, &found, 0.0);
                }
            });
        }
    }
}

/// Puts a token of a batch where the first one is, alone.
pub(crate) fn alone(all: &Outcome, t: usize, width: usize) -> impl Fn(&str, &mut Vec<u8>) {
    move |name, bytes| match name {
        "state" => {
            let (state, rows) = bytes.split_at_mut(ROWS_OFFSET);
            bytemuck::from_bytes_mut::<State>(state).live = 1;
            let rows: &mut [Row] = bytemuck::cast_slice_mut(rows);
            rows[0] = all.rows()[t];
        }
        "q" => bytes[..width].copy_from_slice(&all.before[name][t * width..][..width]),
        _ => {}
    }
}

/// Each token of attention's cases again: alone in the batch's table, and in a table of its own.
#[test]
fn a_tile_of_attention_changes_no_bit() {
    for level in Level::available() {
        let device = cpu(level, Precision::Exact, 2);
        for case in cpu::cases(Op::Attention) {
            let all = run_case(Op::Attention, case, &device, &keep);
            let p: attention::Params = all.params();
            let width = (p.heads * p.head_dim) as usize * size_of::<f32>();
            for t in (0..case.live as usize).step_by(5) {
                let wanted = &all.after["y"][t * width..][..width];
                let alone = alone(&all, t, width);
                let found = run_case(Op::Attention, case, &device, &alone);
                let what = format!("{} {}, row {t}", case.name, device.name);
                assert!(&found.after["y"][..width] == wanted, "{what} alone");
                let single = Case {
                    tokens: 1,
                    live: 1,
                    ..*case
                };
                if pages(&single) != pages(case) {
                    continue;
                }
                for threads in [1, 2, 7] {
                    let device = cpu(level, Precision::Exact, threads);
                    let found = run_case(Op::Attention, &single, &device, &alone);
                    assert!(found.after["y"] == wanted, "{what} by {threads} threads");
                }
            }
        }
    }
}

#[test]
fn packing_changes_no_bit() {
    for level in Level::available() {
        let options = Options {
            threads: 1,
            level: Some(level),
            precision: Precision::Fast,
            packed: true,
        };
        let mapped = cpu_of(Options {
            packed: false,
            ..options
        });
        every(|op, case| {
            let packed = run_case(op, case, &cpu_of(options), &keep);
            let found = run_case(op, case, &mapped, &keep);
            let what = format!("{op:?} {} on {}", case.name, mapped.name);
            compare(&what, &packed, &found, 0.0);
        });
    }
}

#[test]
fn a_batch_changes_no_bit() {
    let pairs = [(Op::Gemv, Op::Gemm), (Op::GemvAdd, Op::GemmAdd)];
    for level in Level::available() {
        for precision in PRECISIONS {
            let device = cpu(level, precision, 2);
            for (one, many) in pairs {
                for (alone, batch) in cpu::cases(one).iter().zip(cpu::cases(many)) {
                    assert_eq!(alone.name, batch.name);
                    let all = run_case(many, batch, &device, &keep);
                    for t in 0..batch.live as usize {
                        let row = |name: &str, bytes: &mut Vec<u8>| {
                            if name != "state" {
                                let len = bytes.len();
                                bytes.copy_from_slice(&all.before[name][t * len..][..len]);
                            }
                        };
                        let single = run_case(one, alone, &device, &row);
                        let wanted = &single.after["y"];
                        let found = &all.after["y"][t * wanted.len()..][..wanted.len()];
                        assert!(found == wanted, "{many:?} {} {}", batch.name, device.name);
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_happens_where_nothing_lives() {
    for level in Level::available() {
        every(|op, case| {
            let device = cpu(level, Precision::Fast, 2);
            let dead = |name: &str, bytes: &mut Vec<u8>| {
                if name == "state" {
                    bytes[..4].fill(0);
                }
            };
            let outcome = run_case(op, case, &device, &dead);
            for (name, after) in &outcome.after {
                let same = after == &outcome.before[name];
                assert!(same, "{op:?} {}: {name} was touched", case.name);
            }
        });
    }
}

#[test]
fn places_are_bounded() {
    let case = &cpu::cases(Op::Advance)[0];
    let device = cpu(Level::Scalar, Precision::Exact, 1);
    let program = Program {
        tables: Arc::from([table(case, &device)]),
        tensors: Arc::new(tensors(case)),
    };
    let mut executor = (device.link)(program).expect("it links");
    let mut bytes = [0; 8];
    for (place, offset) in [
        (Place::Keys(3), 0),
        (Place::Weight(0, 0), 0),
        (Place::History, 4 * 8 - 7),
        (Place::History, usize::MAX),
    ] {
        let error = executor.read(place, offset, &mut bytes);
        let error = error.expect_err("outside");
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }
    let history: Vec<u32> = (0..8).collect();
    let all = bytemuck::cast_slice(&history);
    executor.write(Place::History, 0, all).expect("it fits");
    executor
        .duplicate(Place::History, 4, 16, 12)
        .expect("they do not meet");
    let mut now = vec![0; all.len()];
    executor.read(Place::History, 0, &mut now).expect("it fits");
    assert_eq!(
        bytemuck::pod_collect_to_vec::<u8, u32>(&now),
        [0, 1, 2, 3, 1, 2, 3, 7]
    );
    for (from, to, bytes) in [(4, 8, 8), (0, 28, 8), (usize::MAX, 0, 4)] {
        let error = executor.duplicate(Place::History, from, to, bytes);
        let error = error.expect_err("they meet, or leave it");
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }
    let error = executor.run(0, (0..3).into(), 1).expect_err("two commands");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let error = executor.run(1, (0..1).into(), 1).expect_err("one table");
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
}

#[test]
fn a_chain_ends_when_it_is_done() {
    let case = &cpu::cases(Op::Advance)[0];
    for threads in [1, 2, 3] {
        let device = cpu(Level::Scalar, Precision::Exact, threads);
        let program = Program {
            tables: Arc::from([table(case, &device)]),
            tensors: Arc::new(tensors(case)),
        };
        let mut executor = (device.link)(program).expect("it links");
        executor
            .write(Place::State, 0, &state(case))
            .expect("it fits");
        executor.run(0, (0..2).into(), 100).expect("it runs");
        let mut bytes = vec![0; ROWS_OFFSET + size_of::<Row>()];
        executor.read(Place::State, 0, &mut bytes).expect("it fits");
        let found: State = bytemuck::pod_read_unaligned(&bytes[..ROWS_OFFSET]);
        let row: Row = bytemuck::pod_read_unaligned(&bytes[ROWS_OFFSET..]);
        // From position 3 of 8: tokens at 4, 5, 6, 7, and one that has no place.
        assert_eq!(
            (found.step, found.live, row.done, row.position),
            (5, 0, 2, 8)
        );
    }
}

#[test]
fn f16_is_what_half_says() {
    // The runner decodes caches by quant; half is what the kernels round with.
    let x = 0.1f32;
    let mut bytes = Vec::new();
    quant::encode_row(DType::F16, &[x], &mut bytes);
    assert_eq!(bytes, f16::from_f32(x).to_le_bytes());
}
