// w as i2_s: 128 times 2 bits in 32 bytes, the first of four in the highest bits; behind all of
// them one f32 scale d; x = d (q - 1). Blocks go on from row to row.

#import bytes
#import dot_octet

@group(0) @binding(0) var<storage, read> w: array<u32>;

fn octet(row: u32, i: u32) -> Octet {
    let at = row * octets() + i;
    let word = at / 16u * 8u + at % 4u * 2u;
    let q = fields(vec2(w[word], w[word + 1u]), 6u - at % 16u / 4u * 2u, 3u);
    return centred(bitcast<f32>(w[params.rows * octets() / 2u]), q, 1.0);
}
