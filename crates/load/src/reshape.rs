//! Reshapes weights: row slices, stacked experts, transposed matrices, shifted norms.

use super::weight::{Data, Scaling, Weight, f32_bytes};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::Directory;
use std::ops::Range;

impl Weight {
    /// Returns rows of this matrix, or elements of this vector, under another name, without a copy.
    ///
    /// # Errors
    ///
    /// `Format` for rows out of range, `Unsupported` for a type whose codes or scales are shared
    /// across rows.
    pub(super) fn slice_rows(
        &self,
        name: String,
        rows: Range<u32>,
        file: &Directory,
    ) -> Result<Self> {
        // A bias vector has an element for each row of its matrix.
        let [row_count, width] = match self.rows {
            1 => [self.cols, 1],
            _ => [self.rows, self.cols],
        };
        let tensor = self.tensor(file);
        if rows.start > rows.end || rows.end > row_count {
            bail!(
                Format,
                "tensor {tensor} has {row_count} rows, expected rows {} to {}",
                rows.start,
                rows.end
            );
        }
        let facts = self.dtype.facts();
        let row = self.dtype.bytes(width.into());
        let row_packed = facts.tail == 0 && self.dtype != DType::Ternary;
        let Some(row) = row.filter(|_| row_packed) else {
            bail!(
                Unsupported,
                "tensor {tensor} is {}, which is packed across rows: cannot split the fused tensor",
                self.dtype
            );
        };
        let scales = match &self.scales {
            Some(scaling) => Some(self.scales_of(scaling, rows.clone(), file)?),
            None => None,
        };
        let bytes =
            |row_bytes: usize| rows.start as usize * row_bytes..rows.end as usize * row_bytes;
        let count = rows.end - rows.start;
        let [rows, cols] = if self.rows == 1 {
            [1, count]
        } else {
            [count, width]
        };
        Ok(Self {
            name,
            dtype: self.dtype,
            rows,
            cols,
            stack: 1,
            // The whole tensor is in memory, so the length fits usize.
            codes: self
                .codes
                .slice(bytes(usize::try_from(row).unwrap_or(usize::MAX))),
            scales,
        })
    }

    /// Returns the scales of some rows.
    fn scales_of(&self, all: &Scaling, rows: Range<u32>, file: &Directory) -> Result<Scaling> {
        let [group, cols] = all.group;
        if group >= self.rows as usize {
            return Ok(all.clone());
        }
        let [from, to] = [rows.start, rows.end].map(|row| row as usize);
        // Rows of one group share its scale, wherever they start.
        let single = from / group == to.saturating_sub(1) / group;
        let whole =
            from.is_multiple_of(group) && (to.is_multiple_of(group) || rows.end == self.rows);
        if !single && !whole {
            bail!(
                Unsupported,
                "tensor {}: cannot split rows {from} to {to}: a scale covers {group} rows",
                self.tensor(file)
            );
        }
        let row = (self.cols as usize).div_ceil(cols) * all.float.facts().bytes;
        let bytes = from / group * row..to.div_ceil(group) * row;
        Ok(Scaling {
            scales: all.scales.slice(bytes.clone()),
            biases: all.biases.as_ref().map(|biases| biases.slice(bytes)),
            ..*all
        })
    }

    /// Concatenates matrices into one stacked weight, as a copy.
    ///
    /// # Errors
    ///
    /// `Format` for different types or shapes, `Unsupported` for a type that cannot be concatenated.
    pub(super) fn stacked(name: String, parts: &[Self], file: &Directory) -> Result<Self> {
        let Some(first) = parts.first() else {
            bail!(Internal, "{name}: no matrices to stack");
        };
        if let Some(other) = parts.iter().find(|part| part.layout() != first.layout()) {
            bail!(
                Format,
                "experts or other matrices of a stack differ in type, shape or scales: tensor {} is {} [{}, {}], {} is {} [{}, {}]",
                first.tensor(file),
                first.dtype,
                first.rows,
                first.cols,
                other.tensor(file),
                other.dtype,
                other.rows,
                other.cols
            );
        }
        let expert_rows = first.rows as usize;
        let group = first
            .scales
            .as_ref()
            .map_or(1, |s| s.group[0].min(expert_rows).max(1));
        let count = u32::try_from(parts.len()).ok();
        let rows = count.and_then(|n| n.checked_mul(first.rows));
        let row_packed = first.dtype.facts().tail == 0 && first.dtype != DType::Ternary;
        let Some((count, rows)) = count
            .zip(rows)
            .filter(|_| row_packed && expert_rows.is_multiple_of(group))
        else {
            bail!(
                Unsupported,
                "tensor {}: cannot stack {} experts of {expert_rows} rows of {}",
                first.tensor(file),
                parts.len(),
                first.dtype
            );
        };
        let mut stacked = Self::joined(name, parts, file);
        if let Some(scaling) = &mut stacked.scales {
            scaling.group[0] = group;
        }
        Ok(Self {
            rows,
            stack: count,
            ..stacked
        })
    }

