// w as q5_0: an f16 scale d, 32 fifth bits, 32 nibbles; x = d (q - 16).

#import blocks

const BLOCK = 32u;
const WORDS = 6u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 4u;
    let q = fields(bytes_at(b, 6u + 8u * (o % 2u)), 4u * (o / 2u), 15u);
    let fifth = spread(u8_at(b, 2u + o));
    return centred(f16_at(b, 0u), q | (fifth << vec2(4u)), 16.0);
}
