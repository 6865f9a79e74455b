//! Codes with a scale and a zero point per group of columns: `x = scale (q - zero)`.
//!
//! They become affine codes, `x = scale q + bias`. The codes and the scales are those of the file; a bias is
//! `-scale zero`, in the type of the scales if all biases are exact in it, otherwise in F32. What affine codes
//! cannot represent is decoded to F32: groups of scattered columns, and biases that are not exact in F32.

use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::Directory;
use crate::memory::reserve;
use crate::quant::{self, encode_row};
use crate::weight::{Data, Scaling, Weight};

/// Types of affine codes, by their bits.
const AFFINE: [(u32, DType); 6] = [
    (2, DType::Affine2),
    (3, DType::Affine3),
    (4, DType::Affine4),
    (5, DType::Affine5),
    (6, DType::Affine6),
    (8, DType::Affine8),
];

/// Minimum number of consecutive columns of a group: kernels read the scales of whole blocks.
const RUN: usize = 32;

/// A matrix of codes with a scale and a zero point per group of columns.
pub(super) struct GroupCodes<'a> {
    pub(super) file: &'a Directory,
    /// GGUF name.
    pub(super) name: String,
    pub(super) bits: u32,
    pub(super) rows: u32,
    pub(super) cols: u32,
    /// Codes of each row as a bit stream that starts at the lowest bit of a byte.
    pub(super) codes: Data,
    pub(super) groups: Groups,
}

/// Scales and zero points of the groups of a matrix, row by row.
pub(super) struct Groups {
    /// Index of the tensor with the scales.
    pub(super) tensor: usize,
    /// Type of the scales.
    pub(super) float: DType,
    pub(super) scales: Vec<f32>,
    pub(super) zeros: Zeros,
    /// Columns per group.
    pub(super) width: usize,
    /// Group of each column; `None` if groups are consecutive columns.
    pub(super) order: Option<Vec<u32>>,
}

/// Zero points of the groups.
#[derive(Clone)]
pub(super) enum Zeros {
    /// The same for all.
    All(u16),
    /// One per scale.
    Each(Vec<u16>),
}

impl Zeros {
    /// Returns one zero point if all are equal.
    pub(super) fn of(zeros: Vec<u16>) -> Self {
        match zeros.first() {
            Some(first) if zeros.iter().all(|zero| zero == first) => Self::All(*first),
            _ => Self::Each(zeros),
        }
    }

    fn at(&self, group: usize) -> u16 {
        match self {
            Self::All(zero) => *zero,
            Self::Each(zeros) => zeros[group],
        }
    }
}

