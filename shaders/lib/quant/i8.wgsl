// w as i8: signed codes q, then an f32 scale d for each stretch; x = d q.

#import codes8
#import coded

const MINIMA = false;

fn stretch(row: u32, i: u32) -> Stretch {
    return signed(codes(row, i), vec2(f32_at(behind() + stretch_at(row, i))));
}
