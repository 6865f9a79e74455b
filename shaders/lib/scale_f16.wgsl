// Signed codes q, followed by an f16 scale d per block; x = d q.

#import coded

const MINIMA = false;
const UNSIGNED = false;

fn block(row: u32, i: u32) -> Block {
    return signed(codes(row, i), vec2(f16_at(2u * codes_end() + block_index(row, i))));
}
