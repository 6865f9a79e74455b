// 8-bit codes: one plane.

#import planes

const BITS = 8u;

fn codes(row: u32, i: u32) -> Codes {
    let at = 2u * row * blocks() + i;
    return Codes(w[at], w[at + blocks()]);
}
