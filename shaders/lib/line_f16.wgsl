// Behind codes q an f16 scale d and an f16 minimum m for each stretch; x = d q + m.

#import coded

const MINIMA = true;

fn stretch(row: u32, i: u32) -> Stretch {
    let line = unpack2x16float(word_at(behind() + stretch_at(row, i)));
    return unsigned(codes(row, i), line.xx, line.yy);
}
