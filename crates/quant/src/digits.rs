//! Ternary types, and the scale of a matrix that has only one.

use super::chunk::{CHUNK, Chunk};
use super::matrix::Matrix;
use super::{i2_s, tq1_0, tq2_0};
use tabla_core::dtype::DType;
use tabla_core::scales::f16;

/// Returns the scale of a ternary matrix, if all its values share one; `None` if not, or if the
/// type is not ternary.
pub fn one_scale(dtype: DType, m: &Matrix<'_>) -> Option<f32> {
    match dtype {
        DType::I2S => Some(i2_s::scale(m.bytes)),
        DType::Ternary => {
            let scales = m.scales?;
            let one = scales.group[0] >= m.rows && scales.group[1] >= m.cols;
            one.then(|| scales.at(0, 0, m.cols)[0])
        }
        DType::Tq1_0 => uniform_block_scale(m.bytes, tq1_0::unpack),
        DType::Tq2_0 => uniform_block_scale(m.bytes, tq2_0::unpack),
        _ => None,
    }
}

/// Unpacks a block to values, scales, minima.
type Unpack<const BYTES: usize> =
    fn(&[u8; BYTES], &mut [i8; CHUNK], &mut [f32; 16], &mut [f32; 16]);

/// The common scale of all blocks that are not all zeros; it is at the end of each block.
fn uniform_block_scale<const BYTES: usize>(bytes: &[u8], unpack: Unpack<BYTES>) -> Option<f32> {
    let mut chunk = Chunk::ZERO;
    let mut one = None;
    for block in bytes.as_chunks::<BYTES>().0 {
        let scale = f16(*block.last_chunk()?);
        if one == Some(scale) {
            continue;
        }
        unpack(block, &mut chunk.q, &mut chunk.scale, &mut chunk.min);
        if chunk.q != [0; CHUNK] && one.replace(scale).is_some() {
            return None;
        }
    }
    Some(one.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_row;

    fn scale_of(dtype: DType, row: &[f32]) -> Option<f32> {
        let mut bytes = Vec::new();
        encode_row(dtype, row, &mut bytes);
        let m = Matrix {
            bytes: &bytes,
            scales: None,
            rows: 1,
            cols: row.len(),
        };
        one_scale(dtype, &m)
    }

    #[test]
    fn finds_scale_shared_by_all_blocks() {
        for dtype in [DType::Tq1_0, DType::Tq2_0] {
            let digits = |i: usize| (i % 3) as f32 - 1.0;
            let mut row: Vec<f32> = (0..1024).map(|i| 0.5 * digits(i)).collect();
            // The scale of a block of zeros is ignored.
            row[256..512].fill(0.0);
            assert_eq!(scale_of(dtype, &row), Some(0.5), "{dtype}");
            assert_eq!(scale_of(dtype, &row[256..512]), Some(0.0), "{dtype}");
            row[768..].iter_mut().for_each(|x| *x *= 2.0);
            assert_eq!(scale_of(dtype, &row), None, "{dtype}");
        }
        assert_eq!(scale_of(DType::F32, &[0.5, -0.5]), None);
    }
}
