// w as q2_0: codes q, followed by an f16 scale d per 64 elements; x = d (q - 1).

#import digits

fn block(row: u32, i: u32) -> Block {
    return ternary(row, i, f16_at(2u * codes_end() + block_index(row, i) / 2u));
}
