// Digits of w as tq2_0: 256 times 2 bits, an f16 behind them.

#import block_of

const BLOCK = 256u;
const WORDS = 17u;

// Eight digits, each one more than it stands for, in bytes.
fn trits(row: u32, i: u32) -> vec2<u32> {
    let b = block_of(row, i);
    let o = i % 32u;
    return fields(bytes_at(b, 32u * (o / 16u) + 8u * (o % 4u)), o % 16u / 4u * 2u, 3u);
}
