// Behind codes q a byte s and a byte m for each stretch, then f16 d and e for 256 numbers;
// x = d s q - e m.

#import coded

const MINIMA = true;

fn stretch(row: u32, i: u32) -> Stretch {
    let at = stretch_at(row, i);
    let sm = vec4<f32>(unpack4xU8(half_at(2u * behind() + at))).xy;
    let line = unpack2x16float(word_at(behind() + params.rows * stretches() / 2u + at / 8u)) * sm;
    return unsigned(codes(row, i), line.xx, -line.yy);
}
