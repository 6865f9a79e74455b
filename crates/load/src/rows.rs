//! Decodes and re-encodes the rows of a tensor with several threads.

use super::adapter::Merge;
use super::row_order::RowOrder;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::quant::{self, Encode, Matrix, i2_s};
use crate::reserve;
use std::ops::Range;
use std::panic::resume_unwind;

/// Elements per chunk, which a thread encodes between two progress reports.
pub const CHUNK_ELEMENTS: usize = 1 << 21;

/// A tensor as rows of f32.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Name of the tensor, for errors.
    pub name: &'a str,
    /// Storage type.
    pub dtype: DType,
    /// The stored rows.
    pub matrix: Matrix<'a>,
    /// Order of the rows.
    pub order: RowOrder,
    /// Order of the columns.
    pub column_order: RowOrder,
    /// Modules of adapters that are added.
    pub merges: &'a [Merge<'a>],
    /// Factor of each row, after the modules were added; empty if all are 1.
    pub row_factors: &'a [f32],
}

/// Target of an encoding.
#[derive(Debug)]
pub struct Target<'a> {
    /// Storage type.
    pub dtype: DType,
    /// Importance of each column; for stacked matrices, concatenated.
    pub importance: Option<&'a [f32]>,
    /// Number of threads.
    pub threads: usize,
}

/// Encoded rows, with sums over their elements.
#[derive(Debug, Default)]
pub struct EncodedChunk {
    /// The rows in the new type.
    pub bytes: Vec<u8>,
    /// Number of elements.
    pub elements: u64,
    /// Sum of squared errors.
    pub error: f64,
    /// Sum of squared values.
    pub square: f64,
}

impl<'a> Rows<'a> {
    /// Uses the rows of a matrix in their stored order.
    pub fn plain(name: &'a str, dtype: DType, matrix: Matrix<'a>) -> Self {
        Self {
            name,
            dtype,
            matrix,
            order: RowOrder::Same,
            column_order: RowOrder::Same,
            merges: &[],
            row_factors: &[],
        }
    }

