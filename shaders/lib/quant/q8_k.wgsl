// w as q8_k: signed codes q, then an f32 scale d per 256; x = d q.

#import codes8
#import coded

const MINIMA = false;
const UNSIGNED = false;

fn block(row: u32, i: u32) -> Block {
    return signed(codes(row, i), vec2(f32_at(codes_end() + block_index(row, i) / 8u)));
}
