// Digits of w as ternary: four rows in a byte, of quarters of the matrix, the first in the lowest
// bits; byte rows padded with zeros to whole octets.

#import bytes

@group(0) @binding(0) var<storage, read> w: array<u32>;

// Eight digits, each one more than it stands for, in bytes.
fn trits(row: u32, i: u32) -> vec2<u32> {
    let quarter = params.rows / 4u;
    let at = (row % quarter * octets() + i) * 2u;
    return fields(vec2(w[at], w[at + 1u]), 2u * (row / quarter), 3u);
}
