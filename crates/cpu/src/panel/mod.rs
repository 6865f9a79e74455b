//! Panels: sixteen rows of a matrix, interleaved.
//!
//! A block format is a list of fields. A panel is a sequence of blocks, each with its fields of all
//! rows, interleaved by row in units of four, two or one bytes. Packing a matrix only moves bytes, a
//! panel is as large as its rows, and a kernel loads whole vectors with one row per lane.

pub(super) mod affine;
pub(super) mod blocks;
pub(super) mod digits;
mod format;
mod layout;
pub(super) mod super_blocks;
pub(super) mod wide_blocks;

use crate::simd::Unpack;
use crate::simd::rows::ROWS;
pub(super) use format::{
    Codes, Format, FourBitMin, PanelBlock, Signed, SignedHalves, SignedHalvesMin, SignedMin, Sink,
    Sinks, decode_columns, is_same,
};
#[cfg(target_arch = "x86_64")]
pub use layout::FLOATS;
pub use layout::{CHUNK_BYTES, QK};
pub(super) use layout::{Layout, Panel, StoredCodes, StoredScales, WORDS};
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_quant::Matrix;

/// Evaluates an expression with the [`Format`] of a storage type; `None` if the type has no blocks:
/// `with_format!(dtype, |F| F::OFFSET)`.
macro_rules! with_format {
    ($dtype:expr, |$format:ident| $value:expr) => {
        $crate::panel::with_format! {
            @match $dtype, $format, $value;
            blocks: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Iq4Nl Mxfp4;
            wide_blocks: Q1_0 Q2_0 Nvfp4;
            super_blocks: Q4K Q5K Q6K Iq4Xs Tq1_0 Tq2_0;
        }
    };
    (@match $dtype:expr, $format:ident, $value:expr; $($file:ident: $($name:ident)+;)+) => {
        match $dtype {
            $($(DType::$name => {
                type $format = $crate::panel::$file::$name;
                Some($value)
            })+)+
            _ => None,
        }
    };
}
pub(super) use with_format;

/// Returns the layout of the blocks of a storage type; `None` if it has no blocks.
pub fn layout(dtype: DType) -> Option<&'static Layout> {
    with_format!(dtype, |F| const { &<F as Format>::LAYOUT })
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
