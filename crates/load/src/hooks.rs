//! Compiles the tables of a model with hooks.

use super::build::Build;
use super::finite;
use super::hook_tensors::{HookTensors, TableHooks};
use crate::error::{Result, bail};
use crate::model::{AdapterWeights, HookCompiler, HookedTables};
use crate::op::hooks::{CapturePositions, HookSpec};
use std::path::Path;
use std::sync::Arc;

/// Maximum size of the captured values of a chunk in bytes. Chunks are smaller if necessary.
const CAPTURE_BYTES_MAX: u64 = 256 << 20;

impl HookCompiler for Build {
    fn compile(
        &self,
        id: u32,
        spec: &HookSpec,
        adapters: &[Arc<AdapterWeights>],
    ) -> Result<HookedTables> {
        if self.config.speech.is_some() {
            bail!(Unsupported, "hooks are not supported for speech models");
        }
        if let CapturePositions::List(list) = &spec.positions
            && !list.is_sorted_by(|a, b| a < b)
        {
            bail!(
                Argument,
                "the positions to capture are not in ascending order"
            );
        }
        let tensors = HookTensors::new(Arc::clone(&self.catalog), spec, adapters)?;
        compile(self, id, spec, tensors)
    }

    fn first_not_finite(&self) -> Option<String> {
        let found = finite::search(&self.catalog);
        found.first().map(ToString::to_string)
    }

    fn read_adapter(&self, path: &Path) -> Result<AdapterWeights> {
        self.catalog.read_adapter(path, &self.config)
    }
}

fn compile(build: &Build, id: u32, spec: &HookSpec, tensors: HookTensors) -> Result<HookedTables> {
    let tensors = Arc::new(tensors);
    let with = |layout| {
        Some(Arc::new(TableHooks {
            id,
            spec: spec.clone(),
            layout,
            tensors: Arc::clone(&tensors),
        }))
    };
    let mut build = Build {
        hooks: with(None),
        ..build.clone()
    };
    let layout = build.capture_layout()?;
    build.hooks = with(Some(layout.clone()));
    build.chunk = chunk(&build, layout.width)?;
    let mut tables = build.tables()?;
    if !build.arch.encoder {
        tables.push(build.lens(id)?);
    }
    Ok(HookedTables {
        program: build.program(tables.into()),
        layout,
    })
}

/// Returns the number of tokens of a chunk whose captured rows have `width` columns.
fn chunk(build: &Build, width: u32) -> Result<u32> {
    let row = u64::from(width) * size_of::<f32>() as u64;
    let fitting = CAPTURE_BYTES_MAX / row.max(1);
    let chunk = u32::try_from(fitting).unwrap_or(u32::MAX).min(build.chunk);
    if chunk == 0 || build.arch.encoder && chunk < build.chunk {
        bail!(
            TooLarge,
            "the captured points have {row} bytes per token: capture fewer points, or fewer positions of attention weights"
        );
    }
    if chunk == build.chunk {
        return Ok(chunk);
    }
    // Chunk boundaries are boundaries of pages or divide them.
    Ok(1 << chunk.ilog2())
}
