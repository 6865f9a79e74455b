//! Sections of the layout of weights on devices: what a type stores for each element, group or block.

use std::ops::Range;

/// Scale group that spans a whole row.
pub(crate) const ROW: usize = usize::MAX;

/// A section of a weight.
#[derive(Debug)]
pub enum Section {
    /// Codebook (grid) of the type.
    Grid(&'static [u8]),
    /// `bits` bits of every code, starting at bit `shift`. `encode` converts decoded integers to
    /// codes.
    Plane {
        /// First bit.
        shift: u32,
        /// Number of bits.
        bits: usize,
        /// Conversion of the decoded integers, in place; `None`: they are the codes.
        encode: Option<fn(&mut [u8])>,
    },
    /// Elements in the encoding of the file. Each column block is split into `parts`: a row stores
    /// the first part of all blocks, then the second part of all blocks, and so on.
    Numbers {
        /// Number of parts.
        parts: usize,
    },
    /// This byte range of every quantization block.
    Field(Range<usize>),
    /// A number of bytes computed from every quantization block.
    Computed(usize, fn(&[u8], &mut Vec<u8>)),
    /// For each group of `columns` columns an f32 scale, and an f32 bias if `numbers` is 2.
    Scales {
        /// Number of columns of a group.
        columns: usize,
        /// 1, or 2 with biases.
        numbers: usize,
    },
    /// The single f32 scale of the tensor.
    Scale,
}

pub(crate) fn plane(shift: u32, bits: usize) -> Section {
    let encode = None;
    Section::Plane {
        shift,
        bits,
        encode,
    }
}

/// Returns a plane of `bits`-bit codes computed by `encode`.
pub(crate) fn encoded(bits: usize, encode: fn(&mut [u8])) -> Section {
    Section::Plane {
        shift: 0,
        bits,
        encode: Some(encode),
    }
}

/// Returns a plane of ternary values plus 1.
pub(crate) fn ternary() -> Section {
    encoded(2, |q| q.iter_mut().for_each(|q| *q = q.wrapping_add(1)))
}

/// Returns a plane of signs: 1 is positive.
pub(crate) fn signs() -> Section {
    encoded(1, |q| q.iter_mut().for_each(|q| *q = u8::from(*q < 0x80)))
}

pub(crate) fn scales(columns: usize, numbers: usize) -> Section {
    Section::Scales { columns, numbers }
}

/// Replaces values by their codes.
pub(crate) fn to_codes(q: &mut [u8], codes: &[u8; 256]) {
    q.iter_mut().for_each(|q| *q = codes[usize::from(*q)]);
}

/// Returns the inverse of a value table: the first code of each value.
pub(crate) const fn codes_of(values: &[i8]) -> [u8; 256] {
    let mut codes = [0; 256];
    let mut rest = values;
    while let [first @ .., last] = rest {
        codes[last.cast_unsigned() as usize] = first.len().to_le_bytes()[0];
        rest = first;
    }
    codes
}
