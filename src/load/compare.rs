//! One table, two devices: replays command by command and compares what each wrote.

use super::device::Device;
use super::inspect;
use super::options::{DeviceChoice, LoadOptions};
use super::source::Source;
use crate::device::Precision;
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::state::{Row, SAMPLER_OFF, Sampler, State};
use crate::exec::{Executor, Program};
use crate::model::TableId;
use crate::op::list::Access;
use crate::op::table::{BufferId, Cmds, SamplingStage, SlotInfo, Table};
use std::sync::Arc;

/// Greatest difference of a number, relative to the largest of its buffer: f32 sums in another
/// order, and transcendental functions of another library.
const TOLERANCE: f64 = 1e-4;

/// Positions of the cache where nobody asks for a number: each command's buffers are read back, so
/// it is small. Windows are passed where the context is longer than one and a pass together.
const CONTEXT: u32 = 64;

/// Tokens of a pass at most.
const CHUNK: u32 = 16;

/// Tokens that a table runs which takes one at a time.
const STEPS: u32 = 4;

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
    /// Table, layer, number, kernel and label of the command.
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

/// Replays every table of a model command by command on the CPU and on a GPU, a software one if
/// there is no other, and compares every buffer that a command wrote: first the tables of many
/// tokens, in passes up to a context all but full, then those of one token, which go on from there.
/// After each command the GPU goes on from the CPU's numbers, so that differences do not add up.
///
/// # Errors
///
/// As [`load`](crate::load()), and `Device` where there is no GPU.
pub fn compare(source: &Source, options: &LoadOptions) -> Result<Comparison> {
    let exact = |device| LoadOptions {
        device,
        context: if options.context == 0 {
            CONTEXT
        } else {
            options.context
        },
        chunk_tokens: CHUNK,
        precision: Precision::Exact,
        ..options.clone()
    };
    let gpu_options = exact(DeviceChoice::Gpu);
    let cpu_options = exact(DeviceChoice::Cpu);
    let gpu = Device::choose(&gpu_options)?.check_shaders()?;
    let cpu = Device::choose(&cpu_options)?;
    let cpu_profile = cpu.profile()?;
    let devices = [cpu_profile.to_string(), gpu.profile()?.to_string()];
    let build = inspect::prepare(source, &gpu_options, gpu.profile()?)?;
    // Those that pick tokens go on from what the others have computed.
    let mut tables = build.batches()?;
    tables.extend(build.steps()?);
    let tables: Arc<[Table]> = tables.into();
    let feed = Feed {
        sequences: build.cache.sequences,
        context: build.cache.context,
        vocab: build.config.vocab,
        encoder: build.arch.encoder,
    };
    let program = Program {
        tables: tables.clone(),
        tensors: build.catalog,
    };
    let mut pair = Pair {
        cpu: cpu.link(program.clone(), cpu_profile, &build.cache)?,
        gpu: gpu.link(program, build.profile, &build.cache)?,
    };

    let mut comparison = Comparison {
        devices,
        commands: 0,
        worst: 0.0,
        worst_at: String::new(),
        first: None,
    };
    for (id, table) in tables.iter().enumerate() {
        for rows in feed.passes(table) {
            pair.begin(&feed, &rows)?;
            let live = rows.len();
            let pass = Pass { id, table, live };
            for at in feed.cmds(table) {
                pair.step(&pass, at, &mut comparison)?;
                if comparison.first.is_some() {
                    return Ok(comparison);
                }
            }
        }
    }
    Ok(comparison)
}

/// Which tokens go through which table.
struct Feed {
    sequences: u32,
    context: u32,
    vocab: u32,
    encoder: bool,
}

impl Feed {
    /// Whether a table picks a token for every row, each of a sequence of its own.
    fn picks(&self, table: &Table) -> bool {
        !self.encoder && table.name == TableId::Step.name() && table.tokens <= self.sequences
    }

    /// The commands of a pass. A table that picks tokens goes on from them by itself, by one tail
    /// and by the next.
    fn cmds(&self, table: &Table) -> impl Iterator<Item = usize> {
        let picks = self.picks(table);
        let tails = SamplingStage::ALL.iter().cycle().take(STEPS as usize);
        let passes = tails.map(|tail| table.pass(*tail));
        let passes: Vec<Cmds> = if picks {
            passes.collect()
        } else {
            vec![table.body().into()]
        };
        passes
            .into_iter()
            .flat_map(|cmds| cmds.ranges().flatten().collect::<Vec<_>>())
    }

    /// The rows of each pass of a table.
    fn passes(&self, table: &Table) -> Vec<Vec<Row>> {
        let row_of = |sequence: u32, position: u32| Row {
            token: position.wrapping_mul(7).wrapping_add(sequence) % self.vocab,
            position,
            sequence,
            ..Row::default()
        };
        let row = |position| row_of(0, position);
        // What the tables that pick a token go on from.
        let filled = self.context.saturating_sub(STEPS);
        if self.picks(table) {
            let sequences = 0..table.tokens;
            return vec![sequences.map(|s| row_of(s, filled)).collect()];
        }
        if self.encoder {
            // Texts of unequal length, one after the other.
            let first = self.context.div_ceil(3);
            let both = (0..first).chain(0..self.context - first);
            return vec![both.map(row).collect()];
        }
        let passes = (0..self.sequences).flat_map(|sequence| {
            let all: Vec<Row> = (0..filled.max(1)).map(|p| row_of(sequence, p)).collect();
            let chunks = all.chunks(table.tokens as usize);
            chunks.map(<[_]>::to_vec).collect::<Vec<_>>()
        });
        passes.collect()
    }
}

