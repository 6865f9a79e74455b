// w as i2_s: ternary digits q, and behind all of them one f32 scale d; x = d (q - 1).

#import digits

fn stretch(row: u32, i: u32) -> Stretch {
    return ternary(row, i, f32_at(behind()));
}
