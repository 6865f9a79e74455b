// w as iq4_nl: an f16 scale d, 32 nibbles; x = d value[q].

#import blocks
#import iq4

const BLOCK = 32u;
const WORDS = 5u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 4u;
    let codes = fields(bytes_at(b, 2u + 8u * (o % 2u)), 4u * (o / 2u), 15u);
    return from_table(f16_at(b, 0u), IQ4, codes);
}
