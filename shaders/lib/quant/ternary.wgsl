// w as ternary: ternary digits q, then an f32 scale d per row; x = d (q - 1).

#import digits

fn block(row: u32, i: u32) -> Block {
    return ternary(row, i, f32_at(codes_end() + row));
}
