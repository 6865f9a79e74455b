// w as e2m1: codes of fp4, then an f32 scale d for 16 numbers; x = d value.

#import fp4

fn stretch(row: u32, i: u32) -> Stretch {
    let at = behind() + 2u * stretch_at(row, i);
    return fp4(row, i, 0.5 * vec2(f32_at(at), f32_at(at + 1u)));
}
