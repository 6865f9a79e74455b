// Codes of 2 bits: one plane.

#import planes

const BITS = 2u;

fn codes(row: u32, i: u32) -> Codes {
    return fields2(pair_at(2u * stretch_at(row, i)));
}
