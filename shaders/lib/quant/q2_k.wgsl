// w as q2_k: codes q; per 16 elements a byte with a 4-bit scale s and a 4-bit minimum m; f16 d and
// e per 256; x = d s q - e m.

#import codes2
#import coded

const MINIMA = true;
const UNSIGNED = true;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let sm = (vec4(half_at(2u * codes_end() + at)) >> vec4(0u, 8u, 4u, 12u)) & vec4(15u);
    let de = unpack2x16float(word_at(codes_end() + params.rows * blocks() / 2u + at / 8u));
    return unsigned(codes(row, i), de.x * vec2<f32>(sm.xy), -de.y * vec2<f32>(sm.zw));
}
