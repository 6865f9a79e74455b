// w as e2m1: fp4 codes, then an f32 scale d per 16 elements; x = d value.

#import fp4

fn block(row: u32, i: u32) -> Block {
    let at = codes_end() + 2u * block_index(row, i);
    return fp4(row, i, 0.5 * vec2(f32_at(at), f32_at(at + 1u)));
}
