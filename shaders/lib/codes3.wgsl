// 3-bit codes: a plane of the lower 2 bits, then one of the upper bit.

#import planes

const BITS = 3u;

fn codes(row: u32, i: u32) -> Codes {
    let at = block_index(row, i);
    let third = fields1(word_at(2u * params.rows * blocks() + at));
    return topped(fields2(pair_at(2u * at)), third, 2u);
}