    /// Adds these modules of adapters to the rows.
    pub(super) fn merged(self, merges: &'a [Merge<'a>]) -> Self {
        Self { merges, ..self }
    }

    /// Decodes a row, adds the adapter modules and multiplies the row by its factor.
    ///
    /// # Errors
    ///
    /// `Format` for a value that is not finite.
    pub(super) fn read(&self, row: usize, x: &mut [f32]) -> Result<()> {
        let source = self.order.source(row);
        quant::decode_row_of(self.dtype, &self.matrix, source, x);
        for merge in self.merges {
            merge.add_to_row(source, x);
        }
        if let Some(factor) = self.row_factors.get(source) {
            x.iter_mut().for_each(|x| *x *= factor);
        }
        if self.column_order != RowOrder::Same {
            let stored = x.to_vec();
            for (col, x) in x.iter_mut().enumerate() {
                *x = stored[self.column_order.source(col)];
            }
        }
        match x.iter().position(|x| !x.is_finite()) {
            None => Ok(()),
            Some(col) => bail!(
                Format,
                "tensor {}: row {row}, column {col} is {}, expected a finite value",
                self.name,
                x[col]
            ),
        }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        self.matrix.rows
    }

    /// Returns whether type `to` has all values of some rows.
    ///
    /// # Errors
    ///
    /// `Format` for a value that is not finite.
    pub fn are_exact(&self, rows: Range<usize>, to: DType) -> Result<bool> {
        let [mut x, mut y] = [(); 2].map(|()| vec![0.0; self.matrix.cols]);
        let mut bytes = Vec::new();
        for row in rows {
            bytes.clear();
            if to.facts().block > 1 {
                if !self.encode_exact(row, to, &mut bytes) {
                    return Ok(false);
                }
                continue;
            }
            self.read(row, &mut x)?;
            quant::encode_row(to, &x, &mut bytes);
            quant::decode_row(to, &bytes, &mut y);
            if x != y {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Encodes a row whose scales are in separate tensors with the same values, and appends its bytes. Returns
    /// false if type `to` does not have them.
    fn encode_exact(&self, row: usize, to: DType, bytes: &mut Vec<u8>) -> bool {
        let is_unchanged = self.merges.is_empty() && self.row_factors.is_empty();
        let as_stored = is_unchanged && self.column_order == RowOrder::Same;
        let source = self.order.source(row);
        as_stored && quant::encode_exact(self.dtype, &self.matrix, source, to, bytes)
    }

    /// Encodes all rows in order.
    pub fn encode(
        &self,
        to: &Target<'_>,
        sink: &mut dyn FnMut(EncodedChunk) -> Result<()>,
    ) -> Result<()> {
        match quant::encoder(to.dtype) {
            _ if self.matrix.rows == 0 || self.matrix.cols == 0 => Ok(()),
            None if to.dtype == DType::I2S => sink(self.encode_ternary()?),
            encode => self.encode_rows(to, encode, sink),
        }
    }

    /// Encodes rows in chunks, one chunk per thread at a time.
    fn encode_rows(
        &self,
        to: &Target<'_>,
        encode: Option<Encode>,
        sink: &mut dyn FnMut(EncodedChunk) -> Result<()>,
    ) -> Result<()> {
        let Target {
            dtype,
            importance,
            threads,
        } = *to;
        let matrices = importance.map_or(1, |w| w.len() / self.matrix.cols);
        let weights = |row: usize| {
            let matrix = row / (self.matrix.rows / matrices);
            importance.map(|w| &w[matrix * self.matrix.cols..][..self.matrix.cols])
        };
        let rows = (CHUNK_ELEMENTS / self.matrix.cols).clamp(1, self.matrix.rows.div_ceil(threads));
        let starts: Vec<usize> = (0..self.matrix.rows).step_by(rows).collect();
        for starts in starts.chunks(threads) {
            let chunk = |start: usize| {
                let rows = start..(start + rows).min(self.matrix.rows);
                self.chunk(rows, dtype, encode, weights)
            };
            let (first, others) = starts.split_first().expect("chunks are not empty");
            let chunks = std::thread::scope(|scope| {
                let chunk = &chunk;
                let start = |start: &usize| {
                    let start = *start;
                    reserve::thread("tabla-quantize")?.spawn_scoped(scope, move || chunk(start))
                };
                let running = others.iter().map(start).collect::<Result<Vec<_>, _>>()?;
                let own = Ok(chunk(*first));
                let others = running.into_iter().map(|r| r.join());
                Ok(std::iter::once(own).chain(others).collect::<Vec<_>>())
            });
            let failed = |e: std::io::Error| {
                Error::new(ErrorKind::Memory, "cannot create an encoder thread").caused_by(e)
            };
            let chunks = chunks.map_err(failed)?;
            for chunk in chunks {
                sink(chunk.unwrap_or_else(|panic| resume_unwind(panic))?)?;
            }
        }
        Ok(())
    }

    /// Encodes the whole tensor as `I2_S`, whose blocks span rows and share one scale.
    fn encode_ternary(&self) -> Result<EncodedChunk> {
        let mut x = vec![0.0; self.matrix.cols];
        let mut largest = 0.0f32;
        for row in 0..self.matrix.rows {
            self.read(row, &mut x)?;
            largest = x.iter().fold(largest, |m, x| m.max(x.abs()));
        }
        let mut tensor = i2_s::zeros(self.matrix.rows * self.matrix.cols, largest);
        let mut chunk = EncodedChunk::default();
        let mut y = vec![0.0; self.matrix.cols];
        for row in 0..self.matrix.rows {
            self.read(row, &mut x)?;
            i2_s::encode(&mut tensor, row * self.matrix.cols, &x);
            let encoded = Matrix {
                bytes: &tensor,
                scales: None,
                ..self.matrix
            };
            quant::decode_row_of(DType::I2S, &encoded, row, &mut y);
            chunk.add(&x, &y);
        }
        chunk.bytes = tensor;
        Ok(chunk)
    }

    fn chunk<'w>(
        &self,
        rows: Range<usize>,
        to: DType,
        encode: Option<Encode>,
        weights: impl Fn(usize) -> Option<&'w [f32]>,
    ) -> Result<EncodedChunk> {
        let mut chunk = EncodedChunk::default();
        let (mut x, mut y) = (vec![0.0; self.matrix.cols], vec![0.0; self.matrix.cols]);
        for row in rows {
            self.read(row, &mut x)?;
            let start = chunk.bytes.len();
            match encode {
                _ if self.encode_exact(row, to, &mut chunk.bytes) => {}
                Some(encode) => encode(&x, weights(row), &mut chunk.bytes),
                None => bail!(Internal, "no encoder for {to}"),
            }
            quant::decode_row(to, &chunk.bytes[start..], &mut y);
            chunk.add(&x, &y);
            if !chunk.error.is_finite() {
                bail!(
                    Format,
                    "tensor {}: row {row} has values too large for {to}",
                    self.name
                );
            }
        }
        Ok(chunk)
    }
}

impl EncodedChunk {
    /// Adds the errors of a row.
    fn add(&mut self, x: &[f32], y: &[f32]) {
        self.elements += x.len() as u64;
        for (x, y) in x.iter().zip(y) {
            let (x, y) = (f64::from(*x), f64::from(*y));
            self.error += (x - y) * (x - y);
            self.square += x * x;
        }
    }
}
