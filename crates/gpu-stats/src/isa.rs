//! Machine code of AMD GPUs, as the text that RADV returns: basic blocks, and the class and cost of
//! their instructions.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign, Mul};

/// Number of registers that can hold a descriptor.
const SGPRS: usize = 128;
/// Size of the descriptor of a buffer in a descriptor set of RADV, in bytes, which is that of four registers.
const DESCRIPTOR_BYTES: u32 = 16;

/// What executes an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Vector arithmetic.
    Valu,
    /// Scalar arithmetic.
    Salu,
    /// Vector loads from memory.
    Load,
    /// Vector stores and atomics.
    Store,
    /// Scalar loads.
    Smem,
    /// Workgroup memory, and permutations through it.
    Lds,
    /// Matrix multiply-add.
    Matrix,
    /// Branches.
    Branch,
    /// Workgroup barriers.
    Barrier,
    /// Waits, hints and the end.
    Other,
}

impl Class {
    /// All classes, in the order of the columns.
    pub const ALL: [Self; 10] = [
        Self::Valu,
        Self::Salu,
        Self::Load,
        Self::Store,
        Self::Smem,
        Self::Lds,
        Self::Matrix,
        Self::Branch,
        Self::Barrier,
        Self::Other,
    ];

    /// Name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Valu => "valu",
            Self::Salu => "salu",
            Self::Load => "load",
            Self::Store => "store",
            Self::Smem => "smem",
            Self::Lds => "lds",
            Self::Matrix => "matrix",
            Self::Branch => "branch",
            Self::Barrier => "barrier",
            Self::Other => "other",
        }
    }

    fn of(mnemonic: &str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| mnemonic.starts_with(p));
        if starts(&["v_wmma", "v_swmmac", "v_mfma"]) {
            Self::Matrix
        } else if starts(&["v_nop"]) {
            Self::Other
        } else if starts(&["v_"]) {
            Self::Valu
        } else if starts(&["s_load", "s_buffer_load"]) {
            Self::Smem
        } else if starts(&["s_barrier"]) {
            Self::Barrier
        } else if starts(&["s_branch", "s_cbranch", "s_setpc", "s_swappc"]) {
            Self::Branch
        } else if starts(&[
            "s_wait",
            "s_nop",
            "s_delay",
            "s_clause",
            "s_inst",
            "s_end",
            "s_code",
            "s_send",
            "s_sleep",
            "s_dcache",
            "s_icache",
            "s_setprio",
            "s_set_inst",
            "s_ttrace",
            "s_round_mode",
            "s_denorm",
        ]) {
            Self::Other
        } else if starts(&["s_"]) {
            Self::Salu
        } else if starts(&["ds_"]) {
            Self::Lds
        } else if starts(&[
            "buffer_", "global_", "flat_", "scratch_", "image_", "tbuffer_",
        ]) {
            match mnemonic.contains("_load") {
                true => Self::Load,
                false
                    if starts(&[
                        "buffer_gl",
                        "buffer_inv",
                        "buffer_wb",
                        "global_inv",
                        "global_wb",
                    ]) =>
                {
                    Self::Other
                }
                false => Self::Store,
            }
        } else {
            Self::Other
        }
    }
}

/// Numbers of instructions, indexed by [`Class`], and what they cost a wave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Instructions by class.
    pub classes: [f64; Class::ALL.len()],
    /// Cycles in which the wave occupies the vector unit of a SIMD.
    pub valu_cycles: f64,
    /// Cycles in which it occupies the unit of transcendental functions and of slow integer products.
    pub slow_cycles: f64,
    /// Multiply-adds in f32 or f16 per lane.
    pub float_adds: f64,
    /// Multiply-adds of bytes per lane.
    pub byte_adds: f64,
    /// Multiply-adds of matrix instructions per wave.
    pub matrix_adds: f64,
    /// Number of loads from binding 0.
    pub weight_loads: f64,
    /// Bytes of them per lane.
    pub weight_bytes: f64,
}

impl Work {
    /// Number of instructions of a class.
    pub fn count(&self, class: Class) -> f64 {
        self.classes[class as usize]
    }

    /// Number of instructions.
    pub fn instructions(&self) -> f64 {
        self.classes.iter().sum()
    }

    /// Cycles of the busiest unit of a SIMD.
    pub fn cycles(&self) -> f64 {
        self.valu_cycles.max(self.slow_cycles)
    }

