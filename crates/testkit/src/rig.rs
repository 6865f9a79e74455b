//! Runs a case on a device and compares results.

use crate::case::Case;
use crate::fill::{Filling, Random, biases, digits, numbers, of_codes, row_of_codes, shuffled};
use bytemuck::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use tabla_core::device::Profile;
use tabla_core::dtype::DType;
use tabla_core::error::Result;
use tabla_core::exec::state::{ROWS_OFFSET, sampler_off};
use tabla_core::exec::{Executor, Program, Tensors};
use tabla_core::op::list::{Access, Op};
use tabla_core::op::pages::Pages;
use tabla_core::op::params::{Row, Sampler, State};
use tabla_core::op::table::{BufferId, DispatchCmd, SlotInfo, Table};
use tabla_plan::builder::{Builder, Shape};
use tabla_quant::Scales;

/// Device to test.
#[expect(missing_debug_implementations, reason = "it contains a closure")]
pub struct Device {
    /// Name, for messages.
    pub name: String,
    /// Profile for planning.
    pub profile: Profile,
    /// Links a program.
    pub link: Box<dyn Fn(Program) -> Result<Box<dyn Executor>>>,
}

/// Operands of a command before and after its run, by name.
#[derive(Debug)]
pub struct Outcome {
    /// The case that was run.
    pub case: Case,
    /// Slot of each operand.
    pub slots: BTreeMap<&'static str, SlotInfo>,
    /// Bytes of the parameters.
    params: Vec<u8>,
    /// Decoded weights.
    weights: BTreeMap<&'static str, Vec<f32>>,
    /// Bytes of each operand before the run.
    pub before: BTreeMap<&'static str, Vec<u8>>,
    /// Bytes of each written operand after the run.
    pub after: BTreeMap<&'static str, Vec<u8>>,
}

impl Outcome {
    /// Returns the decoded elements of an operand before the run.
    pub fn numbers(&self, name: &str) -> Vec<f32> {
        if let Some(weight) = self.weights.get(name) {
            return weight.clone();
        }
        numbers(&self.slots[name], &self.before[name])
    }

    /// Returns the digits of a ternary weight, row-major.
    pub fn digits(&self, name: &str) -> Vec<i8> {
        digits(&self.slots[name], &self.before[name])
    }

    /// Returns the decoded elements of an operand after the run.
    pub fn results(&self, name: &str) -> Vec<f32> {
        numbers(&self.slots[name], &self.after[name])
    }

    /// Returns the parameters of the command.
    pub fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(&self.params)
    }

    /// Returns the rows of the step state before the run.
    pub fn rows(&self) -> Vec<Row> {
        bytemuck::pod_collect_to_vec(&self.before["state"][ROWS_OFFSET..])
    }

    /// Returns the step state before the run.
    pub fn state(&self) -> State {
        bytemuck::pod_read_unaligned(&self.before["state"][..ROWS_OFFSET])
    }
}

/// Tensors of a case.
#[derive(Debug)]
pub struct Filled {
    weights: Vec<Filling>,
    freqs: Vec<u8>,
    /// Elements of the other constants.
    random: Vec<u8>,
    infinite: Vec<u8>,
}

/// Maximum number of elements of a constant.
const CONSTANT_MAX: u16 = 2048;

/// Number after which constants have infinite elements, see [`tensors`].
pub(crate) const INFINITE: u32 = 1 << 16;

impl Tensors for Filled {
    fn weight(&self, index: u32) -> &[u8] {
        &self.weights[index as usize].bytes
    }
    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        self.weights[index as usize].scales()
    }
    fn constant(&self, index: u32) -> &[u8] {
        let bytes = |elements: u32| 4 * elements as usize;
        match index {
            0 => &self.freqs,
            INFINITE.. => &self.infinite[..bytes(index - INFINITE)],
            _ => &self.random[..bytes(index)],
        }
    }
}

