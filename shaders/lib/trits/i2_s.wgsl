// Digits of w as i2_s: 128 times 2 bits in 32 bytes, the first of four in the highest bits. Blocks
// go on from row to row.

#import bytes

@group(0) @binding(0) var<storage, read> w: array<u32>;

// Eight digits, each one more than it stands for, in bytes.
fn trits(row: u32, i: u32) -> vec2<u32> {
    let at = row * octets() + i;
    let word = at / 16u * 8u + at % 4u * 2u;
    return fields(vec2(w[word], w[word + 1u]), 6u - at % 16u / 4u * 2u, 3u);
}
