// Codes of 3 bits: a plane of the lower 2, then one of the third.

#import planes

const BITS = 3u;

fn codes(row: u32, i: u32) -> Codes {
    let at = stretch_at(row, i);
    let third = fields1(word_at(2u * params.rows * stretches() + at));
    return topped(fields2(pair_at(2u * at)), third, 2u);
}
