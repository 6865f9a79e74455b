// w as iq1_s: an f16 d; for 8 numbers a byte of the row of the grid; for 32 numbers 16 bits:
// the upper 3 bits of four rows, a scale s of 3 bits, a sign;
// x = d (2 s + 1) (row +- 1/8). The grid has 128 + 8 row.

#import blocks
#import iq_grid

const BLOCK = 256u;
const WORDS = 13u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let of_four = u16_at(b, 34u + o / 4u * 2u);
    let q = grid8(u8_at(b, 2u + o) | (((of_four >> (3u * (o % 4u))) & 7u) << 8u));
    let d = f16_at(b, 0u) * f32(((of_four >> 12u) & 7u) * 2u + 1u);
    return centred(0.125 * d, q, select(127.0, 129.0, of_four >= 0x8000u));
}
