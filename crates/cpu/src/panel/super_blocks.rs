//! Formats with super-blocks of 256 columns: eight blocks of 32.

use super::blocks::lookup_codes;
use super::format::{
    FiveBitMin, Format, FourBit, FourBitMin, PanelBlock, Signed, Sink, SixBitHalves, bits,
};
use super::layout::{Field, Layout, Panel, WORDS};
use crate::simd::Simd;
use crate::simd::rows::{Rows, Word};
use tabla_quant::{CHUNK, iq4_nl, iq4_xs, q4_k, q5_k, q6_k, tq1_0, tq2_0};

const fn layout(bytes: usize, fields: &'static [Field]) -> Layout {
    Layout {
        columns: CHUNK,
        bytes,
        fields,
    }
}

/// Repeats the body for each number, so that shift counts are constants.
macro_rules! eight {
    ($j:ident => $body:block) => {
        eight!(@each $j, $body, 0 1 2 3 4 5 6 7)
    };
    (@each $j:ident, $body:block, $($n:literal)+) => {
        $({
            const $j: u32 = $n;
            $body
        })+
    };
}

/// Eight words of a field, starting at word `first`.
#[inline(always)]
fn eight_words<const N: usize>(words: &[Word; N], first: usize) -> &[Word; WORDS] {
    words[first..]
        .first_chunk()
        .expect("the block of 32 is inside the super-block")
}

/// Extracts bits of each word.
#[inline(always)]
fn extract<S: Rows>(s: S, words: &[Word; WORDS], from: u32, mask: u8) -> [S::Bytes; WORDS] {
    let mut codes = [s.bytes(&words[0]); WORDS];
    for (code, word) in codes.iter_mut().zip(words) {
        *code = bits(s, s.bytes(word), from, 0, mask);
    }
    codes
}

/// 6-bit scales and minima, as packed in `Q4_K` and `Q5_K`.
struct SixBitScales<S: Rows> {
    packed: [S::Ints; 3],
    d: S::Floats,
    /// Negated, because minima are subtracted.
    min: S::Floats,
}

impl<S: Rows> SixBitScales<S> {
    #[inline(always)]
    fn open(s: S, packed: &[Word; 3], d: S::Floats, min: S::Floats) -> Self {
        let [a, b, c] = packed;
        Self {
            packed: [a, b, c].map(|word| s.ints(s.bytes(word))),
            d,
            min: s.mul(min, s.splat_float(-1.0)),
        }
    }

    /// Scale and minimum of block `j`.
    #[inline(always)]
    fn at(&self, s: S, j: u32) -> [S::Floats; 2] {
        let [low, mid, high] = self.packed;
        let [scale, min] = if j < 4 {
            [s.bits(low, 8 * j, 63), s.bits(mid, 8 * j, 63)]
        } else {
            let by = 8 * (j - 4);
            let (low, mid) = (s.bits(low, by + 6, 3), s.bits(mid, by + 6, 3));
            [
                s.add_shifted(s.bits(high, by, 15), low, 4),
                s.add_shifted(s.bits(high, by + 4, 15), mid, 4),
            ]
        };
        [
            s.mul(self.d, s.floats(scale)),
            s.mul(self.min, s.floats(min)),
        ]
    }
}

/// 4-bit codes, 6-bit scales and minima.
pub(crate) struct Q4K;

impl Format for Q4K {
    type Codes = FourBitMin;
    const OFFSET: i32 = 0;
    const LAYOUT: Layout = layout(
        q4_k::BYTES,
        &[
            Field::new(4, 16, 32),
            Field::new(4, 4, 3),
            Field::new(2, 0, 1),
            Field::new(2, 2, 1),
        ],
    );

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let nibbles: &[Word; 32] = fields.words(0);
        let [d, min] = [fields.half(2), fields.half(3)];
        let scales = SixBitScales::open(s, fields.words(1), s.halves(d), s.halves(min));
        eight!(J => {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [J as usize, 8]);
            let words = eight_words(nibbles, J as usize / 2 * WORDS);
            let codes = extract(s, words, 4 * (J % 2), 15);
            let [scale, min] = scales.at(s, J);
            sink.push(PanelBlock { codes, scale: [scale; 2], min: [min; 2] });
        });
    }
}

/// 5-bit codes, 6-bit scales and minima.
pub(crate) struct Q5K;

impl Format for Q5K {
    type Codes = FiveBitMin;
    const OFFSET: i32 = 0;
    const LAYOUT: Layout = layout(
        q5_k::BYTES,
        &[
            Field::new(4, 48, 32),
            Field::new(4, 16, 8),
            Field::new(4, 4, 3),
            Field::new(2, 0, 1),
            Field::new(2, 2, 1),
        ],
    );

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let nibbles: &[Word; 32] = fields.words(0);
        let tops: &[Word; WORDS] = fields.words(1);
        let [d, min] = [fields.half(3), fields.half(4)];
        let scales = SixBitScales::open(s, fields.words(2), s.halves(d), s.halves(min));
        eight!(J => {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [J as usize, 8]);
            let words = eight_words(nibbles, J as usize / 2 * WORDS);
            let mut codes = extract(s, words, 4 * (J % 2), 15);
            for (code, top) in codes.iter_mut().zip(tops) {
                *code = s.or(*code, bits(s, s.bytes(top), J, 4, 1));
            }
            let [scale, min] = scales.at(s, J);
            sink.push(PanelBlock { codes, scale: [scale; 2], min: [min; 2] });
        });
    }
}

/// 6-bit codes with offset 32, 8-bit scales for every 16 columns.
pub(crate) struct Q6K;

