// w as q5_1: an f16 scale d, an f16 minimum m, 32 fifth bits, 32 nibbles; x = d q + m.

#import blocks

const BLOCK = 32u;
const WORDS = 6u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 4u;
    let q = fields(bytes_at(b, 8u + 8u * (o % 2u)), 4u * (o / 2u), 15u);
    let fifth = spread(u8_at(b, 4u + o));
    return line(f16_at(b, 0u), q | (fifth << vec2(4u)), f16_at(b, 2u));
}
