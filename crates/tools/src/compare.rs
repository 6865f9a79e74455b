//! Compares a GPU with the CPU: runs tables command by command on both and compares the outputs.

use crate::device::Precision;
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::state::sampler_off;
use crate::exec::{Executor, Program};
use crate::load::build::Build;
use crate::load::options::{CpuExperts, DeviceChoice, LoadOptions};
use crate::load::selected_device::SelectedDevice;
use crate::load::source::Source;
use crate::model::TableId;
use crate::op::list::{Access, Op};
use crate::op::params::convert::Params;
use crate::op::params::{Row, Sampler, State};
use crate::op::table::{BufferId, Cmds, SamplingStage, SlotInfo, Table};
use std::sync::Arc;

/// Maximum difference, relative to the largest value of the buffer. Differences come from the order
/// of f32 sums and from other implementations of transcendental functions.
const TOLERANCE: f64 = 1e-4;

/// Default context length. It is small because the buffers of each command are read back. Sliding
/// windows are exceeded only by a context longer than a window plus one pass.
const CONTEXT: u32 = 64;

/// Maximum number of tokens of a forward pass.
const CHUNK: u32 = 16;

/// Number of tokens that a decode table generates.
const STEPS: u32 = 4;

/// Result of [`compare`].
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Descriptions of the two devices.
    pub devices: [String; 2],
    /// Number of compared commands.
    pub commands: usize,
    /// Largest difference, relative to the largest value of its buffer.
    pub worst: f64,
    /// Command with the largest difference.
    pub worst_at: String,
    /// First command whose difference exceeds the tolerance.
    pub first: Option<Difference>,
}

/// A command that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Table, layer, index, kernel and label of the command.
    pub command: String,
    /// Name of the buffer.
    pub slot: String,
    /// Index of the element with the largest difference.
    pub element: usize,
    /// Value on the CPU.
    pub cpu: f64,
    /// Value on the GPU.
    pub gpu: f64,
}

/// Runs every table of a model command by command on the CPU and on a GPU, and compares every buffer
/// that a command writes. Uses a software adapter if there is no hardware GPU.
///
/// Prefill tables run first, until the context is almost full; decode tables continue from there.
/// After each command the CPU's output is copied to the GPU, so that differences do not accumulate.
///
/// # Errors
///
/// As `ModelBuilder::load`; `Device` if there is no GPU.
pub fn compare(source: &Source, options: &LoadOptions) -> Result<Comparison> {
    let context = match options.max_context {
        0 => CONTEXT,
        context => context,
    };
    let exact = options
        .clone()
        .max_context(context)
        .chunk_tokens(CHUNK)
        .cpu_experts(CpuExperts::Off)
        .precision(Precision::Exact);
    let gpu_options = exact.clone().device(DeviceChoice::Gpu);
    let cpu_options = exact.device(DeviceChoice::Cpu);
    let gpu = SelectedDevice::choose(&gpu_options)?.check_shaders()?;
    let cpu = SelectedDevice::choose(&cpu_options)?;
    let cpu_profile = cpu.profile()?;
    let devices = [cpu_profile.to_string(), gpu.profile()?.to_string()];
    let build = Build::prepare(source, &gpu_options, gpu.profile()?)?;
    // Decode tables continue from the KV cache that the prefill tables fill.
    let mut tables = build.batches()?;
    tables.extend(build.steps()?);
    let tables: Arc<[Table]> = tables.into();
    let inputs = TestInputs {
        sequences: build.cache.rows(),
        context: build.cache.context,
        vocab: build.config.vocab,
        encoder: build.arch.encoder,
    };
    let program = Program {
        tables: tables.clone(),
        tensors: build.catalog,
    };
    let mut pair = DevicePair {
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
        for rows in inputs.passes(table) {
            pair.begin(&inputs, &rows)?;
            let active = rows.len();
            let pass = TablePass { id, table, active };
            for at in inputs.cmds(table) {
                pair.step(&pass, at, &mut comparison)?;
                if comparison.first.is_some() {
                    return Ok(comparison);
                }
            }
        }
    }
    Ok(comparison)
}

/// Generates the input rows of each table.
struct TestInputs {
    sequences: u32,
    context: u32,
    vocab: u32,
    encoder: bool,
}

impl TestInputs {
    /// Returns whether a table samples a token for each row, with one row per sequence.
    fn is_decode(&self, table: &Table) -> bool {
        let decodes = [TableId::Step, TableId::Draft].map(TableId::name);
        !self.encoder && decodes.contains(&table.name) && table.tokens <= self.sequences
    }

    /// Returns the commands of a pass. A decode table runs several steps, each with the next
    /// sampling stage.
    fn cmds(&self, table: &Table) -> impl Iterator<Item = usize> {
        let stages = SamplingStage::ALL.iter().cycle().take(STEPS as usize);
        let passes = stages.map(|stage| table.pass(*stage));
        let passes: Vec<Cmds> = if self.is_decode(table) {
            passes.collect()
        } else {
            vec![table.body().into()]
        };
        passes
            .into_iter()
            .flat_map(|cmds| cmds.ranges().flatten().collect::<Vec<_>>())
    }