impl Format for Q6K {
    type Codes = SixBitHalves;
    const OFFSET: i32 = 32;
    const LAYOUT: Layout = layout(
        q6_k::BYTES,
        &[
            Field::new(4, 0, 32),
            Field::new(4, 128, 16),
            Field::new(4, 192, 4),
            Field::new(2, 208, 1),
        ],
    );

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let nibbles: &[Word; 32] = fields.words(0);
        let tops: &[Word; 16] = fields.words(1);
        let scales: &[Word; 4] = fields.words(2);
        let d = s.halves(fields.half(3));
        let none = s.splat_float(0.0);
        eight!(J => {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [J as usize, 8]);
            // Half a super-block is four blocks: the first two in low nibbles, the others in high
            // ones.
            let (half, j) = (J as usize / 4, J % 4);
            let words = eight_words(nibbles, half * 2 * WORDS + j as usize % 2 * WORDS);
            let mut codes = extract(s, words, 4 * (j / 2), 15);
            for (code, top) in codes.iter_mut().zip(eight_words(tops, half * WORDS)) {
                *code = s.or(*code, bits(s, s.bytes(top), 2 * j, 4, 3));
            }
            let four = s.ints(s.bytes(&scales[J as usize / 2]));
            let first = s.mul(d, s.floats(s.signed_byte(four, J % 2 * 2)));
            let second = s.mul(d, s.floats(s.signed_byte(four, J % 2 * 2 + 1)));
            sink.push(PanelBlock { codes, scale: [first, second], min: [none; 2] });
        });
    }
}

/// Nibbles that index a table, with 6-bit scales.
pub(crate) struct Iq4Xs;

impl Format for Iq4Xs {
    type Codes = Signed;
    const OFFSET: i32 = 0;
    const LAYOUT: Layout = layout(
        iq4_xs::BYTES,
        &[
            Field::new(4, 8, 32),
            Field::new(4, 4, 1),
            Field::new(2, 2, 1),
            Field::new(2, 0, 1),
        ],
    );

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let nibbles: &[Word; 32] = fields.words(0);
        let low = s.ints(s.bytes(&fields.words::<1>(1)[0]));
        let top = s.ints_of_halves(fields.half(2));
        let d = s.halves(fields.half(3));
        let none = s.splat_float(0.0);
        eight!(J => {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [J as usize, 8]);
            let words = nibbles[J as usize * 4..].first_chunk().expect("inside the block");
            let codes = lookup_codes(s, &iq4_nl::VALUES, words);
            let scale = s.add_shifted(s.bits(low, 4 * J, 15), s.bits(top, 2 * J, 3), 4);
            let scale = s.add_shifted(scale, s.splat_int(-32), 0);
            let scale = s.mul(d, s.floats(scale));
            sink.push(PanelBlock { codes, scale: [scale; 2], min: [none; 2] });
        });
    }
}

/// 2-bit ternary values with one scale.
pub(crate) struct Tq2_0;

impl Format for Tq2_0 {
    type Codes = FourBit;
    const OFFSET: i32 = 1;
    const LAYOUT: Layout = layout(tq2_0::BYTES, &[Field::new(4, 0, 16), Field::new(2, 64, 1)]);

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let digits: &[Word; 16] = fields.words(0);
        let scale = [s.halves(fields.half(1)); 2];
        let min = [s.splat_float(0.0); 2];
        eight!(J => {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [J as usize, 8]);
            let words = eight_words(digits, J as usize / 4 * WORDS);
            let codes = extract(s, words, 2 * (J % 4), 3);
            sink.push(PanelBlock { codes, scale, min });
        });
    }
}

/// Ternary values, five per byte, with one scale.
pub(crate) struct Tq1_0;

impl Format for Tq1_0 {
    type Codes = FourBit;
    const OFFSET: i32 = 1;
    const LAYOUT: Layout = layout(
        tq1_0::BYTES,
        &[
            Field::new(4, 0, 8),
            Field::new(4, 32, 4),
            Field::new(4, 48, 1),
            Field::new(2, 52, 1),
        ],
    );

    /// A byte is a fraction of 256: multiplying it by 3 yields the next digit as the integer part.
    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let scale = [s.halves(fields.half(3)); 2];
        let min = [s.splat_float(0.0); 2];
        // 32 bytes hold five blocks, 16 bytes five half blocks, 4 bytes four eighths.
        panel.prefetch(s, const { &Self::LAYOUT }, block, [0, 1]);
        let words: &[Word; WORDS] = fields.words(0);
        let mut fractions = extract(s, words, 0, 255);
        for _ in 0..5 {
            let mut codes = fractions;
            for (code, fraction) in codes.iter_mut().zip(&mut fractions) {
                *code = s.leading_digit(*fraction);
                *fraction = s.mul3(*fraction);
            }
            sink.push(PanelBlock { codes, scale, min });
        }
        let words: &[Word; 4] = fields.words(1);
        let mut last = s.bytes(&fields.words::<1>(2)[0]);
        let mut fractions = [s.bytes(&words[0]); 4];
        for (fraction, word) in fractions.iter_mut().zip(words) {
            *fraction = s.bytes(word);
        }
        for third in 0..3 {
            let mut codes = [last; WORDS];
            for (i, code) in codes.iter_mut().enumerate() {
                let fraction = if third == 2 && i >= 4 {
                    &mut last
                } else {
                    &mut fractions[i % 4]
                };
                *code = s.leading_digit(*fraction);
                *fraction = s.mul3(*fraction);
            }
            sink.push(PanelBlock { codes, scale, min });
        }
    }
}
