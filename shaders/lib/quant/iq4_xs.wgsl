// w as iq4_xs: an f16 d, 8 scales s of 6 bits (upper 2 in a u16, lower nibbles in 4 bytes), 256
// nibbles; x = d (s - 32) value[q].

#import blocks
#import iq4

const BLOCK = 256u;
const WORDS = 34u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let g = i % 32u / 4u;
    let o = i % 4u;
    let codes = fields(bytes_at(b, 8u + 16u * g + 8u * (o % 2u)), 4u * (o / 2u), 15u);
    let s = ((u8_at(b, 4u + g / 2u) >> (4u * (g % 2u))) & 15u)
        | (((u16_at(b, 2u) >> (2u * g)) & 3u) << 4u);
    return from_table(f16_at(b, 0u) * (f32(s) - 32.0), IQ4, codes);
}