    /// Returns the rows of each pass of a table.
    fn passes(&self, table: &Table) -> Vec<Vec<Row>> {
        let row_of = |sequence: u32, position: u32| Row {
            token: position.wrapping_mul(7).wrapping_add(sequence) % self.vocab,
            position,
            sequence,
            ..Row::default()
        };
        let row = |position| row_of(0, position);
        // The decode tables continue from this position.
        let filled = self.context.saturating_sub(STEPS);
        if self.is_decode(table) {
            let sequences = 0..table.tokens;
            return vec![sequences.map(|s| row_of(s, filled)).collect()];
        }
        if self.encoder {
            // Two concatenated texts of different lengths.
            let first = self.context.div_ceil(3);
            let positions = (0..first).chain(0..self.context - first);
            return vec![positions.map(row).collect()];
        }
        let passes = (0..self.sequences).flat_map(|sequence| {
            let all: Vec<Row> = (0..filled.max(1)).map(|p| row_of(sequence, p)).collect();
            let chunks = all.chunks(table.tokens as usize);
            chunks.map(<[_]>::to_vec).collect::<Vec<_>>()
        });
        passes.collect()
    }
}

/// Returns the state buffer of a pass with these rows.
pub(super) fn state(context: u32, rows: &[Row]) -> Vec<u8> {
    let state = State {
        active_rows: u32::try_from(rows.len()).expect("a pass is small"),
        context,
        ..State::default()
    };
    let mut bytes = bytemuck::bytes_of(&state).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(rows));
    bytes
}

/// Returns the sampler buffer with all samplers enabled for each sequence, except those that write
/// floats into integer buffers.
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
        repetition_penalty: 1.1,
        frequency_penalty: 0.1,
        presence_penalty: 0.1,
        repeat_last_n: 8,
        dry_multiplier: 0.8,
        dry_penalty_last_n: 32,
        ..sampler_off()
    };
    bytemuck::bytes_of(&sampler).repeat(sequences as usize)
}

/// A forward pass through a table.
struct TablePass<'a> {
    id: usize,
    table: &'a Table,
    /// Number of active rows.
    active: usize,
}

/// The two devices.
struct DevicePair {
    cpu: Box<dyn Executor>,
    gpu: Box<dyn Executor>,
}

impl DevicePair {
    /// Writes the state of a pass to both devices.
    fn begin(&mut self, inputs: &TestInputs, rows: &[Row]) -> Result<()> {
        let mut buffers = vec![(BufferId::State, state(inputs.context, rows))];
        if !inputs.encoder {
            buffers.push((BufferId::Samplers, samplers(inputs.sequences)));
        }
        for (buffer, bytes) in buffers {
            self.cpu.write(buffer, 0, &bytes)?;
            self.gpu.write(buffer, 0, &bytes)?;
        }
        Ok(())
    }

    /// Runs one command on both devices and compares its outputs.
    fn step(&mut self, pass: &TablePass<'_>, at: usize, comparison: &mut Comparison) -> Result<()> {
        let &TablePass { id, table, active } = pass;
        let cmd = &table.cmds[at];
        self.cpu.run(id, (at..at + 1).into(), 1)?;
        self.gpu.run(id, (at..at + 1).into(), 1)?;
        comparison.commands += 1;
        let operands = cmd.kernel.op.operands().iter().zip(cmd.slots());
        for (_, slot) in operands.filter(|(operand, _)| operand.access != Access::Read) {
            let info = table.slot(*slot);
            let bytes = active_bytes(info, active);
            let (mut cpu, mut gpu) = (vec![0; bytes], vec![0; bytes]);
            self.cpu.read(info.buffer, 0, &mut cpu)?;
            self.gpu.read(info.buffer, 0, &mut gpu)?;
            self.gpu.write(info.buffer, 0, &cpu)?;
            let command = name(table, at);
            comparison.add(&command, info, &numbers(info, &cpu), &numbers(info, &gpu));
            if cmd.kernel.op == Op::Convert && cmd.kernel.dtype == Some(DType::F32) {
                let Params { cols, .. } = bytemuck::pod_read_unaligned(table.params(cmd));
                self.cpu
                    .write(info.buffer, 0, &without_padding(&cpu, cols))?;
            }
        }
        Ok(())
    }
}

/// Returns rows of f32 without the padding to blocks of 32 elements: products on a CPU read them so.
fn without_padding(bytes: &[u8], cols: u32) -> Vec<u8> {
    let row = |cols: u32| size_of::<f32>() * cols as usize;
    let rows = bytes.chunks_exact(row(cols.next_multiple_of(32)));
    rows.flat_map(|padded| &padded[..row(cols)])
        .copied()
        .collect()
}

/// Returns the defined bytes of a slot. Rows after the last active one are undefined.
fn active_bytes(info: &SlotInfo, active: usize) -> usize {
    let bytes = usize::try_from(info.bytes()).expect("linked, so it fits");
    let rows = info.rows as usize;
    match info.buffer {
        BufferId::Scratch(_) | BufferId::Scores | BufferId::Hidden => {
            bytes / rows * rows.min(active)
        }
        _ => bytes,
    }
}

/// Describes a command: `batch, layer 3, command 57 gemm_bf16 (blk.3.attn_q)`.
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
            // NaN if only one is infinite; counts as the largest difference.
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

/// Decodes a buffer as numbers.
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
