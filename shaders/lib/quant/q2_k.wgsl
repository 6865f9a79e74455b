// w as q2_k: a byte for 16 numbers (scale s and minimum m, 4 bits each), 256 times 2 bits, f16 d
// and e; x = d s q - e m.

#import blocks

const BLOCK = 256u;
const WORDS = 21u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let q = fields(bytes_at(b, 16u + 32u * (o / 16u) + 8u * (o % 4u)), o % 16u / 4u * 2u, 3u);
    let sm = u8_at(b, o / 2u);
    return line(f16_at(b, 80u) * f32(sm & 15u), q, -f16_at(b, 82u) * f32(sm >> 4u));
}
