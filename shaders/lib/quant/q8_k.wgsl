// w as q8_k: an f32 scale d, 256 signed bytes, their sums by 16; x = d q.

#import blocks

const BLOCK = 256u;
const WORDS = 73u;

fn octet(row: u32, i: u32) -> Octet {
    let b = block_of(row, i);
    return scaled(bitcast<f32>(w[b]), bytes_at(b, 4u + 8u * (i % 32u)));
}
