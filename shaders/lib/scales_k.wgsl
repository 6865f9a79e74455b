// Behind signed codes q a signed byte s for 16 numbers, then an f16 d for 256; x = d s q.

#import coded

const MINIMA = false;

fn stretch(row: u32, i: u32) -> Stretch {
    let at = stretch_at(row, i);
    let s = vec4<f32>(unpack4xI8(half_at(2u * behind() + at))).xy;
    let d = f16_at(2u * behind() + params.rows * stretches() + at / 8u);
    return signed(codes(row, i), d * s);
}
