// w as ternary: ternary digits q, then an f32 scale d for each row; x = d (q - 1).

#import digits

fn stretch(row: u32, i: u32) -> Stretch {
    return ternary(row, i, f32_at(behind() + row));
}