    /// Multiply-adds per wave of `lanes` lanes, of the fastest kind that occurs: the others convert
    /// and scale.
    pub fn multiply_adds(&self, lanes: f64) -> (Rate, f64) {
        if self.matrix_adds > 0.0 {
            (Rate::Matrix, self.matrix_adds)
        } else if self.byte_adds > 0.0 {
            (Rate::Bytes, self.byte_adds * lanes)
        } else {
            (Rate::Floats, self.float_adds * lanes)
        }
    }
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let mut classes = self.classes;
        classes
            .iter_mut()
            .zip(other.classes)
            .for_each(|(a, b)| *a += b);
        Self {
            classes,
            valu_cycles: self.valu_cycles + other.valu_cycles,
            slow_cycles: self.slow_cycles + other.slow_cycles,
            float_adds: self.float_adds + other.float_adds,
            byte_adds: self.byte_adds + other.byte_adds,
            matrix_adds: self.matrix_adds + other.matrix_adds,
            weight_loads: self.weight_loads + other.weight_loads,
            weight_bytes: self.weight_bytes + other.weight_bytes,
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<f64> for Work {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self {
            classes: self.classes.map(|n| n * times),
            valu_cycles: self.valu_cycles * times,
            slow_cycles: self.slow_cycles * times,
            float_adds: self.float_adds * times,
            byte_adds: self.byte_adds * times,
            matrix_adds: self.matrix_adds * times,
            weight_loads: self.weight_loads * times,
            weight_bytes: self.weight_bytes * times,
        }
    }
}

/// Kind of multiply-adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// In f32 or f16 by vector instructions.
    Floats,
    /// Of four bytes per instruction and lane.
    Bytes,
    /// By matrix instructions.
    Matrix,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Name without its encoding: `v_add_f32` of `v_add_f32_e32`.
    pub mnemonic: String,
    /// Operands, destinations first.
    pub operands: Vec<String>,
}

/// Instructions that are executed one after the other.
#[derive(Debug, Default)]
pub struct Block {
    /// Instructions.
    pub instructions: Vec<Instruction>,
    /// Indices of the blocks that may follow.
    pub successors: Vec<usize>,
    /// Work of one wave.
    pub work: Work,
}

/// What instructions cost depends on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Number of lanes of a wave.
    pub lanes: u32,
    /// Whether both halves of 64 lanes start together, if the instruction can (RDNA 3 and later).
    pub dual_issue: bool,
    /// Multiply-adds of a matrix instruction per cycle, in f16.
    pub matrix_adds: f64,
}

/// Parses the assembly of a kernel.
///
/// # Errors
///
/// The line that cannot be parsed.
pub fn parse(text: &str, machine: Machine) -> Result<Vec<Block>, String> {
    let mut blocks = vec![Block::default()];
    // Index of the block of each label.
    let mut labels = BTreeMap::new();
    for line in text.lines() {
        let line = line.split(';').next().unwrap_or_default().trim();
        let label = line.strip_prefix("BB").and_then(|l| l.strip_suffix(':'));
        if let Some(label) = label.and_then(|number| number.parse::<usize>().ok()) {
            if !blocks[blocks.len() - 1].instructions.is_empty() {
                blocks.push(Block::default());
            }
            labels.insert(label, blocks.len() - 1);
            continue;
        }
        let last = blocks.len() - 1;
        if let Some(times) = line.strip_prefix("(then repeated ") {
            let times = times
                .split(' ')
                .next()
                .and_then(|n| n.parse::<usize>().ok());
            let times = times.ok_or_else(|| format!("cannot parse `{line}`"))?;
            let list = &mut blocks[last].instructions;
            let repeated = list.last().cloned().ok_or("nothing is repeated")?;
            list.extend(std::iter::repeat_n(repeated, times));
        } else if line.starts_with(|c: char| c.is_ascii_lowercase()) {
            let instruction = instruction(line);
            let branches = Class::of(&instruction.mnemonic) == Class::Branch;
            blocks[last].instructions.push(instruction);
            if branches {
                blocks.push(Block::default());
            }
        }
    }
    connect(&mut blocks, &labels)?;
    count(&mut blocks, machine);
    Ok(blocks)
}

fn instruction(line: &str) -> Instruction {
    let (name, operands) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let encodings = ["_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp"];
    let name = encodings
        .iter()
        .fold(name, |name, e| name.trim_end_matches(e));
    Instruction {
        mnemonic: name.to_string(),
        operands: operands.split(',').map(|o| o.trim().to_string()).collect(),
    }
}

/// Sets the successors of all blocks.
fn connect(blocks: &mut [Block], labels: &BTreeMap<usize, usize>) -> Result<(), String> {
    for at in 0..blocks.len() {
        let next = (at + 1 < blocks.len()).then_some(at + 1);
        let last = blocks[at].instructions.last();
        let name = last.map_or("", |last| &last.mnemonic);
        let mut successors = match name {
            "s_endpgm" | "s_branch" | "s_setpc_b64" => Vec::new(),
            _ => Vec::from_iter(next),
        };
        if name == "s_branch" || name.starts_with("s_cbranch") {
            let target = last.and_then(|last| last.operands.first());
            let number = target.and_then(|target| target.strip_prefix("BB")?.parse().ok());
            // The label of an empty block may be that of a later one.
            let block = number.and_then(|number: usize| labels.range(number..).next());
            let block = block.ok_or_else(|| format!("branch to unknown label {target:?}"))?;
            successors.push(*block.1);
        }
        successors.dedup();
        blocks[at].successors = successors;
    }
    Ok(())
}

