//! Operations in Dawn, the WebGPU implementation of Chrome: all cases against their formulas, as on other devices.
//!
//! `cargo xtask gpu-lab` sets `TABLA_DAWN`: a folder with the npm package `webgpu`. Dawn requires a newer driver than
//! that of Debian 12. Tint has other names for cooperative matrices; 16x16 ones are emulated.

mod emulation;

use super::fixture::{assert_close, wide};
use super::types::FULL;
use super::{devices, has_variants, log, operations, software};
use crate::common::exhaustive;
use emulation::emulated;
use half::f16;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use tabla::Result;
use tabla::device::{KernelVariant, Profile};
use tabla::dtype::DType;
use tabla::error::bail;
use tabla::exec::{CommandTiming, Copying, Executor, Program, Span, Tensors};
use tabla::op::list::{Access, Op};
use tabla::op::table::{self, BufferId, Cmds, DispatchCmd, KernelId, SlotInfo, Table};
use tabla::quant::{Matrix, sections};
use tabla_shaders::{KernelSpec, expand, standard};
use tabla_testkit::case::Case;
use tabla_testkit::ops::cases;
use tabla_testkit::rig::{self, Device as Runner, Outcome, run_case};

/// A process with a device of Dawn.
struct Dawn {
    node: Child,
    kernels: Vec<KernelId>,
    /// Number of buffers created so far.
    buffers: u32,
}

impl Dawn {
    fn start(folder: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tint/device.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self {
            node: command.spawn().expect("TABLA_DAWN requires Node.js"),
            kernels: Vec::new(),
            buffers: 0,
        }
    }

    fn send(&mut self, command: &Value, bytes: &[u8]) {
        let text = command.to_string();
        let size = u32::try_from(text.len()).unwrap().to_le_bytes();
        let stdin = self.node.stdin.as_mut().unwrap();
        for part in [&size, text.as_bytes(), bytes] {
            stdin.write_all(part).expect("Dawn reported an error");
        }
    }

    fn buffer(&mut self, bytes: u64) -> u32 {
        self.buffers += 1;
        let size = bytes.max(4).next_multiple_of(32);
        self.send(&json!(["buffer", self.buffers, size]), &[]);
        self.buffers
    }

    fn write(&mut self, buffer: u32, offset: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        if !bytes.is_empty() {
            self.send(&json!(["write", buffer, offset, bytes.len()]), &bytes);
        }
    }

    fn read(&mut self, buffer: u32, offset: usize, bytes: &mut [u8]) {
        self.send(&json!(["read", buffer, offset, bytes.len()]), &[]);
        let stdout = self.node.stdout.as_mut().unwrap();
        stdout.read_exact(bytes).expect("Dawn reported an error");
    }

    /// Compiles a kernel, once.
    fn compile(&mut self, kernel: KernelId, params_bytes: u32) {
        if self.kernels.contains(&kernel) {
            return;
        }
        self.kernels.push(kernel);
        let spec = KernelSpec {
            stem: kernel.op.name(),
            dtype: kernel.dtype.map(DType::name),
            variant: kernel.variant.map(KernelVariant::name),
        };
        let read = |file: &str| tabla_shaders::source(file).map(str::to_string);
        let text = expand(spec, &read).unwrap();
        let text = match kernel.variant {
            Some(KernelVariant::Matrix16 | KernelVariant::LargeMatrix16) => emulated(&text),
            _ => text,
        };
        let text = standard(&text);
        let operands = kernel.op.operands().iter();
        let read_only: Vec<bool> = operands.map(|o| o.access == Access::Read).collect();
        let command = json!(["kernel", kernel.name(), read_only, params_bytes, text.len()]);
        self.send(&command, text.as_bytes());
    }
}

impl Drop for Dawn {
    fn drop(&mut self) {
        drop(self.node.stdin.take());
        let _ = self.node.wait();
    }
}

/// Runs the commands of a table in Dawn. Has the methods that cases use.
struct DawnExecutor {
    dawn: Arc<Mutex<Dawn>>,
    profile: Profile,
    table: Table,
    buffers: BTreeMap<BufferId, u32>,
}

