// Codes q, followed by an f32 scale and an f32 bias per block; x = scale q + bias. 8-bit codes are
// stored minus 128.

#import coded

const MINIMA = true;
const UNSIGNED = BITS < 8u;

fn block(row: u32, i: u32) -> Block {
    let at = codes_end() + 2u * block_index(row, i);
    let scale = f32_at(at);
    let offset = select(0.0, 128.0, BITS == 8u);
    return unsigned(codes(row, i), vec2(scale), vec2(f32_at(at + 1u) + offset * scale));
}