/// Returns the position of each block in an order in which all but back edges go to later blocks: the reverse
/// postorder. ACO may store the first block of a loop after others of it.
pub(crate) fn positions(blocks: &[Block]) -> Vec<usize> {
    let mut positions = vec![usize::MAX; blocks.len()];
    let mut is_visited = vec![false; blocks.len()];
    let mut next_position = blocks.len();
    // Blocks with the number of their successors that were visited.
    let mut path = Vec::new();
    for start in 0..blocks.len() {
        path.push((start, 0));
        while let Some((at, done)) = path.pop() {
            if done == 0 && std::mem::replace(&mut is_visited[at], true) {
                continue;
            }
            if let Some(next) = blocks[at].successors.get(done) {
                path.extend([(at, done + 1), (*next, 0)]);
            } else {
                next_position -= 1;
                positions[at] = next_position;
            }
        }
    }
    positions
}

/// Offsets in the descriptor set of what the scalar registers hold.
type Descriptors = [Option<u32>; SGPRS];

/// Computes the work of all blocks. Descriptors are followed along the branches that go forward.
fn count(blocks: &mut [Block], machine: Machine) {
    let mut at_start: Vec<Option<Descriptors>> = vec![None; blocks.len()];
    let positions = positions(blocks);
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|at| positions[*at]);
    for at in order {
        let mut descriptors = at_start[at].unwrap_or([None; SGPRS]);
        let block = &mut blocks[at];
        let mut work = Work::default();
        for instruction in &block.instructions {
            work += of_instruction(instruction, machine, &descriptors);
            define(instruction, &mut descriptors);
        }
        block.work = work;
        let goes_forward = |next: &&usize| positions[**next] > positions[at];
        for &next in block.successors.iter().filter(goes_forward) {
            at_start[next] = Some(match at_start[next] {
                None => descriptors,
                Some(other) => {
                    std::array::from_fn(|r| other[r].filter(|_| other[r] == descriptors[r]))
                }
            });
        }
    }
}

/// Returns the first and the number of registers: `s[4:7]`, `s4`.
fn registers(operand: &str, file: char) -> Option<(usize, usize)> {
    let rest = operand.strip_prefix(file)?;
    if let Ok(one) = rest.parse() {
        return Some((one, 1));
    }
    let range = rest.strip_prefix('[')?.split_once(']')?.0;
    let (first, last) = range.split_once(':').unwrap_or((range, range));
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    Some((first, (last + 1).checked_sub(first)?))
}

/// Returns a constant operand: `7`, `-1`, `0x30`, `null`.
pub(crate) fn constant(operand: &str) -> Option<i64> {
    let operand = operand.split_whitespace().next().unwrap_or_default();
    match operand.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None if operand == "null" => Some(0),
        None => operand.parse().ok(),
    }
}

/// Records which descriptors an instruction loads, and which registers it overwrites.
fn define(instruction: &Instruction, descriptors: &mut Descriptors) {
    let Some((first, count)) = instruction.operands.first().and_then(|o| registers(o, 's')) else {
        return;
    };
    let offset = match instruction.mnemonic.starts_with("s_load_dwordx")
        || instruction.mnemonic.starts_with("s_load_b")
    {
        true => instruction.operands.get(2).and_then(|o| constant(o)),
        false => None,
    };
    for i in 0..count {
        if let Some(register) = descriptors.get_mut(first + i) {
            let word = 4 * u32::try_from(i).unwrap_or(0);
            *register = offset
                .and_then(|offset| u32::try_from(offset).ok())
                .map(|o| o + word);
        }
    }
}

/// Returns the number of bytes per lane that an instruction loads from binding 0.
fn weight_bytes(instruction: &Instruction, descriptors: &Descriptors) -> Option<f64> {
    let operands = instruction.operands.iter().skip(1);
    let mut resources = operands.filter_map(|o| registers(o, 's'));
    let (first, _) = resources.find(|(_, count)| *count == 4)?;
    let offset = descriptors.get(first).copied().flatten()?;
    if offset / DESCRIPTOR_BYTES != 0 {
        return None;
    }
    let name = &instruction.mnemonic;
    let sizes = [
        ("dwordx4", 16.0),
        ("b128", 16.0),
        ("dwordx3", 12.0),
        ("b96", 12.0),
        ("dwordx2", 8.0),
        ("b64", 8.0),
        ("dword", 4.0),
        ("b32", 4.0),
        ("ushort", 2.0),
        ("short", 2.0),
        ("16", 2.0),
    ];
    let size = sizes.iter().find(|(suffix, _)| name.contains(suffix));
    Some(size.map_or(1.0, |(_, bytes)| *bytes))
}

