// Encoding of the head in `stored` for a q8_0 KV cache; head_dim is a multiple of 64.
//
// Per 32 elements d = max |x| / 127, and codes are round(x / d), ties away from zero.

#import cache_q8_0

// Scale of the 32 elements that start at this pair.
fn scale_from(first: u32) -> f32 {
    var largest = 0.0;
    for (var p = first; p < first + 16u; p++) {
        let pair = abs(stored[p]);
        largest = max(largest, max(pair.x, pair.y));
    }
    return largest / 127.0;
}

// Codes of the four elements that start at this pair.
fn codes_from(first: u32) -> u32 {
    let scale = scale_from(first / 16u * 16u);
    let x = vec4(stored[first], stored[first + 1u]) * select(0.0, 1.0 / scale, scale > 0.0);
    let codes = vec4<i32>(sign(x) * floor(abs(x) + 0.5));
    return pack4xI8(codes);
}

// Scales of the 64 elements that start at this pair.
fn scales_from(first: u32) -> u32 {
    return pack2x16float(vec2(scale_from(first), scale_from(first + 16u)));
}