/// Random masks with three of four bits set.
fn masks(slot: &SlotInfo) -> Vec<u8> {
    let mut random = Random::of(&slot.name);
    let words = (0..slot.rows * slot.cols).map(|_| random.word() << 1 | random.word());
    bytemuck::pod_collect_to_vec(&words.collect::<Vec<u32>>())
}

fn random_bytes(slot: &SlotInfo) -> Vec<u8> {
    let mut random = Random::of(&slot.name);
    let mut bytes = Vec::new();
    for _ in 0..slot.rows {
        match slot.dtype {
            // Blocks of activations have numbers near 0 then.
            DType::Q8_1 => {
                let words = DType::Q8_1.bytes(slot.cols.into()).expect("whole blocks") / 4;
                let row: Vec<u32> = (0..words).map(|_| random.word() % 50).collect();
                bytes.extend_from_slice(bytemuck::cast_slice(&row));
            }
            DType::U32 => {
                let row: Vec<u32> = (0..slot.cols).map(|_| random.word() % 50).collect();
                bytes.extend_from_slice(bytemuck::cast_slice(&row));
            }
            // Quantized activations, which exclude -128.
            DType::I8 => bytes.extend((0..slot.cols).map(|_| {
                let q = i64::from(random.word() % 255) - 127;
                i8::try_from(q).expect("in the range of i8").cast_unsigned()
            })),
            _ => {
                let row: Vec<f32> = (0..slot.cols).map(|_| random.number()).collect();
                let mut stored = Vec::new();
                tabla_quant::encode_row(slot.dtype, &row, &mut stored);
                if of_codes(slot) {
                    stored = row_of_codes(&stored);
                }
                bytes.extend(stored);
            }
        }
    }
    bytes
}

/// Returns the tensors of a case, filled with random numbers. Constant 0 has the frequencies of
/// `RoPE`, constant `n` has `n` random elements, and constant [`INFINITE`] `+ n` has `n` infinite
/// elements.
pub fn tensors(case: &Case) -> Filled {
    let weights = case
        .weights
        .iter()
        .map(|(name, dtype, rows, cols)| Filling::random(name, *dtype, [*rows, *cols]));
    let freqs: Vec<f32> = (0..512).map(|i| 0.9f32.powi(i)).collect();
    let mut random = Random::of("constant");
    let random: Vec<f32> = (0..CONSTANT_MAX).map(|_| random.number()).collect();
    Filled {
        weights: weights.collect(),
        freqs: bytemuck::cast_slice(&freqs).to_vec(),
        random: bytemuck::cast_slice(&random).to_vec(),
        infinite: f32::INFINITY.to_le_bytes().repeat(CONSTANT_MAX.into()),
    }
}

/// Returns the step state of a case.
pub fn state(case: &Case) -> Vec<u8> {
    let state = State {
        active_rows: case.live,
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
            token_type: t % 2,
        };
        bytes.extend_from_slice(bytemuck::bytes_of(&row));
    }
    bytes
}

/// Returns the sampler parameters of all sequences of a case.
fn samplers(case: &Case, slot: &SlotInfo) -> Vec<u8> {
    let mut sampler = Sampler {
        temperature: 1.0,
        ..sampler_off()
    };
    (case.sampler)(&mut sampler);
    bytemuck::bytes_of(&sampler).repeat(slot.rows as usize)
}

/// Returns the page layout and the number of sequences of a case.
pub fn pages(case: &Case) -> (Pages, u32) {
    let sequences = case.tokens.div_ceil(case.sequence);
    let pages = Pages::new(sequences, case.context, &[case.window], case.tokens);
    (pages.with_states(2 * sequences + 1), sequences)
}

/// Compiles the table of a case for a device.
pub fn table(case: &Case, device: &Device) -> Table {
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
    let graph = b.finish().expect("cases fit their weights");
    let mut table = tabla_plan::compile(graph, &device.profile).expect("cases have kernels");
    separate(&mut table);
    table
}

