//! `I2_S`: ternary digits of 2 bits over the whole tensor, and behind them one f32 scale
//! (`quantize_i2_s` of `BitNet`'s ggml-bitnet-mad.cpp).
//!
//! 32 bytes hold 128 elements of the flat tensor, the first 32 in the top bits, so a row may begin
//! within a block. The scale is the first number of a tail of 32 bytes whose others mean nothing.

use super::each;
use crate::dtype::DType;
use crate::error::{Result, bail};
use bytemuck::cast_mut;

/// Elements of a block.
pub const ELEMENTS: usize = 128;
/// Bytes of a block.
pub const BYTES: usize = 32;
/// Bytes behind the blocks.
pub const TAIL_BYTES: usize = 32;

/// The digits of a block: -1, 0 or 1 (a code of 3 is no digit and becomes 2).
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS]) {
    let [a, b, c, d]: &mut [[i8; 32]; 4] = cast_mut(q);
    each(a, block, |b| (b >> 6).wrapping_sub(1));
    each(b, block, |b| (b >> 4 & 3).wrapping_sub(1));
    each(c, block, |b| (b >> 2 & 3).wrapping_sub(1));
    each(d, block, |b| (b & 3).wrapping_sub(1));
}

/// The scale of a tensor.
///
/// # Panics
///
/// Where the tensor has no tail.
pub fn scale(tensor: &[u8]) -> f32 {
    let tail = &tensor[tensor.len() - TAIL_BYTES..];
    f32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]])
}

/// Decodes the elements of a tensor from number `at` on.
///
/// # Panics
///
/// Where the tensor ends before them.
pub fn decode(tensor: &[u8], at: usize, row: &mut [f32]) {
    let scale = scale(tensor);
    for (i, x) in (at..).zip(row) {
        let (byte, shift) = Layout::Blocks128.place(i, 0);
        *x = (f32::from(tensor[byte] >> shift & 3) - 1.0) * scale;
    }
}

/// How a file lays out the codes. Nothing in a file says which; [`Layout::Blocks128`] is usual, and
/// the others come from builds of bitnet.cpp with other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// 128 elements in 32 bytes.
    Blocks128,
    /// 64 elements in 16 bytes: builds for ARM since November 2025.
    Blocks64,
    /// One column of four rows in a byte: builds for x86 without `ACT_PARALLEL`.
    Rows4,
}

impl Layout {
    /// The layout of this name: `128`, `64` or `1x4`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "128" => Some(Self::Blocks128),
            "64" => Some(Self::Blocks64),
            "1x4" => Some(Self::Rows4),
            _ => None,
        }
    }

    /// Byte and shift of an element of a tensor with rows of `cols`.
    fn place(self, i: usize, cols: usize) -> (usize, usize) {
        // Four elements at this distance share a byte.
        let distance = match self {
            Self::Blocks128 => 32,
            Self::Blocks64 => 16,
            Self::Rows4 => cols,
        };
        let (block, part) = (i / (4 * distance), i % (4 * distance));
        (
            block * distance + part % distance,
            6 - 2 * (part / distance),
        )
    }

    /// A tensor of this layout as one of [`Layout::Blocks128`].
    ///
    /// # Errors
    ///
    /// `Format` where the bytes are not those of whole blocks, or of four whole rows in
    /// [`Layout::Rows4`].
    pub fn canonical(self, tensor: &[u8], cols: usize) -> Result<Vec<u8>> {
        let elements = tensor.len().saturating_sub(TAIL_BYTES) * 4;
        if DType::I2S.bytes(elements as u64) != Some(tensor.len() as u64) {
            bail!(Format, "i2_s: {} bytes are no whole blocks", tensor.len());
        }
        if self == Self::Rows4 && (cols == 0 || !elements.is_multiple_of(4 * cols)) {
            bail!(
                Format,
                "i2_s: {elements} elements are no four rows of {cols}"
            );
        }
        let (codes, tail) = tensor.split_at(elements / 4);
        let mut out = vec![0; codes.len()];
        for i in 0..elements {
            let (from, right) = self.place(i, cols);
            let (to, left) = Self::Blocks128.place(i, cols);
            out[to] |= (codes[from] >> right & 3) << left;
        }
        out.extend_from_slice(tail);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 blocks: code `i` is `i * i % 3`, packed by the formulas of each layout.
    fn tensor(byte: impl Fn(usize, usize) -> usize) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        for (n, b) in bytes.iter_mut().enumerate() {
            for k in 0..4 {
                let i = byte(n, k);
                *b = *b << 2 | u8::try_from(i * i % 3).unwrap();
            }
        }
        bytes.extend(0.5f32.to_le_bytes());
        bytes.resize(64 + TAIL_BYTES, 0xaa);
        bytes
    }

    #[test]
    fn layouts_agree() {
        let usual = tensor(|n, k| n / 32 * 128 + 32 * k + n % 32);
        let layouts = [
            ("128", usual.clone()),
            ("64", tensor(|n, k| n / 16 * 64 + 16 * k + n % 16)),
            ("1x4", tensor(|n, k| (n / 8 * 4 + k) * 8 + n % 8)),
        ];
        for (name, bytes) in layouts {
            let layout = Layout::from_name(name).unwrap();
            assert_eq!(layout.canonical(&bytes, 8).unwrap(), usual, "{name}");
        }
        let mut row = [0.0; 5];
        decode(&usual, 126, &mut row);
        assert_eq!(
            row,
            [126, 127, 128, 129, 130].map(|i| ((i * i % 3) as f32 - 1.0) * 0.5)
        );
    }

    #[test]
    fn a_block_is_what_decoding_says() {
        let bytes = tensor(|n, k| n / 32 * 128 + 32 * k + n % 32);
        let (mut q, mut row) = ([0; ELEMENTS], [0.0; ELEMENTS]);
        unpack(bytes[32..].first_chunk().unwrap(), &mut q);
        decode(&bytes, ELEMENTS, &mut row);
        assert_eq!(q.map(|q| f32::from(q) * 0.5), row);
    }

    #[test]
    fn what_is_no_tensor_is_refused() {
        for (layout, bytes, cols) in [
            (Layout::Blocks64, 31, 128),
            (Layout::Blocks64, 32 + 16, 64),
            (Layout::Rows4, 64, 0),
            (Layout::Rows4, 64, 64),
        ] {
            assert!(
                layout.canonical(&vec![0; bytes], cols).is_err(),
                "{layout:?} {bytes}"
            );
        }
    }
}
