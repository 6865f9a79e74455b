// 5-bit codes: a plane of the lower 4 bits, then one of the upper bit.

#import planes

const BITS = 5u;

fn codes(row: u32, i: u32) -> Codes {
    let at = block_index(row, i);
    let fifth = fields1(word_at(4u * params.rows * blocks() + at));
    return topped(fields4(w[at]), fifth, 4u);
}
