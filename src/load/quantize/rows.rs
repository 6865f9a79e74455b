//! The rows of a tensor, decoded and encoded anew by several threads.

use super::stored::{Order, Stored};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::quant::{self, Encode, Matrix, i2_s};
use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;

/// Elements that a thread encodes between two reports.
const PIECE: usize = 1 << 21;

/// A tensor as rows of f32.
pub(super) struct Rows<'a> {
    name: &'a str,
    dtype: DType,
    matrix: Matrix<'a>,
    order: Order,
}

/// What rows become.
pub(super) struct Target<'a> {
    pub(super) dtype: DType,
    /// The importance of each column; of a tensor of several matrices, one after the other.
    pub(super) importance: Option<&'a [f32]>,
    pub(super) threads: usize,
}

/// Some encoded rows, and sums over their elements.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) elements: u64,
    /// Of the squares of the errors.
    pub(super) error: f64,
    /// Of the squares of the numbers.
    pub(super) square: f64,
}

impl<'a> Rows<'a> {
    pub(super) fn of(tensor: &'a Stored<'a>) -> Result<Self> {
        let Some(dtype) = tensor.dtype.known() else {
            bail!(
                Unsupported,
                "tensor {} is {}, which is not decoded here",
                tensor.name,
                tensor.dtype
            );
        };
        Ok(Self {
            order: tensor.order,
            ..Self::plain(&tensor.name, dtype, tensor.matrix)
        })
    }

    /// The rows of a matrix in their order.
    pub(super) fn plain(name: &'a str, dtype: DType, matrix: Matrix<'a>) -> Self {
        Self {
            name,
            dtype,
            matrix,
            order: Order::Same,
        }
    }

    /// Decodes a row; all its numbers are finite.
    pub(super) fn read(&self, row: usize, x: &mut [f32]) -> Result<()> {
        quant::decode_row_of(self.dtype, &self.matrix, self.order.source(row), x);
        match x.iter().position(|x| !x.is_finite()) {
            None => Ok(()),
            Some(col) => bail!(
                Format,
                "tensor {}: row {row}, column {col} is {}",
                self.name,
                x[col]
            ),
        }
    }

    /// Encodes all rows in order.
    pub(super) fn encode(
        &self,
        to: &Target<'_>,
        take: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        match quant::encoder(to.dtype) {
            _ if self.matrix.rows == 0 || self.matrix.cols == 0 => Ok(()),
            Some(encode) => self.encode_rows(to, encode, take),
            None if to.dtype == DType::I2S => take(self.encode_ternary()?),
            None => bail!(Internal, "no encoder of {}", to.dtype),
        }
    }

    /// Encodes rows, so many pieces at a time as there are threads.
    fn encode_rows(
        &self,
        to: &Target<'_>,
        encode: Encode,
        take: &mut dyn FnMut(Piece) -> Result<()>,
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
        let rows = (PIECE / self.matrix.cols).clamp(1, self.matrix.rows.div_ceil(threads));
        let starts: Vec<usize> = (0..self.matrix.rows).step_by(rows).collect();
        for starts in starts.chunks(threads) {
            let pieces = std::thread::scope(|scope| {
                let work = |start: &usize| {
                    let rows = *start..(start + rows).min(self.matrix.rows);
                    let thread = std::thread::Builder::new().name("tabla-quantize".to_string());
                    thread.spawn_scoped(scope, move || self.piece(rows, dtype, encode, weights))
                };
                let running = starts.iter().map(work).collect::<Result<Vec<_>, _>>()?;
                let pieces = running.into_iter().map(|r| r.join());
                Ok(pieces.collect::<Vec<_>>())
            });
            let failed = |e: std::io::Error| {
                Error::new(ErrorKind::Memory, "no thread to encode rows").caused_by(e)
            };
            let pieces = pieces.map_err(failed)?;
            for piece in pieces {
                take(piece.unwrap_or_else(|panic| resume_unwind(panic))?)?;
            }
        }
        Ok(())
    }

    /// Encodes the whole tensor: its blocks run over the rows, and all have one scale.
    fn encode_ternary(&self) -> Result<Piece> {
        let mut x = vec![0.0; self.matrix.cols];
        let mut largest = 0.0f32;
        for row in 0..self.matrix.rows {
            self.read(row, &mut x)?;
            largest = x.iter().fold(largest, |m, x| m.max(x.abs()));
        }
        let mut tensor = i2_s::zeros(self.matrix.rows * self.matrix.cols, largest);
        let mut piece = Piece::default();
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
            piece.add(&x, &y);
        }
        piece.bytes = tensor;
        Ok(piece)
    }

    fn piece<'w>(
        &self,
        rows: Range<usize>,
        to: DType,
        encode: Encode,
        weights: impl Fn(usize) -> Option<&'w [f32]>,
    ) -> Result<Piece> {
        let mut piece = Piece::default();
        let (mut x, mut y) = (vec![0.0; self.matrix.cols], vec![0.0; self.matrix.cols]);
        for row in rows {
            self.read(row, &mut x)?;
            let start = piece.bytes.len();
            encode(&x, weights(row), &mut piece.bytes);
            quant::decode_row(to, &piece.bytes[start..], &mut y);
            piece.add(&x, &y);
            if !piece.error.is_finite() {
                bail!(
                    Format,
                    "tensor {}: row {row} has numbers too large for {to}",
                    self.name
                );
            }
        }
        Ok(piece)
    }
}

/// Hands on the bytes of a tensor as they are, or its rows in another order.
pub(super) fn copy(tensor: &Stored<'_>, take: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
    let Matrix {
        bytes, rows, cols, ..
    } = tensor.matrix;
    let elements = |bytes_taken: usize| {
        tensor.elements().saturating_mul(bytes_taken as u64) / bytes.len().max(1) as u64
    };
    if tensor.order == Order::Same {
        return bytes.chunks(PIECE).try_for_each(|part| {
            take(Piece {
                bytes: part.to_vec(),
                elements: elements(part.len()),
                ..Piece::default()
            })
        });
    }
    let order: Vec<usize> = (0..rows).map(|row| tensor.order.source(row)).collect();
    order
        .chunks(PIECE.div_ceil(cols.max(1)))
        .try_for_each(|rows| {
            let mut piece = Piece::default();
            for row in rows {
                piece.bytes.extend_from_slice(tensor.matrix.row(*row));
            }
            piece.elements = elements(piece.bytes.len());
            take(piece)
        })
}

impl Piece {
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

/// So many threads; 0 is every core.
pub(super) fn threads(wanted: u32) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        n => n as usize,
    }
}
