//! Weights that files hold in another shape: several as one, one as several, transposed.

use super::weight::{Data, Scaling, Weight, f32_bytes};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::Directory;
use std::ops::Range;

impl Weight {
    /// Some rows of this matrix, or elements of this vector, under another name: the same bytes,
    /// not a copy.
    ///
    /// # Errors
    ///
    /// `Format` for rows that are not there, `Unsupported` for a type whose codes or scales run
    /// over rows.
    pub(super) fn stretch(&self, name: String, rows: Range<u32>, file: &Directory) -> Result<Self> {
        // A vector has an element for each row of the matrix that it belongs to.
        let [all, width] = match self.rows {
            1 => [self.cols, 1],
            _ => [self.rows, self.cols],
        };
        let tensor = self.tensor(file);
        if rows.start > rows.end || rows.end > all {
            bail!(
                Format,
                "tensor {tensor} has {all} rows, wanted {} to {} of them",
                rows.start,
                rows.end
            );
        }
        let facts = self.dtype.facts();
        let row = self.dtype.bytes(width.into());
        let apart = facts.tail == 0 && self.dtype != DType::Ternary;
        let Some(row) = row.filter(|_| apart) else {
            bail!(
                Unsupported,
                "tensor {tensor} is {}, whose codes run over rows: it holds several modules and \
                 cannot be taken apart",
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
            // The whole is in memory, so that its parts can be counted.
            codes: self
                .codes
                .stretch(bytes(usize::try_from(row).unwrap_or(usize::MAX))),
            scales,
        })
    }

    /// The scales of some rows.
    fn scales_of(&self, all: &Scaling, rows: Range<u32>, file: &Directory) -> Result<Scaling> {
        let [group, cols] = all.group;
        if group >= self.rows as usize {
            return Ok(all.clone());
        }
        let [from, to] = [rows.start, rows.end].map(|row| row as usize);
        if !from.is_multiple_of(group) || !to.is_multiple_of(group) && rows.end != self.rows {
            bail!(
                Unsupported,
                "tensor {}: rows {from} to {to} share scales with others: {group} rows have one",
                self.tensor(file)
            );
        }
        let row = (self.cols as usize).div_ceil(cols) * all.float.facts().bytes;
        let bytes = from / group * row..to.div_ceil(group) * row;
        Ok(Scaling {
            scales: all.scales.stretch(bytes.clone()),
            biases: all.biases.as_ref().map(|biases| biases.stretch(bytes)),
            ..*all
        })
    }

    /// The matrices one behind the other, as a copy.
    ///
    /// # Errors
    ///
    /// `Format` for matrices of different types or shapes, `Unsupported` where their codes or
    /// scales do not go one behind the other.
    pub(super) fn stacked(name: String, parts: &[Self], file: &Directory) -> Result<Self> {
        let Some(first) = parts.first() else {
            bail!(Internal, "{name} of no parts");
        };
        if let Some(other) = parts.iter().find(|part| part.facts() != first.facts()) {
            bail!(
                Format,
                "tensor {} is {} [{}, {}] and {} is {} [{}, {}] or scaled in another way: \
                 wanted all experts alike",
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
        let one = first.rows as usize;
        let group = first
            .scales
            .as_ref()
            .map_or(1, |s| s.group[0].min(one).max(1));
        let count = u32::try_from(parts.len()).ok();
        let rows = count.and_then(|n| n.checked_mul(first.rows));
        let apart = first.dtype.facts().tail == 0 && first.dtype != DType::Ternary;
        let Some((count, rows)) = count
            .zip(rows)
            .filter(|_| apart && one.is_multiple_of(group))
        else {
            bail!(
                Unsupported,
                "tensor {}: {} experts of {one} rows of {} do not go one behind the other",
                first.tensor(file),
                parts.len(),
                first.dtype
            );
        };
        // No more bytes than the file has: every part is a tensor or a stretch of its own.
        let joined = |data: &dyn Fn(&'_ Self) -> Option<&'_ Data>| {
            let found: Vec<&Data> = parts.iter().filter_map(data).collect();
            let bytes = found
                .iter()
                .map(|d| d.bytes(file))
                .collect::<Vec<_>>()
                .concat();
            found.first().map(|data| Data::computed(data.tensor, bytes))
        };
        let codes = joined(&|w| Some(&w.codes)).unwrap_or_else(|| first.codes.clone());
        let scales = first.scales.as_ref().and_then(|scaling| {
            Some(Scaling {
                float: scaling.float,
                scales: joined(&|w| Some(&w.scales.as_ref()?.scales))?,
                biases: joined(&|w| w.scales.as_ref()?.biases.as_ref()),
                group: [group, scaling.group[1]],
            })
        });
        Ok(Self {
            name,
            dtype: first.dtype,
            rows,
            cols: first.cols,
            stack: count,
            codes,
            scales,
        })
    }

    /// What matrices share that lie one behind the other.
    fn facts(&self) -> impl PartialEq + use<> {
        let scaling = self.scales.as_ref();
        let scaling = scaling.map(|s| (s.float, s.group, s.biases.is_some()));
        (self.dtype, self.rows, self.cols, scaling)
    }

    /// Rows as columns, as a copy.
    ///
    /// # Errors
    ///
    /// `Unsupported` for types in which elements share bytes or scales.
    pub(super) fn transposed(self, file: &Directory) -> Result<Self> {
        let facts = self.dtype.facts();
        if facts.block != 1 || self.scales.is_some() {
            bail!(
                Unsupported,
                "tensor {} is {} and stands transposed, which is read of plain numbers alone",
                self.tensor(file),
                self.dtype
            );
        }
        let (bytes, element) = (self.codes.bytes(file), facts.bytes);
        let [rows, cols] = [self.rows, self.cols].map(|n| n as usize);
        let mut turned = Vec::with_capacity(bytes.len());
        for col in 0..cols {
            for row in 0..rows {
                turned.extend(&bytes[(row * cols + col) * element..][..element]);
            }
        }
        Ok(Self {
            rows: self.cols,
            cols: self.rows,
            codes: Data::computed(self.codes.tensor, turned),
            ..self
        })
    }

    /// One more than each element of a vector.
    ///
    /// # Errors
    ///
    /// `Unsupported` for what is not F32, as vectors are here.
    pub(super) fn plus_one(self, file: &Directory) -> Result<Self> {
        if self.dtype != DType::F32 {
            bail!(
                Unsupported,
                "tensor {} is {}, wanted a norm of plain numbers",
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

    /// The name of its tensor in the file.
    pub(super) fn tensor<'a>(&self, file: &'a Directory) -> &'a str {
        &file.tensors[self.codes.tensor].name
    }
}
