//! Formats: decoding of codes and scales from a panel.

use super::layout::{Layout, Panel, WORDS};
use crate::simd::Simd;
use crate::simd::rows::{Rows, Word};
use std::ops::Range;
use tabla_core::dtype::DType;

/// A decoded block of [`QK`](super::QK) columns of a panel: `x = scale (code - offset) + min`.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "vectors do not implement Debug"
)]
pub struct PanelBlock<S: Rows> {
    /// Codes, four columns of each row per word.
    pub codes: [S::Bytes; WORDS],
    /// Scales of the first and second half; if there is one scale, only the first is used.
    pub scale: [S::Floats; 2],
    /// Minima, like the scales.
    pub min: [S::Floats; 2],
}

/// Properties of the codes and scales of a format.
pub trait Codes {
    /// Maximum code; 128 for signed bytes, which are offset by [`Rows::offset_signed`].
    const MAX: u8;
    /// Whether the two halves of a block have separate scales.
    const HALVES: bool;
    /// Whether blocks have minima.
    const MIN: bool;
}

/// Codes with these properties. One kernel serves all formats of a kind.
#[derive(Debug)]
pub struct Kind<const MAX: u8, const HALVES: bool, const MIN: bool>;

impl<const MAX: u8, const HALVES: bool, const MIN: bool> Codes for Kind<MAX, HALVES, MIN> {
    const MAX: u8 = MAX;
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
}

/// Codes of one kind, and the storage types that use them.
pub trait Formats: Codes + Sized {
    /// Calls the visitor with the format of a storage type.
    fn visit<V: KindVisitor<Self>>(dtype: DType, v: V) -> V::Out;
}

/// A format that is read from panels.
pub trait Format {
    /// Kind of its codes.
    type Codes: Formats;
    /// Offset subtracted from each code.
    const OFFSET: i32;
    /// Layout of its blocks.
    const LAYOUT: Layout;

    /// Decodes a block (or super-block) of a panel, in column order.
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K);
}

/// Affine codes of a bit width.
pub trait AffineWidth {
    /// Kind of its codes.
    type Codes: Formats;
    /// Words of a block.
    const WORDS: usize;

    /// Decodes the codes of a block of [`AffineWidth::WORDS`] words.
    fn codes<S: Rows>(s: S, words: &[Word]) -> [S::Bytes; WORDS];
    /// Returns the minimum of a group.
    fn min<S: Rows>(s: S, scale: S::Floats, bias: S::Floats) -> S::Floats;
}

/// Visitor for the format of a storage type with codes of kind `C`.
pub trait KindVisitor<C> {
    /// Result of the visitor.
    type Out;
    /// Called for a type with blocks of this format.
    fn blocks<F: Format<Codes = C>>(self) -> Self::Out;
    /// Called for a type with affine codes of this width.
    fn groups<W: AffineWidth<Codes = C>>(self) -> Self::Out;
    /// Called for a type with another kind of codes.
    fn other(self) -> Self::Out;
}

/// Consumer of decoded blocks. A trait and not a closure, because a closure that is not inlined
/// would be compiled without the level's instructions.
pub trait Sink<S: Rows> {
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