/// Gives every scratch slot memory of its own, so that all operands can be filled before a run.
pub fn separate(table: &mut Table) {
    for (i, slot) in (0..).zip(&mut table.slots) {
        if matches!(slot.buffer, BufferId::Scratch(_)) {
            slot.buffer = BufferId::Scratch(i);
        }
    }
}

/// Returns the commands that compute operands of a command which cannot be random, and the command: maxima of parts,
/// the copy that repetitions change, tiles of experts, and converted activations.
pub fn with_needed(table: &Table, at: usize) -> Vec<usize> {
    let op = table.cmds[at].kernel.op;
    let reads = |name| {
        let mut operands = op.operands().iter();
        operands.any(|operand| operand.name == name && operand.access != Access::Write)
    };
    let is_maxima = |cmd: &DispatchCmd| cmd.kernel.op == Op::PartMaxima;
    let maxima = table.cmds[..at].iter().rposition(is_maxima);
    let needed = |cmd: &&DispatchCmd| match cmd.kernel.op {
        Op::GroupByExpert | Op::Convert => true,
        Op::Columns => op == Op::Dry,
        _ => false,
    };
    let first = at - table.cmds[..at].iter().rev().take_while(needed).count();
    maxima
        .filter(|_| reads("maxima"))
        .into_iter()
        .chain(first..=at)
        .collect()
}

/// Returns name, access and slot of the operands of some commands. In place of converted activations, those before the
/// conversion.
fn operands(table: &Table, cmds: &[usize]) -> Vec<(&'static str, Access, SlotInfo)> {
    let mut all = Vec::new();
    let mut is_converted = false;
    for i in cmds {
        let cmd = &table.cmds[*i];
        let is_conversion = Some(i) != cmds.last() && cmd.kernel.op == Op::Convert;
        for (slot, operand) in cmd.slots().iter().zip(cmd.kernel.op.operands()) {
            if (is_conversion && operand.name == "y") || (is_converted && operand.name == "x") {
                continue;
            }
            all.push((operand.name, operand.access, table.slot(*slot).clone()));
        }
        is_converted |= is_conversion;
    }
    all
}

/// Runs the command of `op` in a case; `set` may change the operands before.
#[expect(clippy::too_many_lines, reason = "one case, from operands to results")]
pub fn run_case(op: Op, case: &Case, device: &Device, set: &dyn Fn(&str, &mut Vec<u8>)) -> Outcome {
    let table = table(case, device);
    let at = table.cmds.iter().position(|c| c.kernel.op == op);
    let at = at.unwrap_or_else(|| panic!("{op:?} {}: the case does not emit it", case.name));
    let cmds = with_needed(&table, at);
    let operands = operands(&table, &cmds);
    let params = table.params(&table.cmds[at]).to_vec();
    let mut tensors = tensors(case);
    let freqs = table
        .slots
        .iter()
        .find(|s| s.buffer == BufferId::Constant(0));
    tensors
        .freqs
        .truncate(freqs.map_or(0, |s| 4 * (s.rows * s.cols) as usize));
    let tensors = Arc::new(tensors);
    let program = Program {
        tables: Arc::from([table]),
        tensors: tensors.clone(),
    };
    let mut executor = (device.link)(program).expect("cases link");
    let mut outcome = Outcome {
        case: *case,
        slots: BTreeMap::new(),
        params,
        weights: BTreeMap::new(),
        before: BTreeMap::new(),
        after: BTreeMap::new(),
    };
    for (name, _, slot) in &operands {
        // Operands that are not read share the slot of another one.
        let mut others = outcome.slots.iter();
        let filled = others
            .find(|(_, other)| other.buffer == slot.buffer)
            .map(|(name, _)| *name);
        let bytes = match slot.buffer {
            _ if filled.is_some() => outcome.before[filled.unwrap_or_default()].clone(),
            BufferId::Weight(i, _) => {
                let weight = &tensors.weights[i as usize];
                outcome.weights.insert(name, weight.numbers());
                weight.bytes.clone()
            }
            BufferId::Constant(i) => tensors.constant(i).to_vec(),
            _ => {
                let mut bytes = match slot.buffer {
                    BufferId::State => state(case),
                    BufferId::Samplers => samplers(case, slot),
                    BufferId::Biases => biases(slot.rows),
                    BufferId::Masks => masks(slot),
                    BufferId::Pages => {
                        let (pages, sequences) = pages(case);
                        bytemuck::cast_slice(&shuffled(&pages, sequences, "pages")).to_vec()
                    }
                    _ => random_bytes(slot),
                };
                if slot.dtype == DType::I8 {
                    // Clear the padding after the columns of the weight.
                    let cols = operands
                        .iter()
                        .find(|o| o.0 == "w")
                        .map(|o| o.2.cols as usize);
                    let rows = bytes.chunks_exact_mut(slot.cols as usize);
                    rows.for_each(|row| row[cols.unwrap_or(0)..].fill(0));
                }
                set(name, &mut bytes);
                executor
                    .write(slot.buffer, 0, &bytes)
                    .expect("the range is in bounds");
                bytes
            }
        };
        outcome.slots.insert(name, slot.clone());
        outcome.before.insert(name, bytes);
    }
    for cmd in cmds {
        executor
            .run(0, (cmd..cmd + 1).into(), 1)
            .expect("the table runs");
    }
    for (name, access, slot) in operands {
        if access != Access::Read {
            let mut bytes = vec![0; outcome.before[name].len()];
            executor
                .read(slot.buffer, 0, &mut bytes)
                .expect("the range is in bounds");
            outcome.after.insert(name, bytes);
        }
    }
    outcome
}

