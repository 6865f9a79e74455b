//! Tensors of the source model, with GGUF names and the row order of the new file.

use crate::arch::{self, DeltaNet, RopeScaling, Rotation};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, Metadata, TensorInfo, TensorType};
use crate::load::adapter::Merge;
use crate::load::recurrent;
use crate::load::row_order::RowOrder;
use crate::load::rows::{CHUNK_ELEMENTS, EncodedChunk, Rows};
use crate::load::source::Opened;
use crate::load::split::FUSED_GATE;
use crate::load::weight::{Weight, f32_bytes};
use crate::quant::Matrix;
use std::collections::HashSet;

/// A tensor of the source model.
pub(super) struct SourceTensor<'a> {
    /// Name in the new file.
    pub(super) name: String,
    /// Dimensions, the fastest varying first.
    pub(super) dims: Vec<u64>,
    pub(super) dtype: TensorType,
    pub(super) matrix: Matrix<'a>,
    pub(super) order: RowOrder,
    pub(super) column_order: RowOrder,
    /// Adapter modules that are added to its rows.
    pub(super) merges: Vec<Merge<'a>>,
    /// Factor of each row, after adapters were added; empty if all are 1.
    pub(super) row_factors: Vec<f32>,
}

/// A tensor that the files of the source contain in another form, or not at all.
pub(super) struct ComputedTensor {
    /// Name in the new file.
    pub(super) name: String,
    /// Dimensions, the fastest varying first.
    pub(super) dims: Vec<u64>,
    pub(super) dtype: DType,
    pub(super) bytes: Vec<u8>,
}

/// GGUF tensors of RoPE frequency factors: of a scaling rule, and the two lists of LongRoPE.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
const ROPE_LONG: &str = "rope_factors_long.weight";
const ROPE_SHORT: &str = "rope_factors_short.weight";

/// Factor that makes a frequency 0, as written by llama.cpp's converter.
const NO_ROTATION: f32 = 1e30;

impl<'a> SourceTensor<'a> {
    /// Wraps a tensor of a GGUF file.
    pub(super) fn of_tensor(file: &'a Directory, tensor: &TensorInfo) -> Result<Self> {
        let [rows, cols] = size(&tensor.name, tensor.rows(), tensor.cols())?;
        Ok(Self {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
            dtype: tensor.dtype,
            matrix: Matrix {
                bytes: file.bytes(tensor),
                scales: None,
                rows,
                cols,
            },
            order: RowOrder::Same,
            column_order: RowOrder::Same,
            merges: Vec::new(),
            row_factors: Vec::new(),
        })
    }

    /// Wraps a tensor of a GGUF file, or the weight with its name, which has scales in another tensor.
    pub(super) fn of_gguf(
        file: &'a Directory,
        tensor: &TensorInfo,
        scaled: &'a [Weight],
    ) -> Result<Self> {
        let plain = Self::of_tensor(file, tensor)?;
        let weight = scaled.iter().find(|weight| weight.name == tensor.name);
        let scales = weight.and_then(|weight| weight.scales(file));
        Ok(Self {
            matrix: Matrix {
                scales,
                ..plain.matrix
            },
            ..plain
        })
    }

    /// Wraps a weight of a Hugging Face checkpoint.
    pub(super) fn of_weight(file: &'a Directory, weight: &'a Weight) -> Result<Self> {
        let vector = file.tensors[weight.codes.tensor].dims.len() == 1;
        let [rows, cols] = [weight.rows, weight.cols].map(u64::from);
        let stack = u64::from(weight.stack);
        let dims = match stack {
            _ if vector => vec![cols],
            1 => vec![cols, rows],
            _ => vec![cols, rows / stack, stack],
        };
        let [rows, cols] = size(&weight.name, rows, cols)?;
        let fused_gate = format!(".{}.", FUSED_GATE[0]);
        Ok(Self {
            name: weight
                .name
                .replace(&fused_gate, &format!(".{}.", FUSED_GATE[1])),
            dims,
            dtype: weight.dtype.into(),
            matrix: Matrix {
                bytes: weight.codes.bytes(file),
                scales: weight.scales(file),
                rows,
                cols,
            },
            order: RowOrder::Same,
            column_order: RowOrder::Same,
            merges: Vec::new(),
            row_factors: Vec::new(),
        })
    }

