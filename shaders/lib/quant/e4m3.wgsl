// w as e4m3: fp8 of a sign, 4 bits of exponent (bias 7) and 3 of mantissa, all ones but the sign
// NaN: of a row first 16 columns of all stretches, then the other 16 of all. Behind all codes an
// f32 scale d for each stretch; x = d value.

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
    let scale = f32_at(8u * params.rows * stretches() + stretch_at(row, i));
    let at = 2u * row * stretches() + i;
    let a = w[at];
    let b = w[at + stretches()];
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
