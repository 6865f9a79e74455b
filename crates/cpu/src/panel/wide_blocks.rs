//! Formats with blocks of 64 and of 128 columns: two and four blocks of 32.

use super::blocks::fp4_codes;
use super::format::{Format, FourBit, PanelBlock, Sink, SixBitHalves, bits};
use super::layout::{Field, Layout, Panel, WORDS};
use crate::simd::Simd;
use crate::simd::rows::{ROWS, Rows, Word};
use tabla_quant::{nvfp4, q1_0, q2_0};

/// Words of 32 columns, two bits each.
const PAIR_WORDS: usize = 2;
/// Words of 32 columns, four bits each.
const NIBBLE_WORDS: usize = 4;

/// Signs with one scale: codes 0 and 2, offset 1.
pub(crate) struct Q1_0;

impl Format for Q1_0 {
    type Codes = FourBit;
    const OFFSET: i32 = 1;
    const LAYOUT: Layout = Layout {
        columns: q1_0::ELEMENTS,
        bytes: q1_0::BYTES,
        fields: &[Field::bits(2, 4), Field::new(2, 0, 1)],
    };

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let words: &[Word; 4] = fields.words(0);
        let scale = [s.halves(fields.half(1)); 2];
        let min = [s.splat_float(0.0); 2];
        for (j, word) in words.iter().enumerate() {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [j, 4]);
            let signs = s.bytes(word);
            let mut codes = [signs; WORDS];
            for (w, code) in (0..).zip(&mut codes) {
                *code = bits(s, signs, w, 1, 1);
            }
            sink.push(PanelBlock { codes, scale, min });
        }
    }
}

/// Codes of two bits with one scale, offset 1.
pub(crate) struct Q2_0;

impl Format for Q2_0 {
    type Codes = FourBit;
    const OFFSET: i32 = 1;
    const LAYOUT: Layout = Layout {
        columns: q2_0::ELEMENTS,
        bytes: q2_0::BYTES,
        fields: &[Field::pairs(2, 2 * PAIR_WORDS), Field::new(2, 0, 1)],
    };

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let words: &[Word; 2 * PAIR_WORDS] = fields.words(0);
        let scale = [s.halves(fields.half(1)); 2];
        let min = [s.splat_float(0.0); 2];
        for (j, words) in words.as_chunks::<PAIR_WORDS>().0.iter().enumerate() {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [j, 2]);
            let mut codes = [s.bytes(&words[0]); WORDS];
            for (w, code) in (0..).zip(&mut codes) {
                let pairs = s.bytes(&words[w as usize / 4]);
                *code = bits(s, pairs, 2 * (w % 4), 0, 3);
            }
            sink.push(PanelBlock { codes, scale, min });
        }
    }
}

/// 4-bit floats with a scale for every 16 columns. Doubled, they are integers from -12 to 12. The
/// product multiplies its sums by the scale of the tensor.
pub(crate) struct Nvfp4;

impl Format for Nvfp4 {
    type Codes = SixBitHalves;
    const OFFSET: i32 = 12;
    const LAYOUT: Layout = Layout {
        columns: nvfp4::ELEMENTS,
        bytes: nvfp4::BYTES,
        fields: &[
            Field::new(4, 4, 2 * NIBBLE_WORDS),
            Field::new(1, 0, 1),
            Field::new(1, 1, 1),
            Field::new(1, 2, 1),
            Field::new(1, 3, 1),
        ],
    };

    #[inline(always)]
    fn decode_block<S: Simd, K: Sink<S>>(s: S, panel: &Panel<'_>, block: usize, sink: &mut K) {
        let fields = panel.block(const { &Self::LAYOUT }, block);
        let words: &[Word; 2 * NIBBLE_WORDS] = fields.words(0);
        let min = [s.splat_float(0.0); 2];
        for (j, words) in words.as_chunks::<NIBBLE_WORDS>().0.iter().enumerate() {
            panel.prefetch(s, const { &Self::LAYOUT }, block, [j, 2]);
            let mut codes = [s.bytes(&words[0]); WORDS];
            // Sixteen columns are the low nibbles of two words, then the high ones.
            for (w, code) in codes.iter_mut().enumerate() {
                let pairs = s.bytes(&words[w / 4 * 2 + w % 2]);
                *code = match w % 4 {
                    0 | 1 => s.and(pairs, 15),
                    _ => s.and(s.shr(pairs, 4), 15),
                };
            }
            sink.push(PanelBlock {
                codes: fp4_codes(s, codes),
                scale: [1, 2].map(|half| float_scales(s, fields.bytes(2 * j + half))),
                min,
            });
        }
    }
}

/// Scales from unsigned 8-bit floats.
#[inline(always)]
fn float_scales<S: Rows>(s: S, floats: &[u8; ROWS]) -> S::Floats {
    let mut scales = [0.0; ROWS];
    for (scale, d) in scales.iter_mut().zip(floats) {
        *scale = nvfp4::scale(*d);
    }
    s.column(&scales)
}
