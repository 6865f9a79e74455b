// w as q6_k: 256 nibbles, 256 times 2 upper bits, 16 signed bytes s, an f16 d; x = d s (q - 32).

#import blocks

const BLOCK = 256u;
const WORDS = 53u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    let o = i % 32u;
    let half = o / 16u;
    let low = fields(bytes_at(b, 64u * half + 8u * (o % 8u)), o % 16u / 8u * 4u, 15u);
    let high = fields(bytes_at(b, 128u + 32u * half + 8u * (o % 4u)), o % 16u / 4u * 2u, 3u);
    let s = f32(unpack4xI8(u8_at(b, 192u + o / 2u)).x);
    return centred(f16_at(b, 208u) * s, low | (high << vec2(4u)), 32.0);
}
