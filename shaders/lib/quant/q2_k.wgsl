// w as q2_k: codes q; a byte for 16 numbers, scale s and minimum m of 4 bits each; f16 d and e for
// 256; x = d s q - e m.

#import codes2
#import coded

const MINIMA = true;

fn stretch(row: u32, i: u32) -> Stretch {
    let at = stretch_at(row, i);
    let sm = (vec4(half_at(2u * behind() + at)) >> vec4(0u, 8u, 4u, 12u)) & vec4(15u);
    let de = unpack2x16float(word_at(behind() + params.rows * stretches() / 2u + at / 8u));
    return unsigned(codes(row, i), de.x * vec2<f32>(sm.xy), -de.y * vec2<f32>(sm.zw));
}
