// 4-bit codes: one plane.

#import planes

const BITS = 4u;

fn codes(row: u32, i: u32) -> Codes {
    return fields4(w[block_index(row, i)]);
}
