// w as iq2_xs: an f16 d, for 8 numbers 16 bits (row of the grid 9, signs 7), scales s of 4
// bits for 16 numbers; x = d (s + 1/2) / 4 (+-row).

#import blocks
#import iq_grid

const BLOCK = 256u;
const WORDS = 19u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let q = u16_at(b, 2u + 2u * o);
    let s = (u8_at(b, 66u + o / 4u) >> (o % 4u / 2u * 4u)) & 15u;
    let d = f16_at(b, 0u) * (0.5 + f32(s)) * 0.25;
    return signed(d, grid8(q & 511u), even(q >> 9u));
}
