// w as iq2_s: an f16 d; for 8 numbers a byte of the row of the grid and a byte of signs; the
// upper 2 bits of four rows in a byte; scales s of 4 bits for 16 numbers;
// x = d (s + 1/2) / 4 (+-row).

#import blocks
#import iq_grid

const BLOCK = 256u;
const WORDS = 21u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let high = (u8_at(b, 66u + o / 4u) >> (o % 4u * 2u)) & 3u;
    let s = (u8_at(b, 74u + o / 4u) >> (o % 4u / 2u * 4u)) & 15u;
    let d = f16_at(b, 0u) * (0.5 + f32(s)) * 0.25;
    return signed(d, grid8(u8_at(b, 2u + o) | (high << 8u)), u8_at(b, 34u + o));
}