impl GroupCodes<'_> {
    /// Builds the weight.
    ///
    /// # Errors
    ///
    /// `Format` for a scale that is not finite, `Unsupported` for rows that are not whole blocks, `Memory` if a
    /// decoded matrix does not fit into free memory.
    pub(super) fn weight(mut self) -> Result<Weight> {
        let tensor = &self.file.tensors[self.codes.tensor].name;
        let affine = AFFINE.iter().find(|(bits, _)| *bits == self.bits);
        let Some(&(_, dtype)) = affine else {
            bail!(
                Unsupported,
                "tensor {tensor}: codes of {} bits, expected 2, 3, 4, 5, 6 or 8",
                self.bits
            );
        };
        let (cols, block) = (self.cols as usize, dtype.facts().block);
        if !cols.is_multiple_of(block) {
            bail!(
                Unsupported,
                "tensor {tensor}: rows of {cols} columns, expected a multiple of {block}"
            );
        }
        if let Some(i) = self.groups.scales.iter().position(|s| !s.is_finite()) {
            bail!(
                Format,
                "tensor {}: scale {i} is {}, expected a finite number",
                self.file.tensors[self.groups.tensor].name,
                self.groups.scales[i]
            );
        }
        if let Some(width) = self.groups.run(cols) {
            self.groups.split(width, cols);
            let biases = self.groups.biases();
            if let Some((float, biases)) = biases {
                return Ok(self.affine(dtype, float, &biases));
            }
        }
        self.decoded()
    }

    fn affine(self, dtype: DType, float: DType, biases: &[f32]) -> Weight {
        let Groups { tensor, width, .. } = self.groups;
        let encoded = |values: &[f32]| {
            let mut bytes = Vec::with_capacity(values.len() * float.facts().bytes);
            encode_row(float, values, &mut bytes);
            Data::computed(tensor, bytes)
        };
        Weight {
            name: self.name,
            dtype,
            rows: self.rows,
            cols: self.cols,
            stack: 1,
            codes: self.codes,
            scales: Some(Scaling {
                float,
                scales: encoded(&self.groups.scales),
                biases: Some(encoded(biases)),
                group: [1, width],
            }),
        }
    }

    /// Decodes the matrix to F32: each element is the product of a scale and an integer, rounded once.
    fn decoded(self) -> Result<Weight> {
        let (rows, cols) = (self.rows as usize, self.cols as usize);
        let bytes = u64::from(self.rows)
            .saturating_mul(self.cols.into())
            .saturating_mul(4);
        let tensor = &self.file.tensors[self.codes.tensor].name;
        let mut decoded = reserve(tensor, DType::F32, bytes)?;
        let codes = self.codes.bytes(self.file);
        let row_bytes = cols * self.bits as usize / 8;
        let own = &self.groups;
        let per_row = own.scales.len() / rows.max(1);
        for row in 0..rows {
            let codes = &codes[row * row_bytes..][..row_bytes];
            for col in 0..cols {
                let group = match &own.order {
                    Some(order) => order[col] as usize,
                    None => col / own.width,
                };
                let group = row * per_row + group;
                let q = i32::from(field(codes, col, self.bits)) - i32::from(own.zeros.at(group));
                let x = own.scales[group] * q as f32;
                decoded.extend_from_slice(&x.to_le_bytes());
            }
        }
        Ok(Weight {
            name: self.name,
            dtype: DType::F32,
            rows: self.rows,
            cols: self.cols,
            stack: 1,
            codes: Data::computed(self.codes.tensor, decoded),
            scales: None,
        })
    }
}

impl Groups {
    /// Returns the number of aligned consecutive columns that always share a group; `None` if it is too
    /// small for a kernel.
    fn run(&self, cols: usize) -> Option<usize> {
        let Some(order) = &self.order else {
            let whole = self.width >= cols || self.width.is_multiple_of(RUN);
            return whole.then_some(self.width);
        };
        let in_order = |(col, group): (usize, &u32)| col / self.width == *group as usize;
        let whole = self.width >= cols || self.width.is_multiple_of(RUN);
        if whole && order.iter().enumerate().all(in_order) {
            return Some(self.width);
        }
        let shares = |width: &usize| {
            let mut runs = order.chunks(*width);
            runs.all(|run| run.iter().all(|group| *group == run[0]))
        };
        [128, 64, RUN].into_iter().find(shares)
    }

    /// Repeats scales and zero points, so that groups are `width` consecutive columns.
    fn split(&mut self, width: usize, cols: usize) {
        let Some(order) = self.order.take() else {
            return;
        };
        let groups = cols.div_ceil(self.width).max(1);
        let runs: Vec<usize> = order.iter().step_by(width).map(|g| *g as usize).collect();
        let rows = 0..self.scales.len() / groups;
        let from = |row: usize| runs.iter().map(move |group| row * groups + group);
        let sources: Vec<usize> = rows.flat_map(from).collect();
        if let Zeros::Each(zeros) = &mut self.zeros {
            *zeros = sources.iter().map(|i| zeros[*i]).collect();
        }
        self.scales = sources.iter().map(|i| self.scales[*i]).collect();
        self.width = width;
    }

