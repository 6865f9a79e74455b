//! Self-test of experimental driver features before kernels use them.

use super::device::Device;
use super::link::link;
use super::variants::is_experimental;
use half::f16;
use std::sync::Arc;
use tabla_core::device::KernelVariant;
use tabla_core::dtype::DType;
use tabla_core::error::{Result, bail};
use tabla_core::exec::{Program, Tensors};
use tabla_core::op::list::Op;
use tabla_core::op::operands;
use tabla_core::op::params::{State, gemm};
use tabla_core::op::table::{
    BufferId, DispatchCmd, KernelId, Place, SLOTS_MAX, SamplingStage, Slot, SlotInfo, Table,
};

/// Shape of the test: more than one tile in each dimension, and not a multiple of the tile.
const ROWS: u32 = 144;
const COLS: u32 = 96;
const TOKENS: u32 = 134;
const X: BufferId = BufferId::Scratch(0);
const Y: BufferId = BufferId::Scratch(1);

/// Runs a gemm of small integers, whose result is exact with every variant.
///
/// # Errors
///
/// `Device` for a wrong result, and any error of the device.
pub(super) fn check_gemm(device: &Device, variant: KernelVariant) -> Result<()> {
    let program = Program {
        tables: Arc::new([table(variant)]),
        tensors: Arc::new(Matrix(
            w().flat_map(|w| f16::from_f32(w).to_le_bytes()).collect(),
        )),
    };
    let mut device = device.clone();
    device.pipeline_cache_path = None;
    let mut executor = link(device, program)?;
    let state = State {
        active_rows: TOKENS,
        ..State::default()
    };
    executor.write(BufferId::State, 0, bytemuck::bytes_of(&state))?;
    let x: Vec<f32> = x().collect();
    match x_type(variant) {
        DType::F16 => {
            let eighths = x.iter().map(|x| f16::from_f32(x / 8.0).to_bits());
            let eighths: Vec<u16> = eighths.collect();
            executor.write(X, 0, bytemuck::cast_slice(&eighths))?;
        }
        _ => executor.write(X, 0, bytemuck::cast_slice(&x))?,
    }
    executor.run(0, (0..1).into(), 1)?;
    let mut y = vec![0f32; (TOKENS * ROWS) as usize];
    executor.read(Y, 0, bytemuck::cast_slice_mut(&mut y))?;
    let w: Vec<f32> = w().collect();
    let product = |x: &[f32], w: &[f32]| w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
    let rows = || w.chunks(COLS as usize);
    let tokens = x.chunks(COLS as usize);
    let expected = tokens.flat_map(|x| rows().map(move |w| product(x, w)));
    if !y.into_iter().eq(expected) {
        bail!(
            Device,
            "gpu: kernel variant {variant:?}: wrong result of a test product"
        );
    }
    Ok(())
}

/// Returns the storage type of activations: kernels with cooperative matrices read eighths in f16.
fn x_type(variant: KernelVariant) -> DType {
    match is_experimental(variant) {
        true => DType::F16,
        false => DType::F32,
    }
}

/// `[ROWS, COLS]`
fn w() -> impl Iterator<Item = f32> {
    small(ROWS * COLS, 7)
}

/// `[TOKENS, COLS]`
fn x() -> impl Iterator<Item = f32> {
    small(TOKENS * COLS, 5)
}

/// Returns integers from -5 to 5; their period differs from the row length.
fn small(count: u32, step: u32) -> impl Iterator<Item = f32> {
    (0..count).map(move |i| {
        let n = u8::try_from(step * i % 11).expect("under 11");
        f32::from(n) - 5.0
    })
}

/// Returns a table with one gemm.
fn table(variant: KernelVariant) -> Table {
    let slot = |name: &str, dtype, [rows, cols]: [u32; 2], buffer| SlotInfo {
        name: name.to_string(),
        dtype,
        rows,
        cols,
        buffer,
    };
    let small = |bytes: usize| u32::try_from(bytes).expect("a small struct");
    let words = |bytes: usize| small(bytes / size_of::<u32>());
    let kernel = KernelId::all(Op::Gemm, Some(DType::F16), &[variant]).next_back();
    let kernel = kernel.expect("gemm has an f16 kernel");
    let [units, tokens] = kernel.tile();
    let params = gemm::Params {
        tokens: TOKENS,
        rows: ROWS,
        cols: COLS,
        first: 0,
        width: ROWS,
    };
    let mut slots = [Slot(0); SLOTS_MAX];
    let operands = operands::gemm::Operands {
        w: Slot(0),
        x: Slot(1),
        y: Slot(2),
        state: Slot(3),
    };
    slots[..4].copy_from_slice(&operands.list());
    Table {
        name: "trial",
        tokens: TOKENS,
        cmds: vec![DispatchCmd {
            kernel,
            n_slots: 4,
            slots,
            params: 0,
            params_bytes: small(size_of::<gemm::Params>()),
            grid: [ROWS.div_ceil(units), TOKENS.div_ceil(tokens), 1],
            label: 0,
            place: Place::Device,
        }],
        params: bytemuck::bytes_of(&params).to_vec(),
        slots: vec![
            slot("w", DType::F16, [ROWS, COLS], BufferId::Weight(0, 0)),
            slot("x", x_type(variant), [TOKENS, COLS], X),
            slot("y", DType::F32, [TOKENS, ROWS], Y),
            slot(
                "state",
                DType::U32,
                [1, words(size_of::<State>())],
                BufferId::State,
            ),
        ],
        labels: vec!["trial".to_string()],
        layers: Vec::new(),
        head: 1,
        stages: [const { 1..1 }; SamplingStage::COUNT],
    }
}

/// The bytes of the weight.
struct Matrix(Vec<u8>);

impl Tensors for Matrix {
    fn weight(&self, _: u32) -> &[u8] {
        &self.0
    }

    fn constant(&self, _: u32) -> &[u8] {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceOptions, open};
    use tabla_core::error::ErrorKind;

    #[test]
    fn detects_a_wrong_product() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = DeviceOptions {
            allow_software: true,
            ..DeviceOptions::default()
        };
        let Some(device) = open(&options).expect("open the device") else {
            // The kernel tests report that there is no adapter.
            return;
        };
        // Gemm has no `Tile` variant, so this tests the base kernel.
        check_gemm(&device, KernelVariant::Tile).expect("exact result");
        let correct = tabla_shaders::source("gemm.wgsl").expect("embedded source");
        let wrong = correct.replace("= sum;", "= sum + f32(row == 143u && token == 130u);");
        assert_ne!(wrong, correct);
        std::fs::write(folder.path().join("gemm.wgsl"), wrong).expect("write the shader");
        let options = DeviceOptions {
            shader_path: Some(folder.path().to_path_buf()),
            ..options
        };
        let device = open(&options)
            .expect("open the device")
            .expect("an adapter");
        let error = check_gemm(&device, KernelVariant::Tile).expect_err("wrong result");
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    }
}
