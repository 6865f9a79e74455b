//! Formats with blocks of 32 columns, each with a scale.

use super::format::{
    FiveBit, FiveBitMin, Format, FourBit, FourBitMin, PanelBlock, Signed, Sink, bits,
};
use super::layout::{Field, Layout, Panel, WORDS};
use crate::simd::Simd;
use crate::simd::rows::{ROWS, Rows, Word};
use tabla_quant::{iq4_nl, mxfp4, q4_0, q4_1, q5_0, q5_1, q8_0};

const fn layout(bytes: usize, fields: &'static [Field]) -> Layout {
    Layout {
        columns: super::QK,
        bytes,
        fields,
    }
}

/// The low nibbles of four words, then the high ones: columns 0 to 15 and 16 to 31.
#[inline(always)]
pub(super) fn nibbles<S: Rows>(s: S, words: &[Word; 4]) -> [S::Bytes; WORDS] {
    let mut codes = [s.bytes(&words[0]); WORDS];
    for (i, word) in words.iter().enumerate() {
        let word = s.bytes(word);
        codes[i] = s.and(word, 15);
        codes[i + 4] = s.and(s.shr(word, 4), 15);
    }
    codes
}

/// Nibbles with a fifth bit from a word of [`Field::bits`].
#[inline(always)]
fn five_bit_codes<S: Rows>(s: S, words: &[Word; 4], top: &Word) -> [S::Bytes; WORDS] {
    let mut codes = nibbles(s, words);
    let top = s.bytes(top);
    for (w, code) in (0..).zip(&mut codes) {
        *code = s.or(*code, bits(s, top, w, 4, 1));
    }
    codes
}

/// Nibbles replaced by table entries.
#[inline(always)]
pub(super) fn lookup_codes<S: Rows>(
    s: S,
    table: &[i8; 16],
    words: &[Word; 4],
) -> [S::Bytes; WORDS] {
    let mut codes = nibbles(s, words);
    for code in &mut codes {
        *code = s.offset_signed(s.lookup(table, *code));
    }
    codes
}

/// `name (file): codes, offset, fields; decoding`.
macro_rules! blocks {
    ($($(#[doc = $doc:literal])+ $name:ident($file:ident): $codes:ident, offset $offset:literal,
       [$($field:expr),+]; |$s:ident, $fields:ident| $words:expr, $scale:expr, $floor:expr;)+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) struct $name;

            impl Format for $name {
                type Codes = $codes;
                const OFFSET: i32 = $offset;
                const LAYOUT: Layout = layout($file::BYTES, &[$($field),+]);

                #[inline(always)]
                fn decode_block<S: Simd, K: Sink<S>>(
                    $s: S,
                    panel: &Panel<'_>,
                    block: usize,
                    sink: &mut K,
                ) {
                    panel.prefetch($s, const { &Self::LAYOUT }, block, [0, 1]);
                    let $fields = panel.block(const { &Self::LAYOUT }, block);
                    let codes = $words;
                    let scale = [$scale; 2];
                    let min = [$floor; 2];
                    sink.push(PanelBlock { codes, scale, min });
                }
            }
        )+
    };
}

blocks! {
    /// Nibbles, offset 8.
    Q4_0(q4_0): FourBit, offset 8, [Field::new(4, 2, 4), Field::new(2, 0, 1)];
    |s, b| nibbles(s, b.words(0)), s.halves(b.half(1)), s.splat_float(0.0);

    /// Nibbles and a minimum.
    Q4_1(q4_1): FourBitMin, offset 0, [Field::new(4, 4, 4), Field::new(2, 0, 1), Field::new(2, 2, 1)];
    |s, b| nibbles(s, b.words(0)), s.halves(b.half(1)), s.halves(b.half(2));

    /// Five bits, offset 16.
    Q5_0(q5_0): FiveBit, offset 16,
    [Field::new(4, 6, 4), Field::bits(2, 1), Field::new(2, 0, 1)];
    |s, b| five_bit_codes(s, b.words(0), &b.words::<1>(1)[0]), s.halves(b.half(2)),
    s.splat_float(0.0);

    /// Five bits and a minimum.
    Q5_1(q5_1): FiveBitMin, offset 0,
    [Field::new(4, 8, 4), Field::bits(4, 1), Field::new(2, 0, 1), Field::new(2, 2, 1)];
    |s, b| five_bit_codes(s, b.words(0), &b.words::<1>(1)[0]), s.halves(b.half(2)),
    s.halves(b.half(3));

    /// Signed bytes.
    Q8_0(q8_0): Signed, offset 0, [Field::new(4, 2, 8), Field::new(2, 0, 1)];
    |s, b| signed_bytes(s, b.words(0)), s.halves(b.half(1)), s.splat_float(0.0);

    /// Nibbles that index a table.
    Iq4Nl(iq4_nl): Signed, offset 0, [Field::new(4, 2, 4), Field::new(2, 0, 1)];
    |s, b| lookup_codes(s, &iq4_nl::VALUES, b.words(0)), s.halves(b.half(1)),
    s.splat_float(0.0);

    /// 4-bit floats with a power-of-two scale. Doubled, they are integers from -12 to 12.
    Mxfp4(mxfp4): FiveBit, offset 12, [Field::new(4, 1, 4), Field::new(1, 0, 1)];
    |s, b| fp4_codes(s, nibbles(s, b.words(0))), exponent_scales(s, b.bytes(1)), s.splat_float(0.0);
}

/// Doubled 4-bit floats plus 12.
#[inline(always)]
pub(super) fn fp4_codes<S: Rows>(s: S, mut codes: [S::Bytes; WORDS]) -> [S::Bytes; WORDS] {
    const CODES: [i8; 16] = {
        let mut codes = mxfp4::DOUBLED;
        let mut i = 0;
        while i < codes.len() {
            codes[i] += 12;
            i += 1;
        }
        codes
    };
    for code in &mut codes {
        *code = s.lookup(&CODES, *code);
    }
    codes
}

/// Signed bytes.
#[inline(always)]
pub(super) fn signed_bytes<S: Rows>(s: S, words: &[Word; WORDS]) -> [S::Bytes; WORDS] {
    let mut codes = [s.bytes(&words[0]); WORDS];
    for (code, word) in codes.iter_mut().zip(words) {
        *code = s.offset_signed(s.bytes(word));
    }
    codes
}

/// Scales from exponents.
#[inline(always)]
fn exponent_scales<S: Rows>(s: S, exponents: &[u8; ROWS]) -> S::Floats {
    let mut scales = [0.0; ROWS];
    for (scale, e) in scales.iter_mut().zip(exponents) {
        *scale = mxfp4::scale(*e);
    }
    s.column(&scales)
}
