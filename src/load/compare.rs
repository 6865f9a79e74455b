//! One table, two devices: replays command by command and compares what each wrote.

use super::device::{Device, DeviceChoice};
use super::{Options, Source, inspect};
use crate::device::Precision;
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::state::{ROWS_OFFSET, Row, State, state_bytes};
use crate::exec::{Executor, Program};
use crate::op::list::Access;
use crate::op::table::{Place, SlotInfo, Table};
use std::sync::Arc;

/// Greatest difference of a number, relative to the largest of its buffer: f32 sums in another
/// order, and transcendental functions of another library.
const TOLERANCE: f64 = 1e-4;

/// Tokens that are replayed with each table.
const TOKENS: u32 = 4;

/// Positions of the cache: each command's buffers are read back whole, so it is kept small.
const CONTEXT: u32 = 32;

/// How two devices agree on the tables of a model.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The devices, in words.
    pub devices: [String; 2],
    /// Commands that were replayed on both.
    pub commands: usize,
    /// The greatest difference, relative to the largest number of its buffer.
    pub worst: f64,
    /// The command of the greatest difference.
    pub worst_at: String,
    /// The first command that differs beyond tolerance.
    pub first: Option<Difference>,
}

/// A command that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Table, number, kernel and label of the command.
    pub command: String,
    /// The buffer that differs.
    pub slot: String,
    /// The element that differs most.
    pub element: usize,
    /// What the CPU has there.
    pub cpu: f64,
    /// What the GPU has there.
    pub gpu: f64,
}

/// Replays the greedy and the sampled table of a model command by command on the CPU and on a
/// GPU, a software one if there is no other, and compares every buffer that a command wrote.
/// After each command the GPU goes on from the CPU's numbers, so that differences do not add up.
///
/// # Errors
///
/// As [`load`](super::load), and `Device` where there is no GPU.
pub fn compare(source: &Source, options: &Options) -> Result<Comparison> {
    let exact = |device| Options {
        device,
        context: CONTEXT,
        precision: Precision::Exact,
        ..options.clone()
    };
    let gpu_options = exact(DeviceChoice::Gpu);
    let cpu_options = exact(DeviceChoice::Cpu);
    let gpu = Device::choose(&gpu_options)?.check_shaders()?;
    let cpu = Device::choose(&cpu_options)?;
    let devices = [cpu.profile()?.to_string(), gpu.profile()?.to_string()];
    let build = inspect::prepare(source, &gpu_options, gpu.profile()?)?;
    // The table that picks the likeliest token, or an encoder's one; then the one that draws.
    let mut tables = build.greedy_and_batch()?;
    tables.truncate(1);
    tables.extend(build.sampled()?);
    let tables: Arc<[Table]> = tables.into();
    let program = Program {
        tables: tables.clone(),
        tensors: Arc::new(build.catalog),
    };
    let mut pair = Pair {
        cpu: cpu.link(program.clone())?,
        gpu: gpu.link(program)?,
    };

    let mut comparison = Comparison {
        devices,
        commands: 0,
        worst: 0.0,
        worst_at: String::new(),
        first: None,
    };
    for (id, table) in tables.iter().enumerate() {
        pair.begin()?;
        for _ in 0..TOKENS {
            for at in 0..table.cmds.len() {
                pair.step(id, at, table, &mut comparison)?;
                if comparison.first.is_some() {
                    return Ok(comparison);
                }
            }
        }
    }
    Ok(comparison)
}

/// The two devices.
struct Pair {
    cpu: Box<dyn Executor>,
    gpu: Box<dyn Executor>,
}

impl Pair {
    /// The same step state on both: every sampler at work.
    fn begin(&mut self) -> Result<()> {
        let state = State {
            live: 1,
            context: CONTEXT,
            seed_lo: 42,
            temperature: 0.9,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.01,
            repeat_penalty: 1.1,
            repeat_last: 8,
            ..State::default()
        };
        let mut bytes = [0; state_bytes(1)];
        bytes[..ROWS_OFFSET].copy_from_slice(bytemuck::bytes_of(&state));
        bytes[ROWS_OFFSET..].copy_from_slice(bytemuck::bytes_of(&Row {
            token: 1,
            position: 0,
        }));
        self.cpu.write(Place::State, 0, &bytes)?;
        self.gpu.write(Place::State, 0, &bytes)
    }

    /// One command on both, and the comparison of what it wrote.
    fn step(
        &mut self,
        id: usize,
        at: usize,
        table: &Table,
        comparison: &mut Comparison,
    ) -> Result<()> {
        let cmd = &table.cmds[at];
        self.cpu.run(id, at..at + 1, 1)?;
        self.gpu.run(id, at..at + 1, 1)?;
        comparison.commands += 1;
        let operands = cmd.op.operands().iter().zip(cmd.slots());
        for (_, slot) in operands.filter(|(operand, _)| operand.access != Access::Read) {
            let info = table.slot(*slot);
            let bytes = usize::try_from(info.bytes()).expect("linked, so it fits");
            let (mut cpu, mut gpu) = (vec![0; bytes], vec![0; bytes]);
            self.cpu.read(info.place, 0, &mut cpu)?;
            self.gpu.read(info.place, 0, &mut gpu)?;
            self.gpu.write(info.place, 0, &cpu)?;
            let label = &table.labels[cmd.label as usize];
            let command = format!("{} {at} {} ({label})", table.name, cmd.kernel.name());
            comparison.add(&command, info, &numbers(info, &cpu), &numbers(info, &gpu));
        }
        Ok(())
    }
}

impl Comparison {
    /// Compares one buffer.
    fn add(&mut self, command: &str, info: &SlotInfo, cpu: &[f64], gpu: &[f64]) {
        let finite = cpu.iter().filter(|x| x.is_finite());
        let largest = finite.fold(0.0f64, |m, x| m.max(x.abs()));
        let exact = info.dtype == DType::U32;
        let scale = if exact { 1.0 } else { largest.max(1e-6) };
        let difference = |(a, b): (&f64, &f64)| {
            let difference = if a == b { 0.0 } else { (a - b).abs() / scale };
            // NaN where one is infinite and the other not: it counts as the greatest.
            if difference.is_nan() {
                f64::INFINITY
            } else {
                difference
            }
        };
        let differences = cpu.iter().zip(gpu).map(difference).enumerate();
        let Some((element, worst)) = differences.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return;
        };
        if worst > self.worst {
            self.worst = worst;
            self.worst_at = command.to_string();
        }
        if worst > TOLERANCE {
            self.first = Some(Difference {
                command: command.to_string(),
                slot: info.name.clone(),
                element,
                cpu: cpu[element],
                gpu: gpu[element],
            });
        }
    }
}

/// A buffer as numbers.
fn numbers(info: &SlotInfo, bytes: &[u8]) -> Vec<f64> {
    let words = bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
    let halves = bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    match info.dtype {
        DType::U32 => words.map(|b| f64::from(u32::from_le_bytes(b))).collect(),
        DType::F16 => halves
            .map(|b| half::f16::from_le_bytes(b).to_f64())
            .collect(),
        _ => words.map(|b| f64::from(f32::from_le_bytes(b))).collect(),
    }
}
