// w as q3_k: 256 third bits, 256 times 2 bits, 16 scales s of 6 bits, an f16 d;
// x = d (s - 32) (q - 4).
//
// Scales: the low nibbles of 0..8, then of 8..16, in the halves of 8 bytes; then the upper bits.

#import blocks

const BLOCK = 256u;
const WORDS = 28u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let low = fields(bytes_at(b, 32u + 32u * (o / 16u) + 8u * (o % 4u)), o % 16u / 4u * 2u, 3u);
    let third = fields(bytes_at(b, 8u * (o % 4u)), o / 4u, 1u);
    let g = o / 2u;
    let s = ((u8_at(b, 96u + g % 8u) >> (4u * (g / 8u))) & 15u)
        | (((u8_at(b, 104u + g % 4u) >> (2u * (g / 4u))) & 3u) << 4u);
    return centred(f16_at(b, 108u) * (f32(s) - 32.0), low | (third << vec2(2u)), 4.0);
}
