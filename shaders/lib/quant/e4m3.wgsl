// w as e4m3: fp8 with a sign, 4 exponent bits (bias 7) and 3 mantissa bits; all ones except the
// sign is NaN. Per row, first the first 16 columns of all blocks, then the other 16 of all blocks.
// After all codes, an f32 scale d per block; x = d value.

#import floats
#import words

fn four(codes: u32, scale: f32) -> vec4<f32> {
    let c = unpack4xU8(codes);
    let size = c & vec4(0x7fu);
    let normal = (size << vec4(20u)) + vec4(0x3c000000u);
    let tiny = bitcast<vec4<u32>>(vec4<f32>(size) / 512.0);
    let finite = select(normal, tiny, size < vec4(8u));
    let bits = select(finite, vec4(0x7fc00000u), size == vec4(0x7fu));
    return scale * bitcast<vec4<f32>>(bits | ((c & vec4(0x80u)) << vec4(24u)));
}

fn numbers(row: u32, i: u32) -> Numbers {
    let scale = f32_at(8u * params.rows * blocks() + block_index(row, i));
    let at = 2u * row * blocks() + i;
    let a = w[at];
    let b = w[at + blocks()];
    return Numbers(
        four(a.x, scale),
        four(a.y, scale),
        four(a.z, scale),
        four(a.w, scale),
        four(b.x, scale),
        four(b.y, scale),
        four(b.z, scale),
        four(b.w, scale),
    );
}
