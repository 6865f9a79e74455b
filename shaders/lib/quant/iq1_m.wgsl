// w as iq1_m: for 8 numbers a byte of the row of the grid and a nibble of its upper 3 bits
// and a sign; scales s of 3 bits for 16 numbers in four u16, whose upper nibbles are the f16 d;
// x = d (2 s + 1) (row +- 1/8). The grid has 128 + 8 row.

#import blocks
#import iq_grid

const BLOCK = 256u;
const WORDS = 14u;

// The upper nibbles of four u16, the first the lowest.
fn upper_nibbles(low: u32, high: u32) -> u32 {
    return ((low >> 12u) & 0xfu)
        | ((low >> 24u) & 0xf0u)
        | ((high >> 4u) & 0xf00u)
        | ((high >> 16u) & 0xf000u);
}

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let high = u8_at(b, 32u + o / 2u) >> (o % 2u * 4u);
    let q = grid8(u8_at(b, o) | ((high & 7u) << 8u));
    let s = (u16_at(b, 48u + o / 8u * 2u) >> (o % 8u / 2u * 3u)) & 7u;
    let scale = unpack2x16float(upper_nibbles(w[b + 12u], w[b + 13u])).x * f32(2u * s + 1u);
    return centred(0.125 * scale, q, select(127.0, 129.0, (high & 8u) != 0u));
}