/// Panics unless two outcomes agree within a tolerance relative to the largest magnitude.
pub fn compare(what: &str, reference: &Outcome, actual: &Outcome, tolerance: f32) {
    for (name, bytes) in &reference.after {
        let slot = &reference.slots[name];
        if slot.dtype == DType::U32 || tolerance == 0.0 {
            assert!(bytes == &actual.after[name], "{what}: {name} differs");
            continue;
        }
        let [x, y] = [bytes, &actual.after[name]].map(|b| numbers(slot, b));
        near(&format!("{what}: {name}"), &x, &y, tolerance);
    }
}

/// Magnitude below which numbers count as 0.
const NEGLIGIBLE: f32 = 1e-20;

/// Panics unless all elements agree within a tolerance relative to the largest magnitude. Returns the largest relative
/// error.
pub fn near(what: &str, x: &[f32], y: &[f32], tolerance: f32) -> f32 {
    assert_eq!(x.len(), y.len(), "{what}");
    let finite = x.iter().filter(|x| x.is_finite());
    let largest = finite.fold(NEGLIGIBLE, |m, x| m.max(x.abs()));
    let mut worst = 0.0f32;
    for (i, (x, y)) in x.iter().zip(y).enumerate() {
        let error = if x == y { 0.0 } else { (x - y).abs() / largest };
        assert!(
            error <= tolerance,
            "{what}[{i}]: expected {x}, got {y}; largest magnitude {largest}"
        );
        worst = error.max(worst);
    }
    worst
}

/// Returns a change of operands that runs token `t` of a batch alone, as the first row.
pub fn alone(all: &Outcome, t: usize, width: usize) -> impl Fn(&str, &mut Vec<u8>) {
    move |name, bytes| match name {
        "state" => {
            let (state, rows) = bytes.split_at_mut(ROWS_OFFSET);
            bytemuck::from_bytes_mut::<State>(state).active_rows = 1;
            let rows: &mut [Row] = bytemuck::cast_slice_mut(rows);
            rows[0] = all.rows()[t];
        }
        "q" => bytes[..width].copy_from_slice(&all.before[name][t * width..][..width]),
        _ => {}
    }
}