    /// Wraps a computed tensor.
    pub(super) fn of_computed(tensor: &'a ComputedTensor) -> Self {
        let elements = tensor.bytes.len() / tensor.dtype.facts().bytes;
        let cols = tensor.dims.first().and_then(|n| usize::try_from(*n).ok());
        let cols = cols.unwrap_or(elements).max(1);
        Self {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
            dtype: tensor.dtype.into(),
            matrix: Matrix {
                bytes: &tensor.bytes,
                scales: None,
                rows: elements / cols,
                cols,
            },
            order: RowOrder::Same,
            column_order: RowOrder::Same,
            merges: Vec::new(),
            row_factors: Vec::new(),
        }
    }

    /// Returns the number of elements.
    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |n, d| n.saturating_mul(*d))
    }

    /// Returns the size in bytes, including scales.
    pub(super) fn bytes(&self) -> u64 {
        let scales = self.matrix.scales;
        let scale_bytes = scales.map_or(0, |s| s.bytes.len() + s.biases.len());
        (self.matrix.bytes.len() + scale_bytes) as u64
    }

    /// Returns whether the values to write are those of the source.
    pub(super) fn is_unchanged(&self) -> bool {
        self.merges.is_empty() && self.row_factors.is_empty()
    }

    /// Returns the rows of the tensor.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a type that cannot be decoded.
    pub(super) fn rows(&'a self) -> Result<Rows<'a>> {
        let Some(dtype) = self.dtype.known() else {
            bail!(
                Unsupported,
                "tensor {}: cannot decode type {}",
                self.name,
                self.dtype
            );
        };
        Ok(Rows {
            order: self.order,
            column_order: self.column_order,
            merges: &self.merges,
            row_factors: &self.row_factors,
            ..Rows::plain(&self.name, dtype, self.matrix)
        })
    }

    /// Passes the bytes of the tensor to `sink` in chunks, with rows permuted if needed. Columns are permuted only in checkpoints, whose
    /// tensors of this kind have no blocks.
    pub(super) fn copy(&self, sink: &mut dyn FnMut(EncodedChunk) -> Result<()>) -> Result<()> {
        let Matrix {
            bytes, rows, cols, ..
        } = self.matrix;
        let elements = |byte_count: usize| {
            self.elements().saturating_mul(byte_count as u64) / bytes.len().max(1) as u64
        };
        if [self.order, self.column_order] == [RowOrder::Same; 2] {
            return bytes.chunks(CHUNK_ELEMENTS).try_for_each(|part| {
                sink(EncodedChunk {
                    bytes: part.to_vec(),
                    elements: elements(part.len()),
                    ..EncodedChunk::default()
                })
            });
        }
        let order: Vec<usize> = (0..rows).map(|row| self.order.source(row)).collect();
        order
            .chunks(CHUNK_ELEMENTS.div_ceil(cols.max(1)))
            .try_for_each(|rows| {
                let mut chunk = EncodedChunk::default();
                for row in rows {
                    let row = self.matrix.row(*row);
                    let element = row.len() / cols.max(1);
                    match self.column_order {
                        RowOrder::Same => chunk.bytes.extend_from_slice(row),
                        order => (0..cols).for_each(|col| {
                            let stored = &row[order.source(col) * element..][..element];
                            chunk.bytes.extend_from_slice(stored);
                        }),
                    }
                }
                chunk.elements = elements(chunk.bytes.len());
                sink(chunk)
            })
    }

    /// Permutes the value heads of recurrent layers to the order of GGUF files.
    pub(super) fn permute_value_heads(&mut self, delta: &DeltaNet) {
        [self.order, self.column_order] = recurrent::value_head_order(&self.name, delta);
        if self.order != RowOrder::Same && self.dims.len() == 1 {
            // A vector has an element for each row.
            (self.matrix.rows, self.matrix.cols) = (self.matrix.cols, 1);
        }
    }

    /// Permutes the rows of each head of Q and K weights and biases. `order` receives the head
    /// dimension.
    pub(super) fn permute_heads(
        &mut self,
        metadata: &Metadata,
        order: fn(usize) -> RowOrder,
    ) -> Result<()> {
        let key = |name: &str| {
            let arch = metadata.str("general.architecture")?.unwrap_or_default();
            metadata.u32(&format!("{arch}.attention.{name}"))
        };
        let heads = key("head_count")?;
        let heads = match self.name.rsplit_once('.').map_or("", |(module, _)| module) {
            name if name.ends_with(".attn_q") => heads,
            name if name.ends_with(".attn_k") => key("head_count_kv")?.or(heads),
            _ => return Ok(()),
        };
        if self.dims.len() == 1 {
            // A bias has an element for each row.
            (self.matrix.rows, self.matrix.cols) = (self.matrix.cols, 1);
        }
        let (rows, heads) = (self.matrix.rows, heads.unwrap_or(0) as usize);
        if heads == 0 || !rows.is_multiple_of(2 * heads) {
            bail!(
                Format,
                "tensor {}: {rows} rows do not divide into {heads} heads of even dimension",
                self.name
            );
        }
        self.order = order(rows / heads);
        Ok(())
    }
}

