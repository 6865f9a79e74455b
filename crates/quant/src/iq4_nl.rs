//! `IQ4_NL`: an f16 scale `d`, then 32 nibbles that index a table; `x = d t[q]` (`block_iq4_nl` in
//! ggml-common.h).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::bytes::{map_bytes, nibbles, to_bytes};
use super::fit;
use super::section::Section::{self, Field};
use super::section::{codes_of, encoded, to_codes};
use bytemuck::{Pod, Zeroable, cast, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Elements of a block.
pub const ELEMENTS: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;

/// Values of the nibbles (`kvalues_iq4nl` in ggml-common.h).
pub const VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [u8; 16],
}

/// Value of a nibble.
#[inline(always)]
pub(super) fn value(nibble: u8) -> u8 {
    // Each bit selects between neighbours: baseline vector instructions have no table lookup.
    let mut values = VALUES;
    for bit in 0..4 {
        let mask = (nibble >> bit & 1).cast_signed().wrapping_neg();
        for i in 0..8 >> bit {
            let [a, b] = [values[2 * i], values[2 * i + 1]];
            values[i] = a ^ (a ^ b) & mask;
        }
    }
    values[0].cast_unsigned()
}

/// `x[i] = d t[q[i]]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qs } = from_bytes(block);
    map_bytes(q, &cast(nibbles(qs)), value);
    scale.fill(f16(*d));
}

/// Encodes with the scale of smallest weighted error.
pub fn encode(x: &[f32; ELEMENTS], importance: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    // The largest number is mapped to either end of the table and to numbers around it.
    let ends = (0..8).flat_map(|k: u8| {
        let k = f32::from(k);
        [-127.0 - k, -127.0 + k, 113.0 + k]
    });
    let level = |v| f32::from(VALUES[nearest(v)]);
    let d = fit::scale(x, &fit::weights(x, importance), ends, level);
    let d = half::f16::from_f32_const(d);
    let q = fit::quantize(x, d.to_f32_const(), |v| nearest(v) as f32);
    to_bytes(Block {
        d: d.to_le_bytes(),
        qs: from_fn(|i| q[i] | q[i + 16] << 4),
    })
}

/// Returns the nibble of the nearest value.
fn nearest(v: f32) -> usize {
    let [low, high] = [VALUES[0], VALUES[15]].map(f32::from);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to 480 by the clamp"
    )]
    let half_steps = ((v.clamp(low, high) - low) * 2.0) as usize;
    NEAREST[half_steps].into()
}

/// [`nearest`] in steps of 1/2 from the lowest value on, which include all midpoints.
const NEAREST: [u8; 481] = {
    let mut nearest = [0; 481];
    let (mut step, mut at) = (0, 0);
    while step < 481 {
        // Twice the midpoint of two values is their sum.
        if at < 15 {
            let middle = VALUES[at as usize] as i32 + VALUES[at as usize + 1] as i32;
            if 2 * VALUES[0] as i32 + step >= middle {
                at += 1;
            }
        }
        nearest[step as usize] = at;
        step += 1;
    }
    nearest
};

/// Plane of indices into the table.
pub(crate) fn iq4() -> Section {
    static CODES: [u8; 256] = codes_of(&VALUES);
    encoded(4, |q| to_codes(q, &CODES))
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![iq4(), Field(0..2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn table_values_round_trip() {
        let x: [f32; ELEMENTS] = from_fn(|i| f32::from(VALUES[i % 16]) * 0.5);
        assert_eq!(decoded(DType::Iq4Nl, &encode(&x, None)), x);
        let opposite = x.map(|x| -x);
        assert_eq!(decoded(DType::Iq4Nl, &encode(&opposite, None)), opposite);
    }

    #[test]
    fn finds_nearest_table_value() {
        for v in (-1300..=1300).map(|v| v as f32 * 0.1) {
            let found = (v - f32::from(VALUES[nearest(v)])).abs();
            let best = VALUES.map(|t| (v - f32::from(t)).abs());
            assert_eq!(found, best.into_iter().fold(f32::INFINITY, f32::min), "{v}");
        }
    }
}
