//! The two matrices of a module in a file, and their conversion to modules of an [`Adapter`].
//!
//! [`Adapter`]: super::Adapter

use super::base::AdapterBase;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::format::{Directory, TensorInfo};
use crate::model::AdapterModule;
use crate::quant::{self, Matrix};
use crate::row_order::RowOrder;
use crate::split::FUSED_GATE;
use std::collections::BTreeMap;

/// Maximum rank of an adapter. Published adapters have at most 1024.
pub(super) const RANK_MAX: u32 = 4096;

/// Unquantized types of matrices.
const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];

/// The matrices of the modules of a file, by module, in file order.
#[derive(Default)]
pub(super) struct Pairs<'a> {
    modules: Vec<(&'a str, [Option<&'a TensorInfo>; 2])>,
    indices: BTreeMap<&'a str, usize>,
}

/// One of the two matrices of a module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    A,
    B,
}

/// A module of a file with both matrices.
pub(super) struct Pair<'a> {
    /// Name of the module in the file.
    pub(super) module: &'a str,
    /// `[rank, inputs]`.
    pub(super) a: &'a TensorInfo,
    /// `[outputs, rank]`.
    pub(super) b: &'a TensorInfo,
}

/// What a file format defines for a module.
pub(super) struct Target {
    pub(super) layer: u32,
    /// GGUF name of the module in its layer, such as `attn_q`.
    pub(super) kind: String,
    /// Factor of B.
    pub(super) scale: f64,
    /// Whether the rows of Q and K are in half-split order.
    pub(super) half_split: bool,
}

impl<'a> Pairs<'a> {
    /// Adds a matrix of a module.
    ///
    /// # Errors
    ///
    /// `Format` if the module has that matrix already.
    pub(super) fn add(
        &mut self,
        module: &'a str,
        role: Role,
        tensor: &'a TensorInfo,
    ) -> Result<()> {
        let count = self.modules.len();
        let index = *self.indices.entry(module).or_insert(count);
        if index == count {
            self.modules.push((module, [None; 2]));
        }
        let slot = &mut self.modules[index].1[role as usize];
        match slot.replace(tensor) {
            None => Ok(()),
            Some(first) => bail!(
                Format,
                "tensors {} and {} are both matrix {role:?} of module {module}",
                first.name,
                tensor.name
            ),
        }
    }

    /// Returns the modules.
    ///
    /// # Errors
    ///
    /// `Format` for a module with one matrix.
    pub(super) fn complete(self) -> Result<Vec<Pair<'a>>> {
        let pair = |(module, matrices): (&'a str, [Option<&'a TensorInfo>; 2])| match matrices {
            [Some(a), Some(b)] => Ok(Pair { module, a, b }),
            [Some(one), None] => bail!(Format, "tensor {} has no matrix B", one.name),
            [None, Some(one)] => bail!(Format, "tensor {} has no matrix A", one.name),
            [None, None] => bail!(Internal, "module {module} has no matrices"),
        };
        self.modules.into_iter().map(pair).collect()
    }
}

