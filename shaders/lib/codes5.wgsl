// Codes of 5 bits: a plane of the lower 4, then one of the fifth.

#import planes

const BITS = 5u;

fn codes(row: u32, i: u32) -> Codes {
    let at = stretch_at(row, i);
    let fifth = fields1(word_at(4u * params.rows * stretches() + at));
    return topped(fields4(w[at]), fifth, 4u);
}
