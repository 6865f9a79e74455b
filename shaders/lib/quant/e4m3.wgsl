// w as e4m3: fp8 with a sign, 4 exponent bits (bias 7) and 3 mantissa bits; all ones except the
// sign is NaN. Per row, first the first 16 columns of all blocks, then the other 16 of all blocks.
// After all codes, an f32 scale d per block; x = d value.

#import floats
#import words

// Two codes in the lower bytes of both halves: as f16, whose exponent has a bias of 15, they are their value / 2^8.
fn two(codes: u32, scale: f32) -> vec2<f32> {
    let size = (codes & 0x007f007fu) << 7u;
    // The sum has the upper exponent bit of f16 only for NaN.
    let nan = (size + 0x00800080u) & 0x40004000u;
    return scale * unpack2x16float(size | nan | ((codes & 0x00800080u) << 8u));
}

fn four(codes: u32, scale: f32) -> vec4<f32> {
    let even = two(codes, scale);
    let odd = two(codes >> 8u, scale);
    return vec4(even.x, odd.x, even.y, odd.y);
}

struct Weights {
    a: vec4<u32>,
    b: vec4<u32>,
    scale: f32,
}

fn weights(row: u32, i: u32) -> Weights {
    let scale = f32_at(8u * params.rows * blocks() + block_index(row, i));
    let at = 2u * row * blocks() + i;
    return Weights(w[at], w[at + blocks()], scale);
}

fn numbers_of(v: Weights) -> Numbers {
    let scale = 256.0 * v.scale;
    return Numbers(
        four(v.a.x, scale),
        four(v.a.y, scale),
        four(v.a.z, scale),
        four(v.a.w, scale),
        four(v.b.x, scale),
        four(v.b.y, scale),
        four(v.b.z, scale),
        four(v.b.w, scale),
    );
}
