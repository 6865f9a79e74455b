// 2-bit codes: one plane.

#import planes

const BITS = 2u;

fn codes(row: u32, i: u32) -> Codes {
    return fields2(pair_at(2u * block_index(row, i)));
}
