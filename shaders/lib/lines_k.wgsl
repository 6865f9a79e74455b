// Codes q, followed by a byte s and a byte m per block, then f16 d and e per 256 elements; x = d s
// q - e m.

#import coded

const MINIMA = true;
const UNSIGNED = true;

fn block(row: u32, i: u32) -> Block {
    let at = block_index(row, i);
    let sm = vec4<f32>(unpack4xU8(half_at(2u * codes_end() + at))).xy;
    let line = unpack2x16float(word_at(codes_end() + params.rows * blocks() / 2u + at / 8u)) * sm;
    return unsigned(codes(row, i), line.xx, -line.yy);
}
