//! Formats: decoding of codes and scales from a panel.

use super::layout::{Layout, Panel, WORDS};
use crate::simd::Simd;
use crate::simd::rows::Rows;
use std::ops::Range;

/// A decoded block of [`QK`](super::QK) columns of a panel: `x = scale (code - offset) + min`.
#[derive(Clone, Copy)]
pub(crate) struct PanelBlock<S: Rows> {
    /// Codes, four columns of each row per word.
    pub(crate) codes: [S::Bytes; WORDS],
    /// Scales of the first and second half; if there is one scale, only the first is used.
    pub(crate) scale: [S::Floats; 2],
    /// Minima, like the scales.
    pub(crate) min: [S::Floats; 2],
}

/// Properties of codes and scales. Kernels are compiled once for all formats with the same properties.
pub(crate) trait Codes {
    /// Maximum code; 128 for signed bytes, which are offset by [`Rows::offset_signed`].
    const MAX: u8;
    /// Whether the two halves of a block have separate scales.
    const HALVES: bool;
    /// Whether blocks have minima.
    const MIN: bool;
}

/// Whether codes have the same properties.
pub(crate) const fn is_same<A: Codes, B: Codes>() -> bool {
    A::MAX == B::MAX && A::HALVES == B::HALVES && A::MIN == B::MIN
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident: $max:literal, halves $halves:literal, min $min:literal;)+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) struct $name;

            impl Codes for $name {
                const MAX: u8 = $max;
                const HALVES: bool = $halves;
                const MIN: bool = $min;
            }
        )+
    };
}

codes! {
    /// Codes of at most four bits.
    FourBit: 15, halves false, min false;
    /// Codes of at most four bits, with minima.
    FourBitMin: 15, halves false, min true;
    /// Codes of five bits.
    FiveBit: 31, halves false, min false;
    /// Codes of five bits, with minima.
    FiveBitMin: 31, halves false, min true;
    /// Codes of six bits, with scales of halves.
    SixBitHalves: 63, halves true, min false;
    /// Signed bytes.
    Signed: 128, halves false, min false;
    /// Signed bytes, with minima.
    SignedMin: 128, halves false, min true;
    /// Signed bytes, with scales of halves.
    SignedHalves: 128, halves true, min false;
    /// Signed bytes, with scales and minima of halves.
    SignedHalvesMin: 128, halves true, min true;
}

/// A block format: how one of its blocks is decoded.
pub(crate) trait Format {
    /// Properties of its codes.
    type Codes: Codes;
    /// Offset subtracted from each code.
    const OFFSET: i32;
    /// Layout of its blocks.
    const LAYOUT: Layout;

    /// Decodes a block (or super-block) of a panel, in column order.
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K);
}

/// Consumer of decoded blocks. A trait and not a closure, because a closure that is not inlined
/// would be compiled without the level's instructions.
pub(crate) trait Sink<S: Rows> {
    /// Consumes the next block.
    fn push(&mut self, block: PanelBlock<S>);

    /// Called after the last block.
    fn finish(self);
}

/// Consumers of the blocks of several panels, one for each.
pub(crate) trait Sinks<S: Rows> {
    /// Consumer of the blocks of one panel.
    type Sink<'a>: Sink<S>
    where
        Self: 'a;

    /// Returns the consumer for the panel at this index.
    fn sink(&mut self, index: usize) -> Self::Sink<'_>;
}

/// Moves bits of each byte from bit `from` to bit `to`; `mask` has as many ones. It is a shift and
/// an `and`, so neighbouring bits do not matter.
#[inline(always)]
pub(super) fn bits<S: Rows>(s: S, v: S::Bytes, from: u32, to: u32, mask: u8) -> S::Bytes {
    let v = match from > to {
        true => s.shr(v, from - to),
        false => s.shl(v, to - from),
    };
    s.and(v, mask << to)
}

/// Decodes some columns of a panel; the columns must be whole blocks.
#[inline(always)]
pub(crate) fn decode_columns<F: Format, S: Simd, K: Sink<S>>(
    s: S,
    panel: &Panel<'_>,
    columns: Range<usize>,
    mut sink: K,
) {
    let width = const { F::LAYOUT.columns };
    for block in columns.start / width..columns.end / width {
        F::decode_block(s, panel, block, &mut sink);
    }
    sink.finish();
}