impl Pair<'_> {
    /// Returns the rank.
    ///
    /// # Errors
    ///
    /// `Format` for matrices whose shapes do not fit each other, and a rank out of range.
    pub(super) fn rank(&self) -> Result<u32> {
        for tensor in [self.a, self.b] {
            if tensor.dims.len() != 2 {
                bail!(
                    Format,
                    "tensor {} has {} dimensions, expected 2",
                    tensor.name,
                    tensor.dims.len()
                );
            }
        }
        let [rank, other] = [self.a.rows(), self.b.cols()];
        if rank != other {
            bail!(
                Format,
                "module {}: matrix A has rank {rank}, matrix B has rank {other}",
                self.module
            );
        }
        match u32::try_from(rank) {
            Ok(rank @ 1..=RANK_MAX) => Ok(rank),
            _ => bail!(
                Format,
                "module {}: rank {rank}, expected 1 to {RANK_MAX}",
                self.module
            ),
        }
    }

    /// Returns the modules of the model: one, or the parts of a fused module. None if the model does
    /// not use the weight.
    ///
    /// # Errors
    ///
    /// `Argument` for a module or a shape that does not fit the model, `Format` for values that are
    /// not finite, `Unsupported` for other types than those of weights.
    pub(super) fn modules(
        &self,
        target: &Target,
        file: &Directory,
        base: &AdapterBase<'_>,
    ) -> Result<Vec<AdapterModule>> {
        let rank = self.rank()?;
        let module = self.module;
        let Some(layer) = base.layers.get(target.layer as usize) else {
            bail!(
                Argument,
                "module {module}: layer {} is out of range, the model has {} layers",
                target.layer,
                base.layers.len()
            );
        };
        let kind = target.kind.as_str();
        // Layers that share a KV cache have no K and V of their own; training leaves B at zero.
        if layer.cache != target.layer && ["attn_k", "attn_v"].contains(&kind) {
            return Ok(Vec::new());
        }
        let parts = self.parts(target, base)?;
        let (a, b) = (decode(self.a, file)?, decode(self.b, file)?);
        let inputs = parts[0].1[1];
        let mut modules = Vec::new();
        let mut first = 0;
        for (part, [rows, _]) in parts {
            let order = match part {
                "attn_q" | "attn_k" => self.order(target, base, layer.head_dim)?,
                _ => RowOrder::Same,
            };
            let cols = rank as usize;
            let mut scaled = Vec::with_capacity(rows as usize * cols);
            for row in 0..rows as usize {
                let row = &b[(first + order.source(row)) * cols..][..cols];
                #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
                let products = row.iter().map(|b| (f64::from(*b) * target.scale) as f32);
                scaled.extend(products);
            }
            first += rows as usize;
            if scaled.iter().any(|b| !b.is_finite()) {
                bail!(
                    Format,
                    "tensor {}: values multiplied by the scale {} exceed the range of f32",
                    self.b.name,
                    target.scale
                );
            }
            modules.push(AdapterModule {
                tensor: format!("blk.{}.{part}", target.layer),
                rank,
                inputs,
                outputs: rows,
                a: a.clone(),
                b: scaled,
            });
        }
        Ok(modules)
    }

    /// Returns the weights of the model that the module changes, in row order: names in the layer,
    /// and their rows and columns.
    fn parts<'p>(
        &self,
        target: &'p Target,
        base: &AdapterBase<'_>,
    ) -> Result<Vec<(&'p str, [u32; 2])>> {
        let Target { layer, kind, .. } = target;
        let [outputs, inputs] = [self.b.rows(), self.a.cols()];
        let shape = |kind: &str| (base.shape)(&format!("blk.{layer}.{kind}"));
        let fused = |name: &str| {
            let mut fused = base.arch.fused.iter();
            let (_, parts) = fused.find(|(fused, _)| *fused == name)?;
            let parts = parts.iter().map(|part| Some((*part, shape(part)?)));
            parts.collect::<Option<Vec<_>>>()
        };
        let own = shape(kind).map(|shape| vec![(kind.as_str(), shape)]);
        let total = |parts: &[(&str, [u32; 2])]| -> u64 {
            parts.iter().map(|(_, [rows, _])| u64::from(*rows)).sum()
        };
        // A fused gate is an `ffn_up` in GGUF files.
        let gate_up = (kind == FUSED_GATE[1])
            .then(|| fused(FUSED_GATE[0]))
            .flatten()
            .filter(|parts| total(parts) == outputs);
        let Some(parts) = gate_up.or(own).or_else(|| fused(kind)) else {
            bail!(
                Argument,
                "module {}: the model has no weight blk.{layer}.{kind}",
                self.module
            );
        };
        let cols = parts[0].1[1];
        let rows = total(&parts);
        if rows != outputs || u64::from(cols) != inputs {
            bail!(
                Argument,
                "module {}: expected {rows} outputs and {cols} inputs as of the model, got \
                 {outputs} and {inputs}: the adapter belongs to another model",
                self.module
            );
        }
        Ok(parts)
    }

    /// Returns the permutation of the rows of Q or K from the order of the file to that of the model.
    fn order(&self, target: &Target, base: &AdapterBase<'_>, head_dim: u32) -> Result<RowOrder> {
        let half_split = target.half_split;
        let head = head_dim as usize;
        if half_split == base.half_split {
            return Ok(RowOrder::Same);
        }
        if head == 0 || !head.is_multiple_of(2) || !self.b.rows().is_multiple_of(head as u64) {
            bail!(
                Argument,
                "module {}: {} rows do not divide into heads of dimension {head}",
                self.module,
                self.b.rows()
            );
        }
        Ok(if half_split {
            RowOrder::Interleaved(head)
        } else {
            RowOrder::Halves(head)
        })
    }
}

/// Decodes a matrix. Its size was compared with the model and, when the file was opened, with the
/// file.
///
/// # Errors
///
/// `Unsupported` for another type than those of weights, `Format` for a value that is not finite,
/// `Memory` if there is not enough.
fn decode(tensor: &TensorInfo, file: &Directory) -> Result<Vec<f32>> {
    let dtype = tensor.dtype.known().filter(|dtype| {
        let facts = dtype.facts();
        let quantized = facts.block > 1 && facts.gguf.is_some() && facts.tail == 0;
        quantized || FLOATS.contains(dtype)
    });
    let Some(dtype) = dtype else {
        bail!(
            Unsupported,
            "tensor {}: unsupported type {} for an adapter",
            tensor.name,
            tensor.dtype
        );
    };
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let [rows, cols] = [size(tensor.rows()), size(tensor.cols())];
    let elements = rows.saturating_mul(cols);
    let mut values = Vec::new();
    values.try_reserve_exact(elements).map_err(|_| {
        let name = &tensor.name;
        Error::new(
            ErrorKind::Memory,
            format_args!("tensor {name}: cannot allocate {elements} values"),
        )
    })?;
    values.resize(elements, 0.0);
    let matrix = Matrix {
        bytes: file.bytes(tensor),
        scales: None,
        rows,
        cols,
    };
    for (row, out) in values.chunks_exact_mut(cols.max(1)).enumerate() {
        quant::decode_row_of(dtype, &matrix, row, out);
    }
    match values.iter().position(|x| !x.is_finite()) {
        None => Ok(values),
        Some(at) => bail!(
            Format,
            "tensor {}: row {}, column {} is {}, expected a finite value",
            tensor.name,
            at / cols,
            at % cols,
            values[at]
        ),
    }
}
