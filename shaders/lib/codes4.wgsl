// 4-bit codes: one plane.

#import planes

const BITS = 4u;

// Codes in the fields of words.
fn packed_codes(row: u32, i: u32) -> vec4<u32> {
    return w[block_index(row, i)];
}

fn codes(row: u32, i: u32) -> Codes {
    return fields4(packed_codes(row, i));
}
