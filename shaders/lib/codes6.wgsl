// Codes of 6 bits: a plane of the lower 4, then one of the upper 2.

#import planes

const BITS = 6u;

fn codes(row: u32, i: u32) -> Codes {
    let at = stretch_at(row, i);
    let upper = fields2(pair_at(4u * params.rows * stretches() + 2u * at));
    return topped(fields4(w[at]), upper, 4u);
}
