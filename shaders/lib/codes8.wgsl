// Codes of 8 bits: one plane.

#import planes

const BITS = 8u;

fn codes(row: u32, i: u32) -> Codes {
    let at = 2u * row * stretches() + i;
    return Codes(w[at], w[at + stretches()]);
}
