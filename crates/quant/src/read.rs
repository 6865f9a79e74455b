//! Readers of storage types: rows are read chunk by chunk, at any instruction set.

use super::bytes::scale_bytes;
use super::chunk::{CHUNK, Chunk};
use super::matrix::Matrix;

/// A storage type whose chunks are small integers with scales.
pub trait Ints {
    /// Whether its chunks have minima.
    const MIN: bool;
    /// Unpacks the chunk of a row that starts at element `first`, a multiple of [`CHUNK`]. If the
    /// row ends earlier, the rest of `out` is unchanged.
    fn unpack(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk);
}

/// A storage type whose chunks decode to floats.
pub trait Floats {
    /// Decodes the chunk of a row that starts at element `first`; see [`Ints::unpack`].
    fn decode(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]);
}

impl<T: Ints> Floats for T {
    #[inline(always)]
    fn decode(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
        let mut chunk = Chunk::ZERO;
        T::unpack(m, row, first, &mut chunk);
        let (q, out) = (chunk.q.as_chunks().0, out.as_chunks_mut().0);
        // In halves: for a loop over all sixteen groups, the compiler would vectorize across them
        // and scatter.
        for half in 0..2 {
            for g in 8 * half..8 * half + 8 {
                let product = scale_bytes(chunk.scale[g], q[g]);
                // Without minima nothing is added, so that -0.0 keeps its sign.
                out[g] = if T::MIN {
                    product.map(|x| x + chunk.min[g])
                } else {
                    product
                };
            }
        }
    }
}

/// Visitor for the reader of a storage type.
pub trait Visit {
    /// Result of the visitor.
    type Out;
    /// Called for a type that can be read as integers.
    fn ints<T: Ints>(self) -> Self::Out;
    /// Called for a type that can only be read as floats.
    fn floats<T: Floats>(self) -> Self::Out;
}
