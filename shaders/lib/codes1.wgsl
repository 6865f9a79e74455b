// 1-bit codes: one plane.

#import planes

const BITS = 1u;

fn codes(row: u32, i: u32) -> Codes {
    return fields1(word_at(block_index(row, i)));
}