/// Rejects two tensors with the same name.
pub(super) fn check_names(tensors: &[SourceTensor<'_>]) -> Result<()> {
    let mut seen = HashSet::new();
    match tensors.iter().find(|t| !seen.insert(t.name.as_str())) {
        None => Ok(()),
        Some(duplicate) => bail!(Format, "two tensors map to {}", duplicate.name),
    }
}

/// Returns the RoPE factor tensors that represent the model's scaling rule in GGUF, which has no key
/// for it. Empty for other rules.
pub(super) fn rope_factors(metadata: &Metadata) -> Result<Vec<ComputedTensor>> {
    let config = arch::Config::read(metadata)?;
    let arch = arch::find(&config.architecture)?;
    let config = config.validate(arch)?;
    let rope = &config.rope.rotations[0];
    Ok(match &rope.scaling {
        RopeScaling::Llama3 { .. } | RopeScaling::Proportional { .. } => {
            let factors = factors_of_rule(rope, config.context)?;
            vec![vector(ROPE_FACTORS, &factors)]
        }
        RopeScaling::Long { short, long, .. } => {
            vec![vector(ROPE_LONG, long), vector(ROPE_SHORT, short)]
        }
        _ => Vec::new(),
    })
}

/// Returns the scales of whole `NVFP4` matrices as tensors, whose names have this suffix in GGUF files.
pub(super) fn matrix_scales(
    weights: &[Weight],
    file: &Directory,
    suffix: &str,
) -> Vec<ComputedTensor> {
    let scales = weights.iter().filter_map(|weight| {
        let scales = weight
            .scales(file)
            .filter(|_| weight.dtype == DType::Nvfp4)?;
        let module = weight.name.strip_suffix(".weight")?;
        Some(ComputedTensor {
            name: [module, suffix].concat(),
            dims: vec![scales.bytes.len() as u64 / 4],
            dtype: scales.float,
            bytes: scales.bytes.to_vec(),
        })
    });
    scales.collect()
}

fn vector(name: &str, values: &[f32]) -> ComputedTensor {
    ComputedTensor {
        name: name.to_string(),
        dims: vec![values.len() as u64],
        dtype: DType::F32,
        bytes: f32_bytes(values),
    }
}

/// Returns the key and value of the LongRoPE attention factor if the folder does not set it, because
/// GGUF readers do not compute it.
pub(super) fn rope_magnitude(model: &Opened) -> Result<Option<(String, f32)>> {
    if model.folder.is_none() {
        return Ok(None);
    }
    let config = arch::Config::read(&model.file.metadata)?;
    let key = format!("{}.rope.scaling.attn_factor", config.architecture);
    let long = matches!(config.rope.rotations[0].scaling, RopeScaling::Long { .. });
    let unset = model.file.metadata.get(&key).is_none();
    Ok((long && unset).then(|| (key, config.rope.rotations[0].magnitude())))
}

/// Returns the factors that reproduce the frequencies of a scaling rule.
fn factors_of_rule(rope: &Rotation, context: u32) -> Result<Vec<f32>> {
    let expected = rope.freqs(None, context)?;
    let rope = Rotation {
        scaling: RopeScaling::None,
        ..rope.clone()
    };
    let plain = rope.freqs(None, context)?;
    let quotients = plain.iter().zip(&expected).map(|(p, e)| p / e);
    let mut factors: Vec<f32> = quotients.map(|f| f.min(NO_ROTATION)).collect();
    // A quotient may be off by one ULP: try the next value above, then the one below.
    for step in [f32::next_up, |f: f32| f.next_down().next_down()] {
        let actual = rope.freqs(Some(&factors), context)?;
        for (factor, (actual, expected)) in factors.iter_mut().zip(actual.iter().zip(&expected)) {
            if actual != expected && *expected != 0.0 {
                *factor = step(*factor);
            }
        }
    }
    Ok(factors)
}

fn size(name: &str, rows: u64, cols: u64) -> Result<[usize; 2]> {
    match (usize::try_from(rows), usize::try_from(cols)) {
        (Ok(rows), Ok(cols)) => Ok([rows, cols]),
        _ => bail!(
            TooLarge,
            "tensor {name}: {rows} rows of {cols} columns do not fit usize"
        ),
    }
}