/// The step state of a pass of these rows.
pub(super) fn state(context: u32, rows: &[Row]) -> Vec<u8> {
    let state = State {
        live: u32::try_from(rows.len()).expect("a pass is small"),
        context,
        ..State::default()
    };
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(rows));
    bytes
}

/// Every sampler at work, for each sequence, but for what leaves numbers in places of whole ones.
pub(super) fn samplers(sequences: u32) -> Vec<u8> {
    let sampler = Sampler {
        seed_lo: 42,
        temperature: 0.9,
        dynatemp_range: 0.2,
        top_n_sigma: 3.0,
        top_k: 40,
        typical_p: 0.97,
        top_p: 0.95,
        min_p: 0.01,
        xtc_probability: 0.5,
        repeat_penalty: 1.1,
        frequency_penalty: 0.1,
        presence_penalty: 0.1,
        repeat_last: 8,
        dry_multiplier: 0.8,
        dry_last: 32,
        ..SAMPLER_OFF
    };
    bytemuck::bytes_of(&sampler).repeat(sequences as usize)
}

/// A table with some of its rows alive.
struct Pass<'a> {
    id: usize,
    table: &'a Table,
    live: usize,
}

/// The two devices.
struct Pair {
    cpu: Box<dyn Executor>,
    gpu: Box<dyn Executor>,
}

impl Pair {
    /// The same step state on both.
    fn begin(&mut self, feed: &Feed, rows: &[Row]) -> Result<()> {
        let mut places = vec![(BufferId::State, state(feed.context, rows))];
        if !feed.encoder {
            places.push((BufferId::Samplers, samplers(feed.sequences)));
        }
        for (place, bytes) in places {
            self.cpu.write(place, 0, &bytes)?;
            self.gpu.write(place, 0, &bytes)?;
        }
        Ok(())
    }

    /// One command on both, and the comparison of what it wrote.
    fn step(&mut self, pass: &Pass<'_>, at: usize, comparison: &mut Comparison) -> Result<()> {
        let &Pass { id, table, live } = pass;
        let cmd = &table.cmds[at];
        self.cpu.run(id, (at..at + 1).into(), 1)?;
        self.gpu.run(id, (at..at + 1).into(), 1)?;
        comparison.commands += 1;
        let operands = cmd.kernel.op.operands().iter().zip(cmd.slots());
        for (_, slot) in operands.filter(|(operand, _)| operand.access != Access::Read) {
            let info = table.slot(*slot);
            let bytes = live_bytes(info, live);
            let (mut cpu, mut gpu) = (vec![0; bytes], vec![0; bytes]);
            self.cpu.read(info.place, 0, &mut cpu)?;
            self.gpu.read(info.place, 0, &mut gpu)?;
            self.gpu.write(info.place, 0, &cpu)?;
            let command = name(table, at);
            comparison.add(&command, info, &numbers(info, &cpu), &numbers(info, &gpu));
        }
        Ok(())
    }
}

/// Bytes of a slot that mean something: nobody says what stands in the rows behind the last token.
fn live_bytes(info: &SlotInfo, live: usize) -> usize {
    let bytes = usize::try_from(info.bytes()).expect("linked, so it fits");
    let rows = info.rows as usize;
    match info.place {
        BufferId::Scratch(_) | BufferId::Scores | BufferId::Hidden => bytes / rows * rows.min(live),
        _ => bytes,
    }
}

/// `batch, layer 3, command 57 gemm_bf16 (blk.3.attn_q)`.
fn name(table: &Table, at: usize) -> String {
    let cmd = &table.cmds[at];
    let layer = match table.layer_of(at) {
        Some(layer) => format!("layer {layer}"),
        None => "head".to_string(),
    };
    let label = &table.labels[cmd.label as usize];
    format!(
        "{}, {layer}, command {at} {} ({label})",
        table.name,
        cmd.kernel.name()
    )
}

impl Comparison {
    /// Compares one buffer.
    fn add(&mut self, command: &str, info: &SlotInfo, cpu: &[f64], gpu: &[f64]) {
        let finite = cpu.iter().filter(|x| x.is_finite());
        let largest = finite.fold(0.0f64, |m, x| m.max(x.abs()));
        let exact = matches!(info.dtype, DType::U32 | DType::I8);
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
        DType::I8 => bytes.iter().map(|b| f64::from(b.cast_signed())).collect(),
        DType::F16 => halves
            .map(|b| half::f16::from_le_bytes(b).to_f64())
            .collect(),
        _ => words.map(|b| f64::from(f32::from_le_bytes(b))).collect(),
    }
}
