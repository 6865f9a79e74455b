//! Formats: how codes and scales come out of a panel.

use super::layout::{Layout, Panel, WORDS};
use crate::simd::Simd;
use crate::simd::rows::{Rows, Word};
use std::ops::Range;
use tabla_core::dtype::DType;

/// A stretch of columns of a panel: `x = scale (code - offset) + min`.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "vectors have none")]
pub struct Stretch<S: Rows> {
    /// Four columns of each row to a word.
    pub codes: [S::Bytes; WORDS],
    /// Of the first half and the second; where they are one, of the first.
    pub scale: [S::Floats; 2],
    /// As the scales.
    pub min: [S::Floats; 2],
}

/// What codes and scales of a format are like.
pub trait Codes {
    /// No code is greater; 128 where they are signed bytes, which go [`Rows::raise`]d.
    const MAX: u8;
    /// Whether the two halves of a stretch have scales of their own.
    const HALVES: bool;
    /// Whether there are minima.
    const MIN: bool;
}

/// Formats of one kind are multiplied by one kernel.
#[derive(Debug)]
pub struct Kind<const MAX: u8, const HALVES: bool, const MIN: bool>;

impl<const MAX: u8, const HALVES: bool, const MIN: bool> Codes for Kind<MAX, HALVES, MIN> {
    const MAX: u8 = MAX;
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
}

/// Codes of one kind, and the storage types that have them.
pub trait Formats: Codes + Sized {
    /// Tells a visitor the format of a storage type.
    fn visit<V: VisitKind<Self>>(dtype: DType, v: V) -> V::Out;
}

/// A format that is read in panels.
pub trait Format {
    /// What its codes are like.
    type Codes: Formats;
    /// What is taken from each code.
    const OFFSET: i32;
    /// How its blocks lie.
    const LAYOUT: Layout;

    /// Gives the stretches of a block of a panel, in order.
    fn stretches<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K);
}

/// Affine codes of a width.
pub trait Width {
    /// What they are like.
    type Codes: Formats;
    /// Words of a stretch.
    const WORDS: usize;

    /// The codes of a stretch, which has [`Width::WORDS`].
    fn codes<S: Rows>(s: S, words: &[Word]) -> [S::Bytes; WORDS];
    /// The minimum of a group.
    fn min<S: Rows>(s: S, scale: S::Floats, bias: S::Floats) -> S::Floats;
}

/// What wants to know which format with codes of the kind `C` a storage type has.
pub trait VisitKind<C> {
    /// What it makes of it.
    type Out;
    /// The type has blocks of this format.
    fn blocks<F: Format<Codes = C>>(self) -> Self::Out;
    /// The type has affine codes of this width.
    fn groups<W: Width<Codes = C>>(self) -> Self::Out;
    /// The type has codes of another kind.
    fn other(self) -> Self::Out;
}

/// What becomes of stretches. A trait and not a closure, which would be a function without the
/// level's instructions wherever it is not inlined.
pub trait Sink<S: Rows> {
    /// The next stretch.
    fn take(&mut self, stretch: Stretch<S>);

    /// There are no more: whoever gives stretches says so.
    fn end(self);
}

/// Bits of each byte brought from where they begin to where they belong; `mask` has as many ones. A shift and
/// an `and`, and so the bits of its neighbours do not matter.
#[inline(always)]
pub(super) fn bits<S: Rows>(s: S, v: S::Bytes, from: u32, to: u32, mask: u8) -> S::Bytes {
    let v = match from > to {
        true => s.right(v, from - to),
        false => s.left(v, to - from),
    };
    s.and(v, mask << to)
}

/// Gives the stretches of some columns of a panel; the columns are whole blocks.
#[inline(always)]
pub(crate) fn stretches<F: Format, S: Simd, K: Sink<S>>(
    s: S,
    panel: &Panel<'_>,
    columns: Range<usize>,
    mut sink: K,
) {
    let width = const { F::LAYOUT.columns };
    for block in columns.start / width..columns.end / width {
        F::stretches(s, panel, block, &mut sink);
    }
    sink.end();
}
