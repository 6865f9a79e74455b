// Behind ternary digits q an f16 d for 256 numbers; x = d (q - 1).

#import digits

fn stretch(row: u32, i: u32) -> Stretch {
    return ternary(row, i, f16_at(2u * behind() + stretch_at(row, i) / 8u));
}
