//! Panels: sixteen rows of a matrix, interleaved.
//!
//! A block format is a list of fields. A panel is a sequence of blocks, each with its fields of all
//! rows, interleaved by row in units of four, two or one bytes. Packing a matrix only moves bytes, a
//! panel is as large as its rows, and a kernel loads whole vectors with one row per lane.

pub(super) mod affine;
mod blocks;
pub(super) mod digits;
mod format;
mod layout;
mod super_blocks;
mod wide_blocks;

use crate::simd::Unpack;
use crate::simd::rows::ROWS;
pub use format::Format;
pub(super) use format::{AffineWidth, Codes, Formats, Kind, KindVisitor, Sink, Sinks};
pub(super) use format::{PanelBlock, decode_columns};
#[cfg(target_arch = "x86_64")]
pub use layout::FLOATS;
pub use layout::{CHUNK_BYTES, Layout, QK};
pub(super) use layout::{Panel, StoredCodes, StoredScales, WORDS};
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_quant::Matrix;

/// Visitor for the format of a storage type.
pub trait FormatVisitor {
    /// Result of the visitor.
    type Out;
    /// Called with the format of the type.
    fn format<F: Format>(self) -> Self::Out;
}

/// Kinds of codes and the storage types that use them: block formats, then affine codes.
macro_rules! formats {
    ($([$max:literal, $halves:literal, $min:literal]
        { $($dtype:ident: $format:ty;)* } { $($affine:ident: $width:ty;)* })+) => {
        /// Calls a visitor with the format of a storage type; `None` if the type has no blocks.
        pub fn visit<V: FormatVisitor>(dtype: DType, v: V) -> Option<V::Out> {
            match dtype {
                $($(DType::$dtype => Some(v.format::<$format>()),)*)+
                _ => None,
            }
        }

        $(impl Formats for Kind<$max, $halves, $min> {
            #[inline(always)]
            fn visit<V: KindVisitor<Self>>(dtype: DType, v: V) -> V::Out {
                match dtype {
                    $(DType::$dtype => v.blocks::<$format>(),)*
                    $(DType::$affine => v.groups::<$width>(),)*
                    _ => v.other(),
                }
            }
        })+
    };
}
formats! {
    [15, false, false] {
        Q4_0: blocks::Q4_0;
        Q1_0: wide_blocks::Q1_0;
        Q2_0: wide_blocks::Q2_0;
        Tq1_0: super_blocks::Tq1_0;
        Tq2_0: super_blocks::Tq2_0;
    } {}
    [15, false, true] {
        Q4_1: blocks::Q4_1;
        Q4K: super_blocks::Q4K;
    } {
        Affine4: affine::Affine4Bit;
    }
    [31, false, false] {
        Q5_0: blocks::Q5_0;
        Mxfp4: blocks::Mxfp4;
    } {}
    [31, false, true] {
        Q5_1: blocks::Q5_1;
        Q5K: super_blocks::Q5K;
    } {}
    [63, true, false] {
        Q6K: super_blocks::Q6K;
        Nvfp4: wide_blocks::Nvfp4;
    } {}
    [128, false, false] {
        Q8_0: blocks::Q8_0;
        Iq4Nl: blocks::Iq4Nl;
        Iq4Xs: super_blocks::Iq4Xs;
    } {}
    [128, false, true] {} {
        Affine8: affine::Affine8Bit;
    }
    [128, true, false] {} {}
    [128, true, true] {} {}
}

/// Packing method of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pack {
    /// Block format: interleaved bytes.
    Blocks(&'static Layout),
    /// Ternary values.
    Digits(Unpack),
    /// Affine codes with the scales and biases of their groups.
    Affine(Unpack, affine::Groups),
}

impl Pack {
    /// Bytes of a panel with this many columns.
    pub(super) fn panel_bytes(self, columns: usize) -> usize {
        match self {
            Self::Blocks(layout) => layout.panel_bytes(columns),
            Self::Digits(_) => digits::panel_bytes(columns),
            Self::Affine(_, groups) => groups.panel_bytes(columns),
        }
    }

    /// Packs at most `ROWS` rows of a matrix.
    pub(super) fn pack(self, matrix: &Matrix<'_>, rows: Range<usize>, panel: &mut [u8]) {
        match self {
            Self::Blocks(layout) => {
                let mut lanes = [&matrix.bytes[..0]; ROWS];
                for (lane, row) in lanes.iter_mut().zip(rows.clone()) {
                    *lane = matrix.row(row);
                }
                layout.pack(&lanes[..rows.len()], panel);
            }
            Self::Digits(unpack) => digits::pack(unpack, matrix, rows, panel),
            Self::Affine(unpack, groups) => groups.pack(unpack, matrix, rows, panel),
        }
    }
}
