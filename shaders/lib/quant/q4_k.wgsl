// w as q4_k: f16 d and e, 8 scales s and minima m of 6 bits, 256 nibbles; x = d s q - e m.

#import blocks
#import scales6

const BLOCK = 256u;
const WORDS = 36u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let q = fields(bytes_at(b, 16u + 32u * (o / 8u) + 8u * (o % 4u)), o % 8u / 4u * 4u, 15u);
    let sm = scale_min(b, o / 4u);
    return line(f16_at(b, 0u) * sm.x, q, -f16_at(b, 2u) * sm.y);
}