    /// Returns the biases and the type that has scales and biases exactly; `None` if there is no such type.
    fn biases(&self) -> Option<(DType, Vec<f32>)> {
        let scales = self.scales.iter().enumerate();
        let biases = scales.map(|(i, scale)| {
            let zero = self.zeros.at(i);
            let bias = -(scale * f32::from(zero));
            // The product of 24 and 16 bits is exact in f64.
            (f64::from(bias) == -(f64::from(*scale) * f64::from(zero))).then_some(bias)
        });
        let biases: Vec<f32> = biases.collect::<Option<_>>()?;
        let mut bytes = Vec::new();
        encode_row(self.float, &biases, &mut bytes);
        let mut own = vec![0.0; biases.len()];
        quant::decode_row(self.float, &bytes, &mut own);
        let float = if own == biases {
            self.float
        } else {
            DType::F32
        };
        Some((float, biases))
    }
}

/// Returns field `index` of a stream of fields of `bits` bits, at most 8.
pub(super) fn field(stream: &[u8], index: usize, bits: u32) -> u16 {
    let bit = index * bits as usize;
    let next = stream.get(bit / 8 + 1).copied().unwrap_or(0);
    let word = u16::from_le_bytes([stream[bit / 8], next]);
    word >> (bit % 8) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(float: DType, scales: &[f32], zeros: Zeros) -> Groups {
        Groups {
            tensor: 0,
            float,
            scales: scales.to_vec(),
            zeros,
            width: 64,
            order: None,
        }
    }

    #[test]
    fn biases_keep_the_type_of_scales_if_exact() {
        // 1 + 2^-10 has all bits of an f16.
        let scale = 1.0 + 1.0 / 1024.0;
        let float = |own: DType, zero: u16| {
            let biases = groups(own, &[scale], Zeros::Each(vec![zero])).biases();
            biases.map(|(float, biases)| (float, biases[0]))
        };
        assert_eq!(float(DType::F16, 8), Some((DType::F16, -8.0 * scale)));
        assert_eq!(float(DType::F16, 7), Some((DType::F32, -7.0 * scale)));
        assert_eq!(float(DType::F16, 0), Some((DType::F16, 0.0)));
        // All 24 bits of an f32 are set.
        let full = 1.0 + (1.0 - f32::EPSILON);
        let biases = |zero| groups(DType::F32, &[full], Zeros::All(zero)).biases();
        assert_eq!(biases(128), Some((DType::F32, vec![-128.0 * full])));
        assert_eq!(biases(7), None);
    }

    #[test]
    fn groups_of_blocks_in_another_order_are_split() {
        let order: Vec<u32> = [1, 0, 0, 1].into_iter().flat_map(|g| [g; 32]).collect();
        let mut own = groups(
            DType::F16,
            &[1.0, 2.0, 3.0, 4.0],
            Zeros::Each(vec![5, 6, 7, 8]),
        );
        own.order = Some(order);
        assert_eq!(own.run(128), Some(32));
        own.split(32, 128);
        assert_eq!(own.scales, [2.0, 1.0, 1.0, 2.0, 4.0, 3.0, 3.0, 4.0]);
        let zeros: Vec<u16> = (0..8).map(|i| own.zeros.at(i)).collect();
        assert_eq!((zeros, own.width), (vec![6, 5, 5, 6, 8, 7, 7, 8], 32));
    }

    #[test]
    fn scattered_columns_have_no_run() {
        let mut own = groups(DType::F16, &[1.0, 2.0], Zeros::All(8));
        own.order = Some((0..128).map(|col| col % 2).collect());
        assert_eq!(own.run(128), None);
        own.order = Some((0..128).map(|col| col / 64).collect());
        assert_eq!(own.run(128), Some(64));
    }

    #[test]
    fn fields_may_span_bytes() {
        let codes = [5u64, 0, 7, 3, 1, 6, 2, 4];
        let all = codes
            .iter()
            .enumerate()
            .fold(0, |all, (i, code)| all | code << (3 * i));
        let stream = &all.to_le_bytes()[..3];
        for (i, code) in codes.iter().enumerate() {
            assert_eq!(u64::from(field(stream, i, 3)), *code, "{i}");
        }
        assert_eq!(field(&[0x12, 0xff], 1, 8), 0xff);
    }
}
