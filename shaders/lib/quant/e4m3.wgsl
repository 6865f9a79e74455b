// w as e4m3: fp8 of a sign, 4 bits of exponent (bias 7) and 3 of mantissa, all ones but the sign
// NaN; then an f32 scale d for 32 numbers; x = d value.

#import scales32

fn four(codes: u32) -> vec4<f32> {
    let c = unpack4xU8(codes);
    let size = c & vec4(0x7fu);
    let normal = (size << vec4(20u)) + vec4(0x3c000000u);
    let tiny = bitcast<vec4<u32>>(vec4<f32>(size) / 512.0);
    let finite = select(normal, tiny, size < vec4(8u));
    let bits = select(finite, vec4(0x7fc00000u), size == vec4(0x7fu));
    return bitcast<vec4<f32>>(bits | ((c & vec4(0x80u)) << vec4(24u)));
}

fn octet(row: u32, i: u32) -> Octet {
    let codes = bytes_of(row, i);
    let scale = scale_of(row, i);
    return Octet(scale * four(codes.x), scale * four(codes.y));
}
