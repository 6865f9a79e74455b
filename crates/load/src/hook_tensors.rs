//! Tensors of tables with hooks: those of the model, the vectors of edits and the matrices of adapters.

use super::catalog::Catalog;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::exec::{Layout, Tensors};
use crate::model::AdapterWeights;
use crate::op::hooks::{CaptureLayout, Edit, HookSpec, adapter_matrix};
use crate::plan::builder::{Hooks, WeightInfo, Weights};
use crate::quant::Scales;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// What tables compute in addition.
#[derive(Debug)]
pub(super) struct TableHooks {
    /// Number of the hooks.
    pub(super) id: u32,
    pub(super) spec: HookSpec,
    /// Columns of the stored values; `None` while they are determined.
    pub(super) layout: Option<CaptureLayout>,
    pub(super) tensors: Arc<HookTensors>,
}

impl TableHooks {
    pub(super) fn of_builder(&self) -> Hooks<'_> {
        Hooks {
            id: self.id,
            spec: &self.spec,
            layout: self.layout.as_ref(),
            first_constant: self.tensors.first_constant(),
            adapters: self.tensors.adapters,
        }
    }
}

/// The tensors of the model, followed by those of the hooks.
#[derive(Debug)]
pub(super) struct HookTensors {
    catalog: Arc<Catalog>,
    /// Vectors of each edit.
    vectors: Vec<Vec<f32>>,
    /// Number of adapters.
    adapters: u32,
    matrices: Vec<Matrix>,
    /// Index of each matrix by its name.
    by_name: HashMap<String, u32>,
}

/// A matrix of an adapter, `[rows, cols]`.
#[derive(Debug)]
struct Matrix {
    adapter: Arc<AdapterWeights>,
    /// Index of its module.
    module: usize,
    part: Part,
}

/// Matrices of a module of an adapter.
#[derive(Clone, Copy, Debug)]
enum Part {
    A,
    B,
}

impl Matrix {
    fn values(&self) -> &[f32] {
        let module = &self.adapter.modules[self.module];
        match self.part {
            Part::A => &module.a,
            Part::B => &module.b,
        }
    }

    fn shape(&self) -> [u32; 2] {
        let module = &self.adapter.modules[self.module];
        match self.part {
            Part::A => [module.rank, module.inputs],
            Part::B => [module.outputs, module.rank],
        }
    }
}

impl HookTensors {
    /// Computes the vectors of the edits and lists the matrices of the adapters.
    pub(super) fn new(
        catalog: Arc<Catalog>,
        spec: &HookSpec,
        adapters: &[Arc<AdapterWeights>],
    ) -> Result<Self> {
        let vectors = spec.edits.iter().map(Edit::constant);
        let vectors = vectors.collect::<Result<_>>()?;
        let mut tensors = Self {
            catalog,
            vectors,
            adapters: 0,
            matrices: Vec::new(),
            by_name: HashMap::new(),
        };
        for (number, adapter) in (0..).zip(adapters) {
            tensors.adapters += 1;
            for (at, module) in adapter.modules.iter().enumerate() {
                for (name, part) in [("a", Part::A), ("b", Part::B)] {
                    let name = adapter_matrix(&module.tensor, name, number);
                    let index = tensors.catalog.weights().len() + tensors.matrices.len();
                    let Ok(index) = u32::try_from(index) else {
                        bail!(TooLarge, "{index} tensors");
                    };
                    tensors.by_name.insert(name, index);
                    tensors.matrices.push(Matrix {
                        adapter: Arc::clone(adapter),
                        module: at,
                        part,
                    });
                }
            }
        }
        Ok(tensors)
    }

    /// Returns the matrix of an adapter with this index; `None` for a weight of the model.
    fn matrix(&self, index: u32) -> Option<&Matrix> {
        let first = self.catalog.weights().len();
        let at = (index as usize).checked_sub(first)?;
        Some(&self.matrices[at])
    }

    /// Returns the index of the first constant after those of the model.
    fn first_constant(&self) -> u32 {
        self.catalog.constants()
    }
}

impl Weights for HookTensors {
    fn find(&self, name: &str) -> Option<WeightInfo> {
        let Some(index) = self.by_name.get(name) else {
            return self.catalog.find(name);
        };
        let [rows, cols] = self.matrix(*index)?.shape();
        Some(WeightInfo {
            index: *index,
            dtype: DType::F32,
            rows,
            cols,
            scale: None,
        })
    }

    fn spelling(&self, name: &str) -> String {
        self.catalog.spelling(name)
    }
}

impl Tensors for HookTensors {
    fn weight(&self, index: u32) -> &[u8] {
        match self.matrix(index) {
            Some(matrix) => bytemuck::cast_slice(matrix.values()),
            None => self.catalog.weight(index),
        }
    }

    fn scales(&self, index: u32) -> Option<Scales<'_>> {
        match self.matrix(index) {
            Some(_) => None,
            None => self.catalog.scales(index),
        }
    }

    fn in_layout(&self, index: u32, layout: Layout) -> Option<&[u8]> {
        match self.matrix(index) {
            Some(_) => None,
            None => self.catalog.in_layout(index, layout),
        }
    }

    fn read(&self, index: u32, first: usize, to: &mut [u8]) -> Result<()> {
        let Some(matrix) = self.matrix(index) else {
            return self.catalog.read(index, first, to);
        };
        let bytes: &[u8] = bytemuck::cast_slice(matrix.values());
        let range = bytes.get(first..).and_then(|bytes| bytes.get(..to.len()));
        let Some(range) = range else {
            let message = "an adapter has fewer bytes than its shape";
            return Err(Error::new(ErrorKind::Internal, message));
        };
        to.copy_from_slice(range);
        Ok(())
    }

    fn release(&self, index: u32, range: Range<usize>) {
        if self.matrix(index).is_none() {
            self.catalog.release(index, range);
        }
    }

    // `copy_in_place` has nothing to do: the tables of the model have copied the weights, and adapters are in memory.

    fn check_faults(&self) -> Result<()> {
        self.catalog.check_faults()
    }

    fn constant(&self, index: u32) -> &[u8] {
        match index.checked_sub(self.first_constant()) {
            Some(edit) => bytemuck::cast_slice(&self.vectors[edit as usize]),
            None => self.catalog.constant(index),
        }
    }
}
