// w as i2_s: ternary digits q, followed by one f32 scale d; x = d (q - 1).

#import digits

fn block(row: u32, i: u32) -> Block {
    return ternary(row, i, f32_at(codes_end()));
}
