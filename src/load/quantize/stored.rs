//! A model's tensors as they are stored, under the names of GGUF files and in the order of rows
//! that the new file wants.

use crate::arch::{self, RopeScaling, Rotation};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, Metadata, TensorInfo, TensorType};
use crate::load::source::Opened;
use crate::load::split::FUSED_GATE;
use crate::load::weight::{Weight, f32_bytes};
use crate::quant::Matrix;
use std::collections::HashSet;

/// A tensor of the model.
pub(super) struct Stored<'a> {
    /// Its name in the new file.
    pub(super) name: String,
    /// Elements along each dimension, the fastest first.
    pub(super) dims: Vec<u64>,
    pub(super) dtype: TensorType,
    pub(super) matrix: Matrix<'a>,
    pub(super) order: Order,
}

/// Which row of the model becomes a row of the new file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// The same.
    Same,
    /// Heads of so many rows, whose halves are taken in turns: RoPE turns neighbours then.
    Interleaved(usize),
    /// The reverse: rows that were taken in turns become halves.
    Halves(usize),
}

/// Where divisors of RoPE's frequencies stand in GGUF files: those of a rule, and the two lists of
/// models that have one for long texts.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
const ROPE_LONG: &str = "rope_factors_long.weight";
const ROPE_SHORT: &str = "rope_factors_short.weight";

/// Divides a frequency to nothing, as llama.cpp's converter writes it.
const STILL: f32 = 1e30;

impl Order {
    /// The row of the model that becomes `row`.
    pub(super) fn source(self, row: usize) -> usize {
        let (head, interleaved) = match self {
            Self::Same => return row,
            Self::Interleaved(head) => (head, true),
            Self::Halves(head) => (head, false),
        };
        let (first, at, half) = (row / head * head, row % head, head / 2);
        first
            + if interleaved {
                at % 2 * half + at / 2
            } else {
                at % half * 2 + at / half
            }
    }
}

impl<'a> Stored<'a> {
    /// A tensor of a GGUF file.
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
            order: Order::Same,
        })
    }

    /// A weight of a checkpoint.
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
        Ok(Self {
            name: weight.name.replace(FUSED_GATE[0], FUSED_GATE[1]),
            dims,
            dtype: weight.dtype.into(),
            matrix: Matrix {
                bytes: weight.codes.bytes(file),
                scales: weight.scales(file),
                rows,
                cols,
            },
            order: Order::Same,
        })
    }

    /// All elements.
    pub(super) fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |n, d| n.saturating_mul(*d))
    }

    /// Bytes before, those of scales among them.
    pub(super) fn bytes(&self) -> u64 {
        let scales = self.matrix.scales;
        let beside = scales.map_or(0, |s| s.bytes.len() + s.biases.len());
        (self.matrix.bytes.len() + beside) as u64
    }

    /// Turns the heads of Q and K, matrices and biases, by `order` of a head's rows.
    pub(super) fn turn(&mut self, metadata: &Metadata, order: fn(usize) -> Order) -> Result<()> {
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
                "tensor {}: {rows} rows for {heads} heads",
                self.name
            );
        }
        self.order = order(rows / heads);
        Ok(())
    }
}

/// Refuses two tensors of one name.
pub(super) fn check_names(tensors: &[Stored<'_>]) -> Result<()> {
    let mut seen = HashSet::new();
    match tensors.iter().find(|t| !seen.insert(t.name.as_str())) {
        None => Ok(()),
        Some(twice) => bail!(Format, "two tensors are {}", twice.name),
    }
}

/// The divisors of RoPE's frequencies that stand for a rule in a GGUF file, if the model follows
/// one that files of GGUF do not name: the names of their tensors, and the divisors.
pub(super) fn rope_factors(metadata: &Metadata) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let config = arch::Config::read(metadata)?;
    let family = arch::find(&config.architecture)?;
    let config = config.validate(family)?;
    let rope = &config.ropes[0];
    Ok(match &rope.scaling {
        RopeScaling::Llama3 { .. } | RopeScaling::Proportional { .. } => {
            let factors = worked_out(rope, config.context)?;
            vec![(ROPE_FACTORS, f32_bytes(&factors))]
        }
        RopeScaling::Long { short, long, .. } => {
            vec![(ROPE_LONG, f32_bytes(long)), (ROPE_SHORT, f32_bytes(short))]
        }
        _ => Vec::new(),
    })
}

/// What cosine and sine are multiplied by where a folder leaves it to a rule that readers of GGUF
/// do not know, and its key.
pub(super) fn rope_magnitude(model: &Opened) -> Result<Option<(String, f32)>> {
    if model.folder.is_none() {
        return Ok(None);
    }
    let config = arch::Config::read(&model.file.metadata)?;
    let key = format!("{}.rope.scaling.attn_factor", config.architecture);
    let rule = matches!(config.ropes[0].scaling, RopeScaling::Long { .. });
    let open = model.file.metadata.get(&key).is_none();
    Ok((rule && open).then(|| (key, config.ropes[0].magnitude())))
}

/// The divisors by which every frequency is what the rule makes of it.
fn worked_out(rope: &Rotation, context: u32) -> Result<Vec<f32>> {
    let wanted = rope.freqs(None, context)?;
    let rope = Rotation {
        scaling: RopeScaling::None,
        ..rope.clone()
    };
    let plain = rope.freqs(None, context)?;
    let quotients = plain.iter().zip(&wanted).map(|(p, w)| p / w);
    let mut factors: Vec<f32> = quotients.map(|f| f.min(STILL)).collect();
    // The quotient may be off by the last bit.
    for step in [f32::next_up, |f: f32| f.next_down().next_down()] {
        let found = rope.freqs(Some(&factors), context)?;
        for (factor, (found, wanted)) in factors.iter_mut().zip(found.iter().zip(&wanted)) {
            if found != wanted && *wanted != 0.0 {
                *factor = step(*factor);
            }
        }
    }
    Ok(factors)
}

/// A tensor of [`rope_factors`].
pub(super) fn rope_tensor<'a>(name: &str, factors: &'a [u8]) -> Stored<'a> {
    let cols = factors.len() / DType::F32.facts().bytes;
    Stored {
        name: name.to_string(),
        dims: vec![cols as u64],
        dtype: DType::F32.into(),
        matrix: Matrix {
            bytes: factors,
            scales: None,
            rows: 1,
            cols,
        },
        order: Order::Same,
    }
}

fn size(name: &str, rows: u64, cols: u64) -> Result<[usize; 2]> {
    match (usize::try_from(rows), usize::try_from(cols)) {
        (Ok(rows), Ok(cols)) => Ok([rows, cols]),
        _ => bail!(TooLarge, "tensor {name}: {rows} rows of {cols} columns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_turned_and_turned_back() {
        // Two heads of six rows: their halves are 0 1 2 and 3 4 5.
        let turned: Vec<_> = (0..12).map(|r| Order::Interleaved(6).source(r)).collect();
        assert_eq!(turned, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        for row in 0..12 {
            let there = Order::Halves(6).source(row);
            assert_eq!(Order::Interleaved(6).source(there), row);
            assert_eq!(Order::Same.source(row), row);
        }
    }
}
