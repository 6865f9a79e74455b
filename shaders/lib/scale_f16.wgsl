// Behind signed codes q an f16 scale d for each stretch; x = d q.

#import coded

const MINIMA = false;

fn stretch(row: u32, i: u32) -> Stretch {
    return signed(codes(row, i), vec2(f16_at(2u * behind() + stretch_at(row, i))));
}