impl DawnExecutor {
    fn new(dawn: &Arc<Mutex<Dawn>>, profile: &Profile, program: &Program) -> Self {
        let [table] = &*program.tables else {
            panic!("cases have one table")
        };
        let mut buffers = BTreeMap::new();
        let mut process = dawn.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, slot) in table::buffers(std::slice::from_ref(table)) {
            let bytes = match id {
                BufferId::Weight(index, _) => weight(&*program.tensors, index, slot),
                BufferId::Constant(index) => program.tensors.constant(index).to_vec(),
                _ => Vec::new(),
            };
            let buffer = process.buffer(slot.bytes().max(bytes.len() as u64));
            process.write(buffer, 0, &bytes);
            buffers.insert(id, buffer);
        }
        for cmd in &table.cmds {
            process.compile(cmd.kernel, cmd.params_bytes);
        }
        drop(process);
        Self {
            dawn: Arc::clone(dawn),
            profile: profile.clone(),
            table: table.clone(),
            buffers,
        }
    }

    fn launch(&self, dawn: &mut Dawn, cmd: &DispatchCmd) {
        let buffer = |slot: &table::Slot| self.buffers[&self.table.slot(*slot).buffer];
        let ids: Vec<u32> = cmd.slots().iter().map(buffer).collect();
        let params = self.table.params(cmd);
        let command = json!(["run", cmd.kernel.name(), ids, cmd.grid, params.len()]);
        dawn.send(&command, params);
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Dawn> {
        self.dawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DawnExecutor {
    fn drop(&mut self) {
        let mut dawn = self.process();
        for buffer in self.buffers.values() {
            dawn.send(&json!(["free", buffer]), &[]);
        }
    }
}

/// Returns a weight in the layout of GPUs.
fn weight(tensors: &dyn Tensors, index: u32, slot: &SlotInfo) -> Vec<u8> {
    let matrix = Matrix {
        bytes: tensors.weight(index),
        scales: tensors.scales(index),
        rows: slot.rows as usize,
        cols: slot.cols as usize,
    };
    let mut bytes = Vec::new();
    for section in sections(slot.dtype) {
        bytes.extend(section.head(slot.dtype, &matrix));
        (0..matrix.rows).for_each(|row| section.row(slot.dtype, &matrix, row, &mut bytes));
    }
    bytes
}

impl Executor for DawnExecutor {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn run(&mut self, _table: usize, cmds: Cmds, times: u32) -> Result<()> {
        let mut dawn = self.process();
        for range in (0..times).flat_map(|_| cmds.ranges()) {
            let cmds = &self.table.cmds[range];
            cmds.iter().for_each(|cmd| self.launch(&mut dawn, cmd));
        }
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<()> {
        self.process().write(self.buffers[&buffer], offset, bytes);
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.process().read(self.buffers[&buffer], offset, bytes);
        Ok(())
    }

    fn add_tables(&mut self, _program: Program) -> Result<usize> {
        bail!(Unsupported, "cases have one program")
    }

    fn remove_tables(&mut self, _first: usize) -> Result<()> {
        bail!(Unsupported, "cases have one program")
    }

    fn duplicate(&mut self, _: BufferId, _: usize, _: usize, _: usize) -> Result<()> {
        bail!(Unsupported, "cases read whole operands")
    }

    fn copy(&mut self, _spans: &[Span]) -> Result<Copying> {
        bail!(Unsupported, "cases read whole operands")
    }

    fn take(&mut self, _copying: Copying, _bytes: &mut [u8]) -> Result<()> {
        bail!(Unsupported, "cases read whole operands")
    }

    fn time_commands(&mut self) -> Result<()> {
        bail!(Unsupported, "cases are not timed")
    }

    fn end_timing(&mut self) {}

    fn command_timings(&self, _table: usize) -> &[CommandTiming] {
        &[]
    }
}

/// Returns Dawn with kernel variants; `None`, with a message, if it is not installed.
fn dawn(variants: Vec<KernelVariant>) -> Option<Runner> {
    let folder = std::env::var("TABLA_DAWN").unwrap_or_default();
    if folder.is_empty() {
        log(format_args!("dawn: SKIPPED, TABLA_DAWN is not set"));
        return None;
    }
    let device = devices(&software(), 0).pop()?;
    let profile = Profile {
        variants,
        ..device.profile().clone()
    };
    let dawn = Arc::new(Mutex::new(Dawn::start(&folder)));
    Some(Runner {
        name: "dawn".to_string(),
        profile: profile.clone(),
        link: Box::new(move |program| Ok(Box::new(DawnExecutor::new(&dawn, &profile, &program)))),
    })
}

/// All cases of every operation, with base kernels and with those for subgroups.
#[test]
fn kernels_match_their_formulas_in_dawn() {
    for variants in [vec![], vec![KernelVariant::Subgroup, KernelVariant::Tile]] {
        let Some(runner) = dawn(variants.clone()) else {
            return;
        };
        let is_tested = |op: &&Op| variants.is_empty() || has_variants(**op);
        for op in Op::ALL.iter().filter(is_tested) {
            let (name, error) = (op.name(), operations::check_on(&runner, *op));
            log(format_args!(
                "dawn, {variants:?}, {name}: error {error:.1e}"
            ));
        }
    }
}

/// Kernels for 16x16 matrices multiply weights and activations in f16. Decoding is the same as with other kernels, so
/// only exhaustive runs test every type.
#[test]
fn emulated_matrices_match_products_of_f16() {
    emulated_products(KernelVariant::Matrix16);
    emulated_products(KernelVariant::LargeMatrix16);
}

fn emulated_products(variant: KernelVariant) {
    let Some(runner) = dawn(vec![KernelVariant::Subgroup, variant]) else {
        return;
    };
    let mut tested = BTreeSet::new();
    // More tokens than other cases, of which most are in whole tiles.
    let whole = |emit| Case {
        name: "whole tiles",
        tokens: 130,
        live: 130,
        context: 256,
        weights: &[("w", DType::F16, 136, 64)],
        emit,
        ..cases(Op::Gemm)[0]
    };
    let stored = whole(|b| {
        let (w, x) = (b.weight("w", 136, 64), b.input("x", 64));
        b.mat("y", w, x);
    });
    let added = whole(|b| {
        let (w, x, y) = (b.weight("w", 136, 64), b.input("x", 64), b.input("y", 136));
        b.mat_add(w, x, y);
    });
    let whole = [(Op::Gemm, &stored), (Op::GemmAdd, &added)];
    let is_tested = |case: &&Case| {
        let mut types = case.weights.iter().map(|(_, dtype, ..)| *dtype);
        exhaustive() || types.any(|dtype| dtype == DType::F16 || FULL.contains(&dtype))
    };
    let small = cases(Op::GemmAdd).iter().filter(is_tested);
    let small = small.map(|case| (Op::GemmAdd, case));
    for (op, case) in small.chain(whole) {
        let table = rig::table(case, &runner);
        let mut kernels = table.cmds.iter().map(|cmd| cmd.kernel);
        if kernels.any(|kernel| kernel.variant == Some(variant)) {
            let outcome = run_case(op, case, &runner, &|_, _| {});
            let expected = product(op, &outcome);
            let what = format!("{} {op:?} {}", variant.name(), case.name);
            let error = assert_close(&what, &outcome.results("y"), &expected, 1e-5);
            log(format_args!("emulated {what}: error {error:.1e}"));
            tested.insert(op);
        }
    }
    assert_eq!(tested.len(), 2, "no case has a kernel {}", variant.name());
}

/// Returns `W x`, or `y + W x`, in f64, with weights and activations in f16; inactive rows are unchanged.
fn product(op: Op, o: &Outcome) -> Vec<f64> {
    let in_f16 = |name| -> Vec<f64> {
        let numbers = o.numbers(name).into_iter();
        numbers.map(|x| f16::from_f32(x).to_f64()).collect()
    };
    let (w, x, mut y) = (in_f16("w"), in_f16("x"), wide(&o.numbers("y")));
    let [rows, cols] = [o.slots["w"].rows, o.slots["w"].cols].map(|n| n as usize);
    let live = o.state().active_rows as usize;
    for (x, y) in x.chunks(cols).zip(y.chunks_mut(rows)).take(live) {
        for (w, y) in w.chunks(cols).zip(y) {
            let sum: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
            *y = if op == Op::GemmAdd { *y + sum } else { sum };
        }
    }
    y
}
