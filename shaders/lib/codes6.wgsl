// 6-bit codes: a plane of the lower 4 bits, then one of the upper 2.

#import planes

const BITS = 6u;

fn codes(row: u32, i: u32) -> Codes {
    let at = block_index(row, i);
    let upper = fields2(pair_at(4u * params.rows * blocks() + 2u * at));
    return topped(fields4(w[at]), upper, 4u);
}