/// Work of an instruction. Costs are those of `get_perf_info` in Mesa's `aco_statistics.cpp` for GFX10 and
/// later: a SIMD starts 32 lanes per cycle, transcendental functions and 32-bit integer products four
/// times slower, and a vector instruction of 64 lanes counts twice.
fn of_instruction(instruction: &Instruction, machine: Machine, descriptors: &Descriptors) -> Work {
    let name = instruction.mnemonic.as_str();
    let class = Class::of(name);
    let mut work = Work::default();
    work.classes[class as usize] = 1.0;
    let together = machine.dual_issue && starts_both_halves(name);
    let passes = if together {
        1.0
    } else {
        f64::from(machine.lanes.div_ceil(32))
    };
    match class {
        Class::Valu => {
            (work.valu_cycles, work.slow_cycles) = valu_cost(name);
            work.valu_cycles *= passes;
            work.slow_cycles *= passes;
        }
        Class::Matrix => {
            (work.valu_cycles, work.matrix_adds) = matrix_cost(name, machine);
        }
        Class::Load => {
            if let Some(bytes) = weight_bytes(instruction, descriptors) {
                work.weight_loads = 1.0;
                work.weight_bytes = bytes;
            }
        }
        _ => {}
    }
    (work.float_adds, work.byte_adds) = match name.starts_with("v_dual_") {
        // Two instructions in one: `v_dual_fmac_f32 v1, v2, v3 :: v_dual_mul_f32 v4, v5, v6`.
        true => {
            let others = instruction
                .operands
                .iter()
                .flat_map(|o| o.split_whitespace());
            let names = std::iter::once(name).chain(others);
            let fused = names.filter(|word| word.starts_with("v_dual_fma"));
            (fused.count() as f64, 0.0)
        }
        false => multiply_adds(name),
    };
    work
}

/// Whether an instruction starts for both halves of 64 lanes at once: `is_dual_issue_capable` in Mesa's
/// `aco_statistics.cpp`, without `v_fma_mix`, which depends on its operands.
fn starts_both_halves(name: &str) -> bool {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    let floats = [
        "v_fma",
        "v_mul_",
        "v_add_",
        "v_sub_",
        "v_subrev_",
        "v_max_",
        "v_min_",
    ];
    let ends = name.ends_with("_f32") || name.ends_with("_f16");
    ends && starts(&floats) && !starts(&["v_fma_mix"])
        || starts(&[
            "v_mov_b32",
            "v_mov_b16",
            "v_cndmask_b32",
            "v_cndmask_b16",
            "v_dot2",
        ])
}

/// Cycles of 32 lanes in the vector unit, and in the unit of slow instructions.
fn valu_cost(name: &str) -> (f64, f64) {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    if name.contains("_f64") {
        (16.0, 16.0)
    } else if starts(&[
        "v_mul_lo_u32",
        "v_mul_hi_u32",
        "v_mul_hi_i32",
        "v_mul_lo_i32",
    ]) {
        (4.0, 4.0)
    } else if starts(&[
        "v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_",
    ]) {
        (1.0, 4.0)
    } else if starts(&[
        "v_lshlrev_b64",
        "v_lshrrev_b64",
        "v_ashrrev_i64",
        "v_mad_u64",
        "v_mad_i64",
    ]) {
        (2.0, 2.0)
    } else {
        (1.0, 0.0)
    }
}

/// Cycles of a matrix instruction, and its multiply-adds per wave. The name ends with the sizes of
/// the matrices: `v_wmma_f32_16x16x16_f16`. Bytes are as fast as f16, and 4-bit integers twice as fast.
fn matrix_cost(name: &str, machine: Machine) -> (f64, f64) {
    let size = name.split('_').find(|part| part.contains('x'));
    let sides = size.into_iter().flat_map(|size| size.split('x'));
    let adds: f64 = sides.filter_map(|side| side.parse::<f64>().ok()).product();
    let rate = if name.ends_with("iu4") { 2.0 } else { 1.0 };
    (adds / (rate * machine.matrix_adds), adds)
}

/// Multiply-adds per lane in floats, and of bytes.
fn multiply_adds(name: &str) -> (f64, f64) {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    if starts(&["v_dot8"]) {
        (0.0, 8.0)
    } else if starts(&["v_dot4"]) {
        (0.0, 4.0)
    } else if starts(&["v_dot2", "v_pk_fma", "v_pk_fmac"]) {
        (2.0, 0.0)
    } else if starts(&["v_fma", "v_mac_f", "v_mad_f", "v_mad_legacy"]) {
        (1.0, 0.0)
    } else {
        (0.0, 0.0)
    }
}