    /// Returns rows of this matrix, or elements of this vector, in the order of `ranges`, as a copy.
    ///
    /// # Errors
    ///
    /// As for [`slice_rows`](Self::slice_rows).
    pub(super) fn gathered(
        &self,
        name: &str,
        ranges: impl Iterator<Item = Range<u32>>,
        file: &Directory,
    ) -> Result<Self> {
        let parts = ranges.map(|rows| self.slice_rows(name.to_string(), rows, file));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let count = |of: fn(&Self) -> u32| parts.iter().map(of).sum();
        let (rows, cols) = match self.rows {
            1 => (1, count(|part| part.cols)),
            _ => (count(|part| part.rows), self.cols),
        };
        let mut joined = Self::joined(name.to_string(), &parts, file);
        if let (Some(joined), Some(own)) = (&mut joined.scales, &self.scales)
            && own.group[0] >= self.rows as usize
        {
            joined.clone_from(own);
        }
        Ok(Self {
            rows,
            cols,
            ..joined
        })
    }

    /// Concatenates the bytes of at least one matrix of the same type, whose shape is that of the first.
    fn joined(name: String, parts: &[Self], file: &Directory) -> Self {
        let first = &parts[0];
        // Bounded by the file size: the parts do not overlap.
        let joined = |data: &dyn Fn(&'_ Self) -> Option<&'_ Data>| {
            let all: Vec<&Data> = parts.iter().filter_map(data).collect();
            let bytes = all
                .iter()
                .map(|d| d.bytes(file))
                .collect::<Vec<_>>()
                .concat();
            all.first().map(|data| Data::computed(data.tensor, bytes))
        };
        let codes = joined(&|w| Some(&w.codes)).unwrap_or_else(|| first.codes.clone());
        let scales = first.scales.as_ref().and_then(|scaling| {
            Some(Scaling {
                float: scaling.float,
                scales: joined(&|w| Some(&w.scales.as_ref()?.scales))?,
                biases: joined(&|w| w.scales.as_ref()?.biases.as_ref()),
                group: scaling.group,
            })
        });
        Self {
            name,
            dtype: first.dtype,
            rows: first.rows,
            cols: first.cols,
            stack: 1,
            codes,
            scales,
        }
    }

    /// Returns the properties that stacked matrices must share.
    fn layout(&self) -> impl PartialEq + use<> {
        let scaling = self.scales.as_ref();
        let scaling = scaling.map(|s| (s.float, s.group, s.biases.is_some()));
        (self.dtype, self.rows, self.cols, scaling)
    }

    /// Transposes the matrix, as a copy.
    ///
    /// # Errors
    ///
    /// `Unsupported` for quantized types.
    pub(super) fn transposed(self, file: &Directory) -> Result<Self> {
        let facts = self.dtype.facts();
        if facts.block != 1 || self.scales.is_some() {
            bail!(
                Unsupported,
                "tensor {} is {}: cannot transpose a quantized tensor",
                self.tensor(file),
                self.dtype
            );
        }
        let (bytes, element) = (self.codes.bytes(file), facts.bytes);
        let one = self.rows / self.stack.max(1);
        let Some(rows_of_all) = self.cols.checked_mul(self.stack) else {
            bail!(
                TooLarge,
                "tensor {}: {} matrices of {} rows do not fit 32 bits",
                self.tensor(file),
                self.stack,
                self.cols
            );
        };
        let [rows, cols] = [one, self.cols].map(|n| n as usize);
        let mut transposed = Vec::with_capacity(bytes.len());
        for matrix in bytes.chunks_exact((rows * cols * element).max(1)) {
            for col in 0..cols {
                for row in 0..rows {
                    transposed.extend(&matrix[(row * cols + col) * element..][..element]);
                }
            }
        }
        Ok(Self {
            rows: rows_of_all,
            cols: one,
            codes: Data::computed(self.codes.tensor, transposed),
            ..self
        })
    }

    /// Adds one to each element of a vector.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a type other than F32; float vectors are F32 after loading.
    pub(super) fn plus_one(self, file: &Directory) -> Result<Self> {
        if self.dtype != DType::F32 {
            bail!(
                Unsupported,
                "tensor {} is {}, expected a norm of an unquantized type",
                self.tensor(file),
                self.dtype
            );
        }
        let (floats, _) = self.codes.bytes(file).as_chunks();
        let sums: Vec<f32> = floats
            .iter()
            .map(|b| f32::from_le_bytes(*b) + 1.0)
            .collect();
        Ok(Self {
            codes: Data::computed(self.codes.tensor, f32_bytes(&sums)),
            ..self
        })
    }

    /// Returns the name of its tensor in the file.
    pub fn tensor<'a>(&self, file: &'a Directory) -> &'a str {
        &file.tensors[self.codes.tensor].name
    }
}
