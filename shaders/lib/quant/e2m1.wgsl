// w as e2m1: codes of fp4, an octet in 4 bytes, the low nibble first; behind all of them an f32
// scale d for 16 numbers; x = d value[q].

#import octet
#import dot_octet
#import fp4

@group(0) @binding(0) var<storage, read> w: array<u32>;

fn octet(row: u32, i: u32) -> Octet {
    let at = row * octets() + i;
    let scale = bitcast<f32>(w[params.rows * octets() + at / 2u]);
    let codes = (vec4(w[at]) >> vec4(0u, 8u, 16u, 24u)) & vec4(0xffu);
    let low = chosen(FP4, codes & vec4(15u));
    let high = chosen(FP4, codes >> vec4(4u));
    let half = 0.5 * scale;
    return Octet(
        half * vec4(low.x, high.x, low.y, high.y),
        half * vec4(low.z, high.z, low.w, high.w),
    );
}
