// Signed codes q, followed by a signed byte s per 16 elements, then an f16 d per 256; x = d s q.

#import coded

const MINIMA = false;
const UNSIGNED = false;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let s = vec4<f32>(unpack4xI8(half_at(2u * codes_end() + at))).xy;
    let d = f16_at(2u * codes_end() + params.rows * blocks() + at / 8u);
    return signed(codes(row, i), d * s);
}
